"""Tests `assign_credit`: returns, groups, weights, faults, and the results of each algorithm for
the same step."""

from dataclasses import replace

import pytest

from motet.algorithms import ALGORITHMS, check_plan, resolve
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Fault,
    Outcome,
    Round,
    SampleId,
    Scores,
    Task,
    Team,
)
from motet.credit.assign import assign_credit
from motet.errors import ConfigError
from motet.settings import Algorithm, Plan
from tests.fixtures.messages import facts

AGENTS = ("a", "b")
TEAM = Team(dict.fromkeys(AGENTS, ("p",)), decode={})
FAULT = Fault("sandbox", "died", "")


def completion(policy="p", logprobs=(-1.0,)):
    return Completion(policy, "x", "stop", tokens=tuple(range(len(logprobs))), logprobs=logprobs)


def outcome(pick, reward, *, next=None, end="done", fault=None, agents=AGENTS):
    picks = dict.fromkeys(agents, pick) if isinstance(pick, int) else pick
    if fault is not None:
        return Outcome(picks, {}, fault=fault)
    rewards = dict.fromkeys(AGENTS, reward) if not isinstance(reward, dict) else reward
    return Outcome(picks, rewards, next=next, end=None if next else end)


def round_(turn, outcomes, *, samples=None, agents=AGENTS):
    count = samples or len(outcomes)
    made = {agent: tuple(completion() for _ in range(count)) for agent in agents}
    return Round(
        turn, dict.fromkeys(agents, "?"), dict.fromkeys(agents, (1,)), made, tuple(outcomes)
    )


def episode(root, *, id="e", greedy=None, fault=None):
    return Episode(id, Task(id, {}), root, greedy, fault)


def credit(episodes, algorithm, *, scores=None, state=None, turns=1, team=TEAM):
    return assign_credit(
        episodes, scores or Scores(), algorithm, state or CreditState(), team, turns
    )


def advantages(result, agent="a"):
    return [sample.advantage for sample in result.samples if sample.id.agent == agent]


FLAT = episode(round_(0, [outcome(g, reward) for g, reward in enumerate((1.0, 3.0, 8.0))]))
GREEDY = episode(FLAT.root, greedy=round_(0, [outcome(0, 2.0)]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mareinforce", [1, 3, 8]),
        ("magrpo", [-3, -1, 4]),
        ("marloo", [-4.5, -1.5, 6]),
        ("maremax", [-7, -5, 0]),
        ("remax", [-1, 1, 6]),
    ],
)
def test_each_algorithm_by_hand(name, expected):
    assert advantages(credit([GREEDY], ALGORITHMS[name])) == expected


def test_without_credit_rewards_teach_nothing():
    scores = Scores(
        reference={SampleId("e", (), agent, g): (-3.0,) for agent in AGENTS for g in range(3)}
    )
    result = credit([FLAT], ALGORITHMS["distillation"], scores=scores)
    assert advantages(result) == [0, 0, 0]
    assert result.metrics["credit/return"] == 4.0
    assert {sample.reference_logprobs for sample in result.samples} == {(-3.0,)}


WIDE = episode(round_(0, [outcome(g, reward) for g, reward in enumerate((-20.0, 20.0))]), id="wide")
NARROW = episode(round_(0, [outcome(g, reward) for g, reward in enumerate((0.0, 2.0))]), id="n")


def test_the_scale_of_an_agent_is_that_of_all_its_groups():
    """The squared distances from the groups' means are 400, 400, 1 and 1, so σ² = 200.5."""
    sigma = 200.5**0.5
    given = advantages(credit([WIDE, NARROW], ALGORITHMS["dr_mas"]))
    assert given == pytest.approx([-20 / sigma, 20 / sigma, -1 / sigma, 1 / sigma])
    assert advantages(credit([WIDE, NARROW], ALGORITHMS["at_grpo"])) == [-1, 1, -1, 1]


