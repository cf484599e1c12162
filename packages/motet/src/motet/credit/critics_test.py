"""Tests credit with critics, through `assign_credit`, against textbook formulas and values computed
by hand."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.algorithms import ALGORITHMS, resolve
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    Round,
    Scores,
    Task,
    Team,
    ValueEstimate,
    ValueId,
    walk,
)
from motet.core.terms import BONUS, RIGHT
from motet.credit.assign import Credit, assign_credit
from motet.credit.critics import explained_variance, first_values
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.settings import Algorithm
from tests.fixtures.messages import facts

AGENTS = ("a", "b")
OWN = Team({"a": ("p",), "b": ("q",)}, decode={}, critics={"a": "critic-a", "b": "critic-b"})
JOINT = Team(OWN.agents, decode={}, critics=dict.fromkeys(AGENTS, "critic-joint"))


@dataclass(frozen=True)
class Turn:
    """One turn of a path: the rewards, which agents acted, their number of tokens, and the
    outcome's terms."""

    rewards: tuple[float, float]
    speaks: str = "ab"
    tokens: int = 1
    terms: Mapping[str, float] | None = None


def path(turns: Sequence[Turn], id: str = "e", team: Team = OWN) -> Episode:
    """Return an episode with one completion per agent and turn."""
    below = None
    for number in reversed(range(len(turns))):
        turn = turns[number]
        said = {
            agent: (Completion(team.policy_of(agent, number), "x", "stop",
                               tokens=(5,) * turn.tokens, logprobs=(-1.0,) * turn.tokens),)
            for agent in turn.speaks
        }  # fmt: skip
        outcome = Outcome(
            dict.fromkeys(turn.speaks, 0),
            dict(zip(AGENTS, turn.rewards, strict=True)),
            turn.terms or {},
            below,
            None if below else "done",
        )
        below = Round(
            number, dict.fromkeys(said, "?"), dict.fromkeys(said, (1, 2)), said, (outcome,)
        )
    return Episode(id, Task(id, {}), below)


def said_by(values: Mapping[tuple, float | Sequence[float]], algorithm: Algorithm) -> Scores:
    """Return Scores with the given values: (episode, turn, agent) -> value.

    The agent is None for a joint critic. In token scope the value is a list.
    """
    found = {}
    for (episode, turn, agent), value in values.items():
        numbers = tuple(value) if isinstance(value, Sequence) else (value,)
        reading = ValueId(
            episode, (0,) * turn, agent, 0 if algorithm.critic.scope == "token" else None
        )
        found[reading] = ValueEstimate(
            (1, 2, *[5] * (len(numbers) - 1)), tuple(range(1, 1 + len(numbers))), numbers
        )
    return Scores(values=found)


def credit(episodes, algorithm, values, team=OWN, turns=3) -> Credit:
    return assign_credit(
        episodes, said_by(values, algorithm), algorithm, CreditState(), team, turns
    )


def advantages(result: Credit) -> dict:
    return {(s.id.episode, len(s.id.path), s.id.agent): s.advantage for s in result.samples}


def targets(result: Credit) -> dict:
    """Return the critic targets in turn scope: (episode, turn, agent or None) -> target."""
    return {(v.id.episode, v.turn, v.id.agent): v.target[0] for v in result.values}


def rule(name: str, **fields) -> Algorithm:
    return resolve(name, {"repeat_last_reward": False, "whiten": False, **fields})


# ------------------------------------------------------------ turn scope


def textbook(
    rewards: Sequence[float], values: Mapping[int, float], gamma: float, gae_lambda: float
) -> dict[int, float]:
    """GAE of one agent over its own decisions, which are the turns in `values`.

    Rewards between two decisions count as rewards of the first one, discounted by γ per turn. The
    next value is that of the next decision. λ is applied once per decision.
    """
    decisions, found, following = sorted(values), {}, 0.0
    for k in reversed(range(len(decisions))):
        now = decisions[k]
        last = k + 1 == len(decisions)
        until = len(rewards) if last else decisions[k + 1]
        earned = sum(gamma ** (t - now) * rewards[t] for t in range(now, until))
        ahead = 0.0 if last else gamma ** (until - now) * (values[until] + gae_lambda * following)
        found[now] = following = earned + ahead - values[now]
    return found