def test_siblings_are_compared_by_the_reward_of_their_turn_alone():
    """At turn 1 the rewards 1 and 3, whatever follows; only the better one was continued."""
    later = round_(1, [outcome(0, 100.0), outcome(1, 104.0)])
    tree = episode(round_(0, [outcome(0, 1.0, end="pruned"), outcome(1, 3.0, next=later)]))
    result = credit([tree], ALGORITHMS["at_grpo"], turns=2)
    assert advantages(result) == [-1, 1, -1, 1]


def termed(*rows, id="e"):
    """Return an episode whose joint actions have terms and no rewards."""
    outcomes = [
        Outcome({"a": g, "b": g}, {"a": 0.0, "b": 0.0}, terms=terms, end="done")
        for g, terms in enumerate(rows)
    ]
    return episode(round_(0, outcomes), id=id)


def test_each_term_is_scaled_before_they_are_added():
    """right 0, 1 becomes −1, 1; words 100, 300 of a becomes −1, 1 and weighs −1/2; b's words are
    equal. In the other game only words of a differ. So the sums of a are −1/2, 1/2, −1/2 and 1/2,
    and σ = 1/2; those of b −1, 1, 0 and 0, and σ² = 1/2."""
    first = termed(
        {"right": 0.0, "words/a": 100.0, "words/b": 7.0},
        {"right": 1.0, "words/a": 300.0, "words/b": 7.0},
    )
    other = termed(
        {"right": 1.0, "words/a": 8.0, "words/b": 7.0},
        {"right": 1.0, "words/a": 2.0, "words/b": 7.0},
        id="other",
    )
    rule = {"credit": {"terms": {"right": 1.0, "words": -0.5}}}
    result = credit([first, other], resolve("gdpo", rule))
    assert advantages(result) == pytest.approx([-1, 1, -1, 1])
    root = 2**0.5
    assert advantages(result, "b") == pytest.approx([-root, root, 0, 0])
    assert result.metrics["credit/return"] == pytest.approx(
        (-50 + 1 - 150 + 1 - 4 + 1 - 1 + (-3.5 + 1 - 3.5 + 1 - 3.5 + 1 - 3.5)) / 8
    )


@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
def test_terms_of_a_joint_action_that_is_alone_teach_nothing(baseline):
    """The second episode has lost all joint actions but one. The first one's advantages are those
    that it has by itself."""
    whole = termed({"right": 0.0}, {"right": 1.0})
    lone = termed({"right": 0.9}, id="lone")
    rule = {"credit": {"terms": {"right": 1.0}, "baseline": baseline}}
    result = credit([whole, lone], resolve("gdpo", rule))
    assert advantages(result) == advantages(credit([whole], resolve("gdpo", rule)))
    assert result.metrics["credit/left_out"] == 2.0, "a's and b's"


def test_a_term_of_the_end_alone_is_0_before():
    later = [
        round_(1, [Outcome({"a": 0, "b": 0}, {}, terms={"right": right}, end="done")])
        for right in (0.0, 1.0)
    ]
    root = round_(0, [Outcome({"a": g, "b": g}, {}, next=one) for g, one in enumerate(later)])
    rule = {"credit": {"terms": {"right": 1.0}, "group_by": "task"}, "repeat_last_reward": False}
    assert advantages(credit([episode(root)], resolve("gdpo", rule), turns=2)) == [-1, 1, -1, 1]


def test_a_term_that_an_earlier_step_had_is_0_where_no_joint_action_has_it():
    rule = {"credit": {"terms": {"right": 1.0, "short": 1.0}}}
    before = credit([termed({"right": 1.0, "short": 0.0})], resolve("gdpo", rule)).state
    assert before.terms == ("right/a", "right/b", "short/a", "short/b")
    result = credit([termed({"right": 1.0}, {"right": 0.0})], resolve("gdpo", rule), state=before)
    assert advantages(result) == [1, -1]
    assert result.state.terms == before.terms