reward = st.floats(-2, 2)
speakers = st.sampled_from(["ab", "a", "b"])
games = st.lists(st.builds(Turn, st.tuples(reward, reward), speakers), min_size=1, max_size=5)


@given(
    games,
    st.randoms(use_true_random=False),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["all", "own"]),
)
@settings(max_examples=80, deadline=None)
def test_own_critics_on_a_path_are_textbook_gae_over_each_agents_own_decisions(
    game, draw, gamma, gae_lambda, share
):
    values = {
        ("e", t, agent): draw.uniform(-1, 1) for t, turn in enumerate(game) for agent in turn.speaks
    }
    algorithm = rule("iac", gamma=gamma, gae_lambda=gae_lambda, reward_sharing=share)
    result = credit([path(game)], algorithm, values, turns=len(game))
    got, aims = advantages(result), targets(result)
    for place, agent in enumerate(AGENTS):
        rewards = [
            turn.rewards[place] if share == "own" else sum(turn.rewards) / 2 for turn in game
        ]
        own = {t: value for (_, t, who), value in values.items() if who == agent}
        for t, expected in textbook(rewards, own, gamma, gae_lambda).items():
            assert got["e", t, agent] == pytest.approx(expected, abs=1e-6)
            assert aims["e", t, agent] == pytest.approx(expected + own[t], abs=1e-6)
    assert len(got) == len(aims) == len(values)