def test_completions_that_only_play_a_game_to_its_end_do_not_make_a_deviation_smaller():
    """b has 0, 2, 0 and 2 at turn 1 of the game that goes on, and σ = 1."""

    def of_b(*rewards):
        outcomes = [outcome(g, reward, agents="b") for g, reward in enumerate(rewards)]
        return round_(1, outcomes, agents="b")

    goes_on = outcome(0, 0.0, next=of_b(0.0, 2.0, 0.0, 2.0), agents="a")
    once = [
        replace(outcome(g, 0.0, next=of_b(reward), agents="a"), once=True)
        for g, reward in ((1, 0.0), (2, 2.0), (3, 1.0))
    ]
    rule = resolve("dr_mas", {"repeat_last_reward": False})
    root = round_(0, [goes_on, *once], agents="a")
    assert advantages(credit([episode(root)], rule, turns=2), "b") == [-1, 1, -1, 1]


def test_a_step_of_pairs_whose_games_all_failed_has_none():
    broken = episode(round_(0, [outcome(g, 0.0, fault=FAULT) for g in range(2)]))
    assert not credit([broken], resolve("madpo", {})).preferences.pairs


def test_terms_that_cannot_be_compared_are_refused():
    short = resolve("gdpo", {"credit": {"terms": {"short": 1}}})
    with pytest.raises(ConfigError, match=facts("names 'short' … for a; the terms are right")):
        credit([termed({"right": 1.0}, {"right": 0.0})], short)
    with pytest.raises(ConfigError, match=facts("gdpo … got none … credit.terms")):
        check_plan(ALGORITHMS["gdpo"], Plan(samples=(4,)), 2)
    with pytest.raises(ValueError, match="scale: std and baseline: group_mean or leave_one_out"):
        resolve("magrpo", {"credit": {"terms": {"right": 1}}})
    kl = {"kind": "reward", "coefficient": 0.1}
    with pytest.raises(ValueError, match=r"got credit\.terms, which take their place"):
        resolve("gdpo", {"credit": {"terms": {"right": 1}}, "kl": kl})


def test_a_role_is_compared_with_its_own_running_mean():
    """b earns the opposite of a. The means of earlier steps are 2 and −2."""
    game = episode(round_(0, [outcome(g, {"a": r, "b": -r}) for g, r in enumerate((1.0, 5.0))]))
    state = CreditState({"a/0": (4.0, 2.0), "b/0": (-4.0, 2.0)})
    result = credit([game], ALGORITHMS["rae"], state=state)
    assert (advantages(result), advantages(result, "b")) == ([-1, 3], [1, -3])
    assert result.state.averages["a/0"] == (pytest.approx(0.95 * 4 + 3), pytest.approx(2.9))


def test_coma_compares_an_agent_s_samples_while_the_others_stay_the_same():
    """Rewards of (a, b): 00 -> 0, 01 -> 1, 10 -> 2, 11 -> failed. So a's first sample is compared
    with its second one beside b's first: 0 − 2, and b's samples beside a's first: 0 − 1."""
    crossed = [
        outcome({"a": 0, "b": 0}, 0.0),
        outcome({"a": 0, "b": 1}, 1.0),
        outcome({"a": 1, "b": 0}, 2.0),
        outcome({"a": 1, "b": 1}, 0.0, fault=FAULT),
    ]
    result = credit([episode(round_(0, crossed, samples=2))], ALGORITHMS["coma"])
    assert (advantages(result), advantages(result, "b")) == ([-2, 2], [-1, 1])


def test_the_named_algorithms_give_different_advantages_under_their_defaults():
    names = ("mareinforce", "magrpo", "marloo", "maremax", "remax")
    assert len({tuple(advantages(credit([GREEDY], ALGORITHMS[name]))) for name in names}) == len(
        names
    )


def test_grpo_is_magrpo_with_one_agent_to_the_bit():
    alone = episode(
        round_(
            0, [outcome(g, r, agents=("a",)) for g, r in enumerate((0.1, 0.7, 0.35))], agents=("a",)
        )
    )
    grpo, magrpo = (credit([alone], ALGORITHMS[name]) for name in ("grpo", "magrpo"))
    assert grpo.samples == magrpo.samples


def test_a_tree_returns_reward_plus_mean_of_children_at_each_turn():
    children = [
        round_(1, [outcome(0, 1.0), outcome(1, 3.0)]),
        round_(1, [outcome(0, 5.0), outcome(1, 5.0)]),
    ]
    tree = episode(round_(0, [outcome(g, 1.0 + g, next=child) for g, child in enumerate(children)]))
    result = credit([tree], ALGORITHMS["mareinforce"], turns=2)
    by_id = {
        (sample.id.path, sample.id.index): sample.advantage
        for sample in result.samples
        if sample.id.agent == "a"
    }
    assert by_id == {((), 0): 3, ((), 1): 7, ((0,), 0): 1, ((0,), 1): 3, ((1,), 0): 5, ((1,), 1): 5}


def test_every_turn_weighs_one_under_any_plan():
    children = [round_(1, [outcome(0, 1.0), outcome(1, 3.0)]) for _ in range(2)]
    tree = episode(round_(0, [outcome(g, 0.0, next=child) for g, child in enumerate(children)]))
    result = credit([tree, FLAT], ALGORITHMS["mareinforce"], turns=2)
    weights = [(s.turn, s.share) for s in result.samples if s.id.agent == "a"]
    assert sum(weight for turn, weight in weights if turn == 0) == pytest.approx(1.0)
    # Only one of two tasks reached this turn.
    assert sum(weight for turn, weight in weights if turn == 1) == pytest.approx(0.5)


def test_a_branch_that_ended_passes_no_weight_on():
    child = round_(1, [outcome(0, 1.0), outcome(1, 3.0)])
    tree = episode(round_(0, [outcome(0, 0.0, next=child), outcome(1, 0.0, end="done")]))
    result = credit([tree], ALGORITHMS["mareinforce"], turns=2)
    assert [s.share for s in result.samples if s.id.agent == "a"] == [0.5, 0.5, 0.25, 0.25]


def test_those_chosen_to_go_on_carry_the_weight_of_the_pruned():
    child = round_(1, [outcome(0, 1.0), outcome(1, 3.0)])
    tree = episode(round_(0, [outcome(0, 0.0, next=child), outcome(1, 0.0, end="pruned")]))
    result = credit([tree], ALGORITHMS["mareinforce"], turns=2)
    assert [s.share for s in result.samples if s.id.agent == "a"] == [0.5, 0.5, 0.5, 0.5]


def test_a_turn_that_a_reward_ended_has_its_turn_weight_times_the_stopped_weight():
    """CoMLRL's early_termination_weight, with its published values: the last turn that was played
    weighs turn_weights[t] x 2."""
    algorithm = resolve("magrpo", {"turn_weights": (1.2, 0.8), "stopped_weight": 2.0})
    early = episode(round_(0, [outcome(0, 3.0, end="stopped"), outcome(1, 5.0, end="stopped")]))
    shares = [sample.share for sample in credit([early], algorithm, turns=2).samples]
    assert shares == pytest.approx([1 / 2 * 1.2 * 2.0] * 4)
    below = round_(1, [outcome(0, 3.0, end="stopped"), outcome(1, 5.0, end="stopped")])
    late = episode(round_(0, [outcome(0, 0.0, end="pruned"), outcome(1, 1.0, next=below)]))
    found = credit([late], algorithm.model_copy(update={"returns": "current"}), turns=2).samples
    assert [sample.share for sample in found if sample.turn == 0] == pytest.approx([0.6] * 4)
    assert [sample.share for sample in found if sample.turn == 1] == pytest.approx(
        [1 / 2 * 0.8 * 2.0] * 4
    )
    assert [sample.advantage for sample in found] == [-0.5, 0.5] * 2 + [-1.0, 1.0] * 2


def test_only_a_stop_at_a_reward_has_the_stopped_weight():
    algorithm = resolve("magrpo", {"stopped_weight": 2.0})
    ends = ("done", "limit", "stopped")
    root = round_(0, [outcome(g, float(g), end=end) for g, end in enumerate(ends)])
    shares = [sample.share for sample in credit([episode(root)], algorithm).samples]
    assert shares == pytest.approx([1 / 3, 1 / 3, 2 / 3] * 2)