@given(games, st.randoms(use_true_random=False), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_a_joint_critic_on_a_path_is_textbook_gae_and_sits_through_every_round(
    game, draw, gamma, gae_lambda
):
    values = {("e", t, None): draw.uniform(-1, 1) for t in range(len(game))}
    result = credit(
        [path(game)], rule("maac", gamma=gamma, gae_lambda=gae_lambda), values, JOINT, len(game)
    )
    shared = [sum(turn.rewards) / 2 for turn in game]
    got = advantages(result)
    for agent in AGENTS:
        own = {t: values["e", t, None] for t, turn in enumerate(game) if agent in turn.speaks}
        for t, expected in textbook(shared, own, gamma, gae_lambda).items():
            assert got["e", t, agent] == pytest.approx(expected, abs=1e-6)
    everywhere = {t: values["e", t, None] for t in range(len(game))}
    wanted = {
        ("e", t, None): value + everywhere[t]
        for t, value in textbook(shared, everywhere, gamma, gae_lambda).items()
    }
    assert targets(result) == pytest.approx(wanted, abs=1e-6)


def test_two_turns_with_a_silent_one_between_by_hand():
    # a acts at turns 1 and 3, γ = λ = 1/2, shared rewards 2, 4, 8; V(1) = 1, V(3) = 6
    game = [Turn((2.0, 2.0)), Turn((4.0, 4.0), "b"), Turn((8.0, 8.0), "a")]
    values = {("e", 0, "a"): 1.0, ("e", 2, "a"): 6.0, ("e", 0, "b"): 0.0, ("e", 1, "b"): 0.0}
    got = advantages(credit([path(game)], rule("iac", gamma=0.5, gae_lambda=0.5), values))
    assert got["e", 2, "a"] == 8 - 6
    assert got["e", 0, "a"] == 2 + 0.5 * 4 + 0.25 * (6 + 0.5 * 2) - 1
    assert got["e", 1, "b"] == 4 + 0.5 * 8  # b does not act after it, so there is no value


# ------------------------------------------------------------ critic targets


def tree(id: str = "e") -> Episode:
    """Two turns with two joint actions per Round. The second branch of turn one ended."""

    def said(count):
        return {
            agent: tuple(
                Completion(policy, "x", "stop", tokens=(5,), logprobs=(-1.0,)) for _ in range(count)
            )
            for agent, policy in (("a", "p"), ("b", "q"))
        }

    def outcome(index, value, below=None):
        picks, rewards = dict.fromkeys(AGENTS, index), dict.fromkeys(AGENTS, value)
        return Outcome(picks, rewards, {}, below, None if below else "done")

    prompts, tokens = dict.fromkeys(AGENTS, "?"), dict.fromkeys(AGENTS, (1, 2))
    child = Round(1, prompts, tokens, said(2), (outcome(0, 1.0), outcome(1, 5.0)))
    root = Round(0, prompts, tokens, said(2), (outcome(0, 1.0, child), outcome(1, 2.0)))
    return Episode(id, Task(id, {}), root)


def readings(
    episode: Episode, agents: Sequence[str | None], value: float
) -> dict[ValueId, ValueEstimate]:
    return {
        ValueId(episode.id, where, agent): ValueEstimate((1, 2), (1,), (value,))
        for where, _ in walk(episode.root)
        for agent in agents
    }


@pytest.mark.parametrize(
    ("name", "team", "readers"), [("iac", OWN, AGENTS), ("maac", JOINT, (None,))]
)
def test_a_situation_is_one_lesson_whose_target_is_the_mean_over_what_was_done_in_it(
    name, team, readers
):
    episodes = [tree("e"), tree("f")]
    scores = Scores(
        values={id: said for e in episodes for id, said in readings(e, readers, 0.0).items()}
    )
    result = assign_credit(episodes, scores, rule(name, gae_lambda=1.0), CreditState(), team, 2)
    assert [value.id for value in result.values] == list(scores.values)
    # λ = 1, V = 0: the mean return. Turn two: (1 + 5)/2; turn one: ((1 + 3) + 2)/2
    by_place = {
        (value.id.path, value.id.agent): value.target
        for value in result.values
        if value.id.episode == "e"
    }
    assert by_place == {
        (where, who): (aim,) for where, aim in (((), 3.0), ((0,), 3.0)) for who in readers
    }
    # a Round's share of the step: half for each task; half of that is left at turn two
    for who in readers:
        weights = [(v.turn, v.share) for v in result.values if v.id.agent == who]
        assert sum(weight for turn, weight in weights if turn == 0) == pytest.approx(1.0)
        assert sum(weight for turn, weight in weights if turn == 1) == pytest.approx(0.5)
    assert {value.critic for value in result.values} == set(team.critics.values())
    assert {value.tokens for value in result.values} == {(1, 2)}
    assert {value.old_value for value in result.values} == {(0.0,)}


def test_a_lesson_says_whose_credit_it_is_for():
    game = [Turn((0.0, 0.0)), Turn((1.0, 1.0), "b")]
    values = {("e", 0, None): 0.0, ("e", 1, None): 0.0}
    joint = credit([path(game)], rule("maac"), values, JOINT)
    assert [value.policy_turns for value in joint.values] == [
        (("p", 0), ("q", 0)),
        (("p", 0), ("q", 0), ("p", 1), ("q", 1)),
    ]
    own = credit(
        [path(game)], rule("iac"), {("e", 0, "a"): 0.0, ("e", 0, "b"): 0.0, ("e", 1, "b"): 0.0}
    )
    assert [(value.critic, value.policy_turns) for value in own.values] == [
        ("critic-a", (("p", 0),)),
        ("critic-b", (("q", 0),)),
        ("critic-b", (("q", 0), ("q", 1))),
    ]
    game = [Turn((0.0, 0.0)), Turn((1.0, 1.0))]
    apart = credit(
        [path(game)],
        rule("maac", returns="last", gae_lambda=1.0),
        {("e", t, None): 0.0 for t in (0, 1)},
        JOINT,
    )
    assert [value.policy_turns for value in apart.values] == [
        (("p", 0), ("q", 0)),
        (("p", 1), ("q", 1)),
    ]


def test_a_frozen_partner_has_no_critic_of_its_own_and_a_joint_one_still_reads_for_the_others():
    cold = frozenset({"q"})
    game = [Turn((1.0, 3.0)), Turn((2.0, 2.0), "b")]
    own = Team(OWN.agents, decode={}, frozen=cold, critics={"a": "critic-a"})
    result = credit([path(game, team=own)], rule("iac", gae_lambda=1.0), {("e", 0, "a"): 0.5}, own)
    assert advantages(result) == {("e", 0, "a"): 1 + 2 - 0.5}
    assert [value.critic for value in result.values] == ["critic-a"]
    joint = Team(OWN.agents, decode={}, frozen=cold, critics=JOINT.critics)
    result = credit(
        [path(game, team=joint)],
        rule("maac", gae_lambda=1.0),
        {("e", t, None): 0.0 for t in (0, 1)},
        joint,
    )
    assert list(advantages(result)) == [("e", 0, "a")]
    assert [(value.turn, value.policy_turns) for value in result.values] == [
        (0, (("p", 0),)),
        (1, (("p", 0), ("p", 1))),
    ]


@pytest.mark.parametrize("name", ["iac", "maac"])
def test_a_critic_that_knows_nothing_leaves_the_advantages_of_mareinforce(name):
    team, readers = (OWN, AGENTS) if name == "iac" else (JOINT, (None,))
    episodes, draw = [tree("e"), tree("f")], random.Random(3)
    episodes.append(
        path([Turn((draw.random(), draw.random()), who) for who in ("ab", "b", "ab")], "g")
    )
    values = {id: said for e in episodes for id, said in readings(e, readers, 0.0).items()}
    sharing = {"reward_sharing": "all"}
    alone, critic = resolve("mareinforce", sharing), resolve(name, {"gae_lambda": 1.0} | sharing)
    plain = assign_credit(episodes, Scores(), alone, CreditState(), team, 3)
    valued = assign_credit(episodes, Scores(values=values), critic, CreditState(), team, 3)
    assert len(plain.samples) == 8 + 8 + 5
    assert [(s.id, s.share) for s in valued.samples] == [(s.id, s.share) for s in plain.samples]
    assert [s.advantage for s in valued.samples] == pytest.approx(
        [s.advantage for s in plain.samples]
    )
    assert valued.metrics["credit/return"] == plain.metrics["credit/return"]


@pytest.mark.parametrize("returns", ["discounted_sum", "last", "current"])
@pytest.mark.parametrize("name", ["iac", "maac"])
def test_where_returns_replace_the_fold_the_advantage_is_return_minus_value_and_nothing_crosses_a_turn(  # noqa: E501
    name, returns
):
    team, readers = (OWN, AGENTS) if name == "iac" else (JOINT, (None,))
    game = [Turn((1.0, 0.0)), Turn((0.0, 1.0))]
    values = {("e", t, who): 0.25 * (t + 1) for t in (0, 1) for who in readers}
    fields = {
        "returns": returns,
        "gae_lambda": 1.0,
        "gamma": 0.5,
        "reward_sharing": "all",
    }
    got = advantages(credit([path(game)], rule(name, **fields), values, team, 2))
    # influence-aware with d = 1/2: (own + d·mean of later)/(1 + d)
    expected = {
        "discounted_sum": {
            (0, "a"): 1.25 / 1.5,
            (0, "b"): 0.25 / 1.5,
            (1, "a"): 0.0,
            (1, "b"): 1.0,
        },
        "last": {(t, who): 0.5 for t in (0, 1) for who in AGENTS},
        "current": {(t, who): 0.5 for t in (0, 1) for who in AGENTS},
    }[returns]
    assert got == {
        ("e", t, who): pytest.approx(value - 0.25 * (t + 1)) for (t, who), value in expected.items()
    }
    # Change only the values of turn two.
    moved = {key: value + (key[1] == 1) for key, value in values.items()}
    again = advantages(credit([path(game)], rule(name, **fields), moved, team, 2))
    assert {key for key in got if got[key] != again[key]} == {("e", 1, "a"), ("e", 1, "b")}


# ------------------------------------------------------------ independence of turns


def right(a: float, b: float, **terms: float) -> dict[str, float]:
    return {RIGHT + "a": a, RIGHT + "b": b, **terms}


def two_debates(penalty: float = 0.0) -> list[Episode]:
    """Two debates: in the first, a adopts b's answer; in the second, no answer changes.

    `penalty` is a's bonus in the second turn of the first debate.
    """
    bonus = {BONUS + "a": penalty}
    return [
        path(
            [Turn((0.0, 1.0), terms=right(0, 1)), Turn((1.0, 1.0), terms=right(1, 1, **bonus))],
            "e",
        ),
        path([Turn((0.2, 1.0), terms=right(0, 1)), Turn((0.0, 1.0), terms=right(0, 1))], "f"),
    ]


DEBATED = {(e, t, agent): 0.1 * t for e in "ef" for t in (0, 1) for agent in AGENTS}


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("returns", ["tree", "discounted_sum"])
def test_an_incentive_of_a_later_turn_leaves_the_turn_before_as_it_was(returns, whiten):
    fields = {"returns": returns, "whiten": whiten, "gae_lambda": 1.0, "gamma": 0.5}
    without, with_alpha = (
        advantages(
            credit(
                two_debates(), rule("iac", incentives={"alpha1": size}, **fields), DEBATED, turns=2
            )
        )
        for size in (0.0, 3.0)
    )
    changed = {key for key in without if without[key] != with_alpha[key]}
    of_a = {("e", 1, "a"), ("f", 1, "a")}
    if whiten:  # whitened per agent and turn; two values always become -1 and 1
        assert changed <= of_a
        assert {abs(round(with_alpha[key], 6)) for key in of_a} == {1.0}
    else:
        assert changed == {("e", 1, "a")}
        assert with_alpha["e", 1, "a"] - without["e", 1, "a"] == pytest.approx(3.0)


@pytest.mark.parametrize("returns", ["tree", "discounted_sum"])
def test_a_personal_term_reaches_its_agent_at_its_turn_alone(returns):
    fields = {"returns": returns, "gae_lambda": 1.0, "gamma": 0.5}
    clean, fined = (
        credit(two_debates(fine), rule("iac", **fields), DEBATED, turns=2) for fine in (0.0, -0.5)
    )
    before, after = advantages(clean), advantages(fined)
    assert {key: after[key] - before[key] for key in before if after[key] != before[key]} == {
        ("e", 1, "a"): pytest.approx(-0.5)
    }
    assert fined.metrics["credit/return"] == pytest.approx(clean.metrics["credit/return"] - 0.5 / 8)


def test_in_the_fold_no_value_answers_for_what_is_personal():
    clean, fined = (
        targets(credit(two_debates(fine), rule("iac"), DEBATED, turns=2)) for fine in (0.0, -0.5)
    )
    assert clean == fined


@pytest.mark.parametrize("name", ["iac", "mappo"])
def test_whitening_centres_and_scales_each_agents_turn_by_itself(name):
    team, readers = (OWN, AGENTS) if name == "iac" else (JOINT, (None,))
    draw = random.Random(5)
    episodes = [
        path([Turn((draw.random() * 10**t, draw.random()), "ab") for t in (0, 1)], e) for e in "efg"
    ]
    values = {(e, t, who): 0.0 for e in "efg" for t in (0, 1) for who in readers}
    plain = advantages(credit(episodes, rule(name, reward_sharing="all"), values, team, 2))
    white = advantages(
        credit(episodes, rule(name, reward_sharing="all", whiten=True), values, team, 2)
    )
    for t in (0, 1):
        for agent in AGENTS:
            alike = [plain[e, t, agent] for e in "efg"]
            mean = sum(alike) / 3
            spread = (sum((value - mean) ** 2 for value in alike) / 3) ** 0.5
            expected = [(value - mean) / spread for value in alike]
            assert [white[e, t, agent] for e in "efg"] == pytest.approx(expected)


# ------------------------------------------------------------ token scope


def token_values(numbers: Mapping[tuple[str, int], Sequence[float]]) -> dict:
    """Return values in token scope: (agent, turn) -> values before each of its tokens."""
    return {("e", t, agent): list(values) for (agent, t), values in numbers.items()}


TALK = [Turn((1.0, 0.0), tokens=3), Turn((0.0, 1.0), tokens=2)]
FLAT = {(agent, t): [0.0] * TALK[t].tokens for agent in AGENTS for t in (0, 1)}


def test_in_token_scope_the_return_comes_on_the_last_token_and_fades_with_lambda_towards_the_first():  # noqa: E501
    algorithm = rule("maporl", kl_in="none", kl_coefficient=0.0, gae_lambda=0.5, gamma=0.5)
    got = advantages(credit([path(TALK)], algorithm, token_values(FLAT), turns=2))
    first = 1.25 / 1.5  # the influence-aware return of a's first turn
    assert got["e", 0, "a"] == pytest.approx((first / 4, first / 2, first))
    assert got["e", 1, "b"] == pytest.approx((0.5, 1.0))
    assert got["e", 1, "a"] == pytest.approx((0.0, 0.0))


def test_in_token_scope_no_value_crosses_a_turn_and_targets_are_value_plus_advantage():
    algorithm = rule(
        "maporl",
        kl_in="none",
        kl_coefficient=0.0,
        gae_lambda=0.5,
        returns="current",
        reward_sharing="own",
    )
    values = {**FLAT, ("a", 0): [0.1, 0.2, 0.4]}
    result = credit([path(TALK)], algorithm, token_values(values), turns=2)
    got = advantages(result)
    # δ = (0.2 − 0.1, 0.4 − 0.2, 1 − 0.4): 0.6, 0.2 + 0.3, 0.1 + 0.25
    assert got["e", 0, "a"] == pytest.approx((0.35, 0.5, 0.6))
    value_sample = next(value for value in result.values if value.id == ValueId("e", (), "a", 0))
    assert value_sample.target == pytest.approx((0.45, 0.7, 1.0))
    assert (value_sample.old_value, value_sample.positions, value_sample.tokens) == (
        (0.1, 0.2, 0.4),
        (1, 2, 3),
        (1, 2, 5, 5),
    )
    later = {**values, ("a", 1): [9.0, 9.0], ("b", 1): [9.0, 9.0]}
    again = advantages(credit([path(TALK)], algorithm, token_values(later), turns=2))
    assert {key for key in got if got[key] != again[key]} == {("e", 1, "a"), ("e", 1, "b")}


def test_in_token_scope_whitening_counts_every_token_of_a_seat():
    algorithm = rule(
        "maporl", kl_in="none", kl_coefficient=0.0, gae_lambda=0.5, returns="current", whiten=True
    )
    values = {**FLAT, ("a", 0): [0.1, 0.2, 0.4]}
    white = advantages(credit([path(TALK)], algorithm, token_values(values), turns=2))
    for key, numbers in white.items():
        assert sum(numbers) == pytest.approx(0.0, abs=1e-9), key
        assert sum(number**2 for number in numbers) / len(numbers) == pytest.approx(1.0), key


def test_in_token_scope_a_frozen_partner_is_neither_read_nor_taught():
    team = Team(OWN.agents, decode={}, frozen=frozenset({"q"}), critics={"a": "critic-a"})
    only_a = {key: values for key, values in FLAT.items() if key[0] == "a"}
    algorithm = rule("maporl", kl_in="none", kl_coefficient=0.0)
    result = credit([path(TALK, team=team)], algorithm, token_values(only_a), team, 2)
    assert {sample.id.agent for sample in result.samples} == {"a"}
    assert {value.critic for value in result.values} == {"critic-a"}


def test_in_token_scope_every_answer_is_a_lesson_and_turns_weigh_the_same():
    algorithm = rule("maporl", kl_in="none", kl_coefficient=0.0)
    result = credit([path(TALK)], algorithm, token_values(FLAT), turns=2)
    assert [(v.id, v.critic, v.share) for v in result.values] == [
        (ValueId("e", where, agent, 0), f"critic-{agent}", 1.0)
        for where in ((), (0,))
        for agent in AGENTS
    ]


# ------------------------------------------------------------ explained variance


def test_explained_variance_by_hand():
    # At turn one, targets are 0 and 2, values 0 and 1. Var(target) = 1, Var(target − value) =
    # Var(0, 1) = 1/4.
    episodes = [
        path([Turn((reward, reward)), Turn((0.0, 0.0))], id)
        for id, reward in (("e", 0.0), ("f", 2.0))
    ]
    values = {(e, t, agent): 0.0 for e in "ef" for t in (0, 1) for agent in AGENTS}
    values |= {("f", 0, "a"): 1.0, ("f", 0, "b"): 2.0}
    result = credit(episodes, rule("iac", gae_lambda=1.0), values, turns=2)
    expected = {
        "credit/explained_variance/critic-a/turn1": 0.75,
        "credit/explained_variance/critic-b/turn1": 1.0,
    }
    # No entry for turn two, because all its targets are 0.
    assert explained_variance(result.values) == pytest.approx(expected)
    assert {key: result.metrics[key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", ["iac", "maac", "ippo", "maporl"])
def test_an_agent_that_learns_without_a_critic_is_refused(name):
    algorithm = ALGORITHMS[name].model_copy(update={"kl": None})
    episodes, nobody = [path([Turn((1.0, 2.0))])], Team(OWN.agents, decode={})
    with pytest.raises(ConfigError, match=facts("critic of a … team.critics {}")):
        assign_credit(episodes, Scores(), algorithm, CreditState(), nobody, 1)


@pytest.mark.parametrize("name", ["iac", "maac", "maporl"])
def test_missing_values_are_refused(name):
    algorithm = ALGORITHMS[name].model_copy(update={"kl": None})
    team = JOINT if name == "maac" else OWN
    with pytest.raises(ConfigError, match=facts("scores … none of a in episode e … score")):
        assign_credit([path([Turn((1.0, 2.0))])], Scores(), algorithm, CreditState(), team, 1)


def test_a_turn_behind_an_endpoint_has_no_value_of_its_own():
    """Its completion has no tokens, so a critic of tokens reads nothing of it."""
    said = Completion("p", "x", "stop", tokens=(3,), logprobs=(-1.0,))
    own = Round(
        1, {"a": "?"}, {"a": (1,)}, {"a": (said,)}, (Outcome({"a": 0}, {"a": 1.0}, end="done"),)
    )
    served = Completion("server", "x", "stop")
    root = Round(
        0, {"a": "?"}, {"a": (1,)}, {"a": (served,)}, (Outcome({"a": 0}, {"a": 1.0}, next=own),)
    )
    team = Team({"a": ("server", "p")}, {}, frozenset({"server"}), critics={"a": "critic"})
    value = ValueEstimate((1, 3), (0,), (0.5,), 0)
    table = Table.of([("e", root)], ["a"], 2)
    rule = resolve("maporl", {}).critic
    assert rule.scope == "token"
    scores = Scores(values={ValueId("e", (0,), "a", 0): value})
    assert first_values(table, rule, scores, team).tolist() == [0.0, 0.5]