def test_turn_weights_multiply_and_zero_leaves_a_turn_out():
    child = round_(1, [outcome(0, 1.0), outcome(1, 3.0)])
    tree = episode(round_(0, [outcome(0, 0.0, next=child), outcome(1, 0.0, next=child)]))
    result = credit(
        [tree], ALGORITHMS["magrpo"].model_copy(update={"turn_weights": (0.0, 1.5)}), turns=2
    )
    assert {sample.turn for sample in result.samples} == {1}
    assert sum(s.share for s in result.samples if s.id.agent == "a") == pytest.approx(1.5)


def test_a_sample_of_a_crossed_round_returns_the_mean_over_its_partners():
    table = {(0, 0): 1.0, (0, 1): 3.0, (1, 0): 5.0, (1, 1): 11.0}
    crossed = episode(
        round_(0, [outcome({"a": i, "b": j}, r) for (i, j), r in table.items()], samples=2)
    )
    result = credit([crossed], ALGORITHMS["mareinforce"])
    assert advantages(result, "a") == [2, 8]
    assert advantages(result, "b") == [3, 7]


def test_a_faulty_joint_action_leaves_its_group_and_its_siblings_stay():
    broken = episode(round_(0, [outcome(0, 1.0), outcome(1, 0.0, fault=FAULT), outcome(2, 3.0)]))
    result = credit([broken], ALGORITHMS["magrpo"])
    assert [(s.id.index, s.advantage, s.share) for s in result.samples if s.id.agent == "a"] == [
        (0, -1, 0.5),
        (2, 1, 0.5),
    ]


def test_a_failed_episode_weighs_nothing():
    failed = episode(None, id="f", fault=FAULT)
    assert (
        credit([FLAT, failed], ALGORITHMS["magrpo"]).samples
        == credit([FLAT], ALGORITHMS["magrpo"]).samples
    )
    assert credit([failed], ALGORITHMS["magrpo"]).samples == []


def test_a_group_of_one_is_left_out_and_counted():
    broken = episode(round_(0, [outcome(0, 1.0), outcome(1, 0.0, fault=FAULT)]))
    result = credit([broken], ALGORITHMS["magrpo"])
    assert result.samples == []
    assert result.metrics["credit/left_out"] == 2
    assert len(credit([broken], ALGORITHMS["mareinforce"]).samples) == 2


def test_one_left_alone_has_no_baseline_under_leave_one_out_unless_a_spread_is_wanted():
    broken = episode(round_(0, [outcome(0, 2.0), outcome(1, 0.0, fault=FAULT)]))
    assert advantages(credit([broken], ALGORITHMS["marloo"])) == [2.0]
    assert credit([broken], resolve("marloo", {"scale": "std"})).metrics["credit/left_out"] == 2


def test_paths_are_compared_across_the_task():
    paths = [round_(1, [outcome(0, reward)]) for reward in (1.0, 4.0, 7.0)]
    tree = episode(round_(0, [outcome(g, 0.0, next=child) for g, child in enumerate(paths)]))
    algorithm = resolve("magrpo", {"group_by": "task"})
    result = credit([tree], algorithm, turns=2)
    assert sorted(advantages(result)) == [-3, -3, 0, 0, 3, 3]
    assert credit([tree], ALGORITHMS["magrpo"], turns=2).metrics["credit/left_out"] == 6


def test_an_early_stop_absorbs_its_last_reward():
    child = round_(1, [outcome(0, 1.0), outcome(1, 1.0)])
    tree = episode(round_(0, [outcome(0, 0.5, next=child), outcome(1, 1.0, end="done")]))
    plain, absorbing = (
        resolve("mareinforce", {"repeat_last_reward": flag}) for flag in (False, True)
    )
    assert [
        s.advantage
        for s in credit([tree], plain, turns=2).samples
        if s.turn == 0 and s.id.agent == "a"
    ] == [
        1.5,
        1.0,
    ]
    assert [
        s.advantage
        for s in credit([tree], absorbing, turns=2).samples
        if s.turn == 0 and s.id.agent == "a"
    ] == [
        1.5,
        2.0,
    ]


def test_each_agent_learns_from_its_own_reward_unless_the_config_averages():
    own = episode(round_(0, [outcome(0, {"a": 1.0, "b": 3.0}), outcome(1, {"a": 5.0, "b": 5.0})]))
    assert advantages(credit([own], ALGORITHMS["mareinforce"])) == [1, 5]
    assert advantages(credit([own], ALGORITHMS["mareinforce"]), "b") == [3, 5]
    averaging = resolve("mareinforce", {"reward_sharing": "all"})
    assert advantages(credit([own], averaging)) == [2, 5]
    assert advantages(credit([own], averaging), "b") == [2, 5]


def test_a_zero_sum_reward_has_advantages_of_opposite_sign():
    won = episode(round_(0, [outcome(0, {"a": 1.0, "b": -1.0}), outcome(1, {"a": 0.0, "b": 0.0})]))
    assert advantages(credit([won], ALGORITHMS["magrpo"])) == [0.5, -0.5]
    assert advantages(credit([won], ALGORITHMS["magrpo"]), "b") == [-0.5, 0.5]


def test_one_critic_for_the_team_and_the_returns_of_a_debate_average_by_their_rows():
    averaging = [row.name for row in ALGORITHMS.values() if row.reward_sharing == "all"]
    assert averaging == ["maac", "mappo", "maporl"]


def test_the_divergence_in_the_reward_is_k1_of_the_own_completion():
    scores = Scores({SampleId("e", (), agent, g): (-1.5,) for agent in AGENTS for g in range(3)})
    algorithm = resolve("mareinforce", {"kl_in": "reward", "kl_coefficient": 0.1})
    assert advantages(credit([FLAT], algorithm, scores=scores)) == pytest.approx(
        [1 - 0.05, 3 - 0.05, 8 - 0.05]
    )


def test_a_frozen_partner_needs_no_reference_and_is_not_trained():
    samples = {"a": (completion("p"),) * 2, "b": (completion("cold"),) * 2}
    root = Round(
        0,
        dict.fromkeys(AGENTS, "?"),
        dict.fromkeys(AGENTS, (1,)),
        samples,
        (outcome(0, 1.0), outcome(1, 3.0)),
    )
    team = Team({"a": ("p",), "b": ("cold",)}, decode={}, frozen=frozenset({"cold"}))
    scores = Scores({SampleId("e", (), "a", g): (-1.5,) for g in range(2)})
    algorithm = resolve("mareinforce", {"kl_in": "reward", "kl_coefficient": 0.1})
    result = credit([episode(root)], algorithm, scores=scores, team=team)
    assert [(s.policy, s.advantage) for s in result.samples] == [("p", 1 - 0.05), ("p", 3 - 0.05)]


@pytest.mark.parametrize("returns", ["last", "current", "discounted_sum"])
def test_under_path_returns_each_sample_answers_for_its_own_divergence(returns):
    paths = [round_(1, [outcome(0, 1.0)]) for _ in range(2)]
    tree = episode(round_(0, [outcome(g, 1.0, next=child) for g, child in enumerate(paths)]))
    near = {
        SampleId("e", path, agent, g): (-1.0,)
        for agent in AGENTS
        for path, g in (((), 0), ((), 1), ((0,), 0), ((1,), 0))
    }
    # Only a's first completion differs from its reference: by 8 nats.
    far = {
        **near,
        SampleId("e", (), "a", 0): (-9.0,),
    }
    algorithm = resolve(
        "mareinforce", {"kl_in": "reward", "kl_coefficient": 0.1, "returns": returns}
    )
    before, after = (
        {
            s.id: s.advantage
            for s in credit([tree], algorithm, scores=Scores(known), turns=2).samples
        }
        for known in (near, far)
    )
    changed = {id: after[id] - before[id] for id in after if after[id] != before[id]}
    assert changed == {SampleId("e", (), "a", 0): pytest.approx(-0.8)}


def test_the_moving_average_remembers_steps_through_the_state():
    algorithm = resolve("mareinforce", {"baseline": "moving_average", "average_decay": 0.5})
    first = credit([FLAT], algorithm)
    assert advantages(first) == [1, 3, 8]
    second = credit([FLAT], algorithm, state=first.state)
    assert advantages(second) == [-3, -1, 4]
    later = episode(round_(0, [outcome(0, 1.0), outcome(1, 1.0)]))
    third = credit([later], algorithm, state=credit([later], algorithm, state=first.state).state)
    # decayed: (0.5·(0.5·0 + 4) + 1) / (0.5·1 + 1)
    assert advantages(third) == pytest.approx([1 - (2 + 1) / 1.5] * 2)


def test_remax_reads_the_greedy_tail_of_the_same_turn():
    greedy = round_(0, [outcome(0, 1.0, next=round_(1, [outcome(0, 4.0)]))])
    paths = [round_(1, [outcome(0, reward)]) for reward in (1.0, 7.0)]
    tree = episode(
        round_(0, [outcome(g, 0.0, next=child) for g, child in enumerate(paths)]), greedy=greedy
    )
    by_turn = {}
    for sample in credit([tree], ALGORITHMS["remax"], turns=2).samples:
        if sample.id.agent == "a":
            by_turn.setdefault(sample.turn, []).append(sample.advantage)
    assert by_turn == {0: [1 - 5, 7 - 5], 1: [1 - 4, 7 - 4]}


def test_a_baseline_that_this_process_has_not_loaded_is_refused():
    algorithm = Algorithm(credit={"baseline": "./mine.py:median"})
    with pytest.raises(
        ConfigError, match=facts("credit.baseline ./mine.py:median … not in this process")
    ):
        credit([FLAT], algorithm)


def test_remax_without_any_greedy_path_is_refused():
    with pytest.raises(ConfigError, match=r"got 2 episodes without one: .*greedy_path=True"):
        credit([FLAT, episode(FLAT.root, id="f")], ALGORITHMS["remax"])


@pytest.mark.parametrize(
    "algorithm",
    [
        resolve("magrpo", {"kl": {"kind": "reward", "coefficient": 0.1}}),
        resolve("magrpo", {"kl": {"kind": "loss", "coefficient": 0.1}}),
        resolve("madpo", {"credit": {"reference": True}}),
    ],
)
def test_missing_reference_log_probabilities_are_refused(algorithm):
    with pytest.raises(ConfigError, match=facts("scores … none of a in episode e … score")):
        credit([FLAT], algorithm)


def test_remax_leaves_out_a_task_whose_greedy_path_failed():
    result = credit([FLAT, episode(FLAT.root, id="g", greedy=GREEDY.greedy)], ALGORITHMS["remax"])
    assert {sample.id.episode for sample in result.samples} == {"g"}


def test_debate_returns_on_a_tree_are_means_over_the_paths_below():
    children = [
        round_(1, [outcome(0, 1.0), outcome(1, 3.0)]),
        round_(1, [outcome(0, 5.0), outcome(1, 7.0)]),
    ]
    tree = episode(round_(0, [outcome(g, 0.0, next=child) for g, child in enumerate(children)]))
    result = credit([tree], resolve("mareinforce", {"returns": "last"}), turns=2)
    assert sorted(advantages(result)) == [1, 2, 3, 5, 6, 7]


def test_last_gives_every_turn_the_final_score():
    paths = [round_(1, [outcome(0, reward)]) for reward in (1.0, 7.0)]
    tree = episode(round_(0, [outcome(g, 9.0, next=child) for g, child in enumerate(paths)]))
    result = credit([tree], resolve("mareinforce", {"returns": "last"}), turns=2)
    assert sorted(advantages(result)) == [1, 1, 7, 7]


def test_an_api_partner_is_never_trained():
    silent = Round(0, {"a": "?"}, {"a": (1,)}, {"a": (Completion("api", "x", "stop"),) * 2},
                   (outcome({"a": 0}, 1.0), outcome({"a": 1}, 2.0)))  # fmt: skip
    assert credit([episode(silent)], ALGORITHMS["mareinforce"]).samples == []


@pytest.mark.parametrize("samples", [(1,), (4, 1), (1, 4)])
def test_a_group_baseline_refuses_one_sample_per_group(samples):
    with pytest.raises(ConfigError, match=r"at least 2 samples at every turn"):
        check_plan(ALGORITHMS["magrpo"], Plan(samples=samples), 2)


@pytest.mark.parametrize(
    ("overrides", "plan", "message"),
    [
        (
            {"baseline": "moving_average", "scale": "std"},
            {"samples": (4, 1)},
            "scale std … one Round",
        ),
        ({"group_by": "task"}, {"samples": (4, 1), "expand": "best"}, "one path"),
        (
            {"baseline": "none", "returns": "last"},
            {"samples": (4, 1), "expand": "random"},
            "returns last … next Round … every joint action",
        ),
        (
            {"baseline": "none", "incentives": {"beta0": 1.0}},
            {"samples": (4, 1), "expand": "random"},
            "incentives … next Round … every joint action",
        ),
    ],
)
def test_what_would_silently_learn_something_else_is_refused(overrides, plan, message):
    with pytest.raises(ConfigError, match=facts(message)):
        check_plan(resolve("magrpo", overrides), Plan(**plan), 2)


def test_paths_pass_with_compare_task_and_without_a_baseline():
    check_plan(resolve("magrpo", {"group_by": "task"}), Plan(samples=(4, 1)), 2)
    check_plan(ALGORITHMS["mareinforce"], Plan(samples=(1, 1)), 2)
    with pytest.raises(ConfigError, match="greedy_path needs 1 sample after turn 1"):
        check_plan(ALGORITHMS["remax"], Plan(samples=(2, 2)), 2)
    with pytest.raises(ConfigError, match="trains one agent"):
        check_plan(ALGORITHMS["grpo"], Plan(samples=(4,)), 2)


def test_what_came_next_may_be_read_where_nothing_was_left_behind_and_where_nothing_is_read():
    for overrides, samples in (
        ({"returns": "last"}, (1, 4)),
        ({"incentives": {"beta0": 1.0}}, (1, 1)),
        ({"returns": "current"}, (4, 1)),
    ):
        check_plan(resolve("mareinforce", overrides), Plan(samples=samples, expand="random"), 2)


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'magrpo'"):
        resolve("magrp", {})
    with pytest.raises(ConfigError, match=r"did you mean 'leave_one_out'"):
        resolve("magrpo", {"baseline": "leave_1_out"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scale": "std"}, "needs a baseline"),
        ({"epochs": 2}, "one optimizer step"),
        (
            {"clip_high": 0.3},
            "0.3 … kind: policy_gradient … no clip_high … kind: clipped_surrogate",
        ),
        ({"whiten": True}, "true … kind: group … no whiten … kind: critic"),
        ({"gae_lambda": 0.5}, "0.5 … kind: group … no gae_lambda"),
        ({"scope": "token"}, '"token" … kind: group … no scope'),
        ({"critic_view": "joint", "scope": "token"}, "scope token … critic per agent"),
        (
            {"critic_view": "joint", "reward_sharing": "own"},
            "credit.view joint … shared reward",
        ),
        (
            {"critic_view": "own", "returns": "last", "gae_lambda": 0.5},
            "gae_lambda 0.5 … no effect … turns",
        ),
        ({"kl_target": 1.0}, "no kind … kind: reward … loss"),
        ({"stop_at_kl": 1.0}, "several updates"),
        ({"kl_coefficient": 0.1}, "no kind … kind: reward … loss"),
        ({"kl_in": "loss"}, "coefficient … required"),
        (
            {"critic_view": "own", "baseline": "group_mean"},
            "kind: critic … no baseline … kind: group",
        ),
    ],
)
def test_nonsense_is_refused_with_both_values(fields, message):
    with pytest.raises(ValueError, match=facts(message)):
        Algorithm(**fields)
