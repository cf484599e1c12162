import asyncio
import gc
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codejudge import SandboxFault
from motet.core import (
    Environment,
    Episode,
    Fault,
    Message,
    Outcome,
    Round,
    Task,
    Team,
    Transition,
    walk,
)
from motet.core.seeding import derive
from motet.errors import ConfigError, EnvironmentFault, RewardFault
from motet.rollout.play import check_plan, end_of, joint_actions, play, stopped_together
from motet.rollout.reference import play_reference
from motet.rollout.waves import Waves
from motet.settings import Plan
from motet.user_code import retries
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Replies, Talk, team_of
from tests.fixtures.messages import facts, says

TASK = Task("t", {})
Said = tuple[Replies, ...]


def _play(
    environment: Talk,
    plan: Plan,
    sampler: KeySampler | None = None,
    team: Team = PAIR,
    **options: Any,
) -> Episode:
    async def main() -> Episode:
        waves = Waves(sampler or KeySampler())
        (episode,) = await waves.run(
            [play(TASK, "e", environment, team, plan, waves, 7, **options)]
        )
        return episode

    return asyncio.run(asyncio.wait_for(main(), 10.0))


def _root(episode: Episode) -> Round:
    assert episode.root is not None
    return episode.root


def _per_turn(root: Round) -> list[int]:
    turns = [len(path) for path, _ in walk(root)]
    return [turns.count(turn) for turn in range(max(turns) + 1)]


def _ann(said: Said) -> int:
    """Return the last number of ann: a reward that differs between joint actions."""
    return int(said[-1][0][1])


def _broken(
    where: str, when: Callable[[Said], bool], error: Exception
) -> Callable[[str, Said], None]:
    def check(place: str, said: Said) -> None:
        if place == where and when(said):
            raise error

    return check


# ------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("samples", "pairing", "rounds", "outcomes"),
    [
        ((3,), "aligned", [1], 3),
        ((3,), "crossed", [1], 9),
        ((3, 3), "aligned", [1, 3], 3 + 9),
        ((4, 1), "aligned", [1, 4], 4 + 4),
        ((4, 2, 1), "aligned", [1, 4, 8], 4 + 8 + 8),
        ((2, 2), "crossed", [1, 4], 4 + 16),
    ],
)
def test_a_plan_makes_as_many_rounds_as_it_says(
    samples: Any, pairing: Any, rounds: list[int], outcomes: int
) -> None:
    plan = Plan(samples=samples, pairing=pairing)
    root = _root(_play(Talk(), plan))
    assert _per_turn(root) == rounds == list(plan.rounds(2))
    assert sum(len(round_.outcomes) for _, round_ in walk(root)) == outcomes
    assert all(len(round_.samples["ann"]) == samples[round_.turn] for _, round_ in walk(root))


def test_a_path_says_where_a_round_hangs_and_its_prompt_what_came_before() -> None:
    root = _root(_play(Talk(), Plan(samples=(2, 2))))
    for path, round_ in walk(root):
        assert round_.turn == len(path)
        if path:
            taken = root.outcomes[path[0]]
            said = tuple(
                (agent, root.samples[agent][taken.picks[agent]].text) for agent in ("ann", "bob")
            )
            assert round_.prompts["ann"] == (Message("user", f"ann after {(said,)}"),)


def test_outcomes_end_done_stopped_or_at_the_limit() -> None:
    done = _play(Talk(ends=lambda said: _ann(said) % 2 == 0), Plan(samples=(8, 1)))
    assert {outcome.end for outcome in _root(done).outcomes} == {"done", None}
    stopped = _root(_play(Talk(pay=_ann), Plan(samples=(8, 1), stop_at_reward=500.0)))
    for outcome in stopped.outcomes:
        assert (
            (outcome.end == "stopped")
            == (outcome.rewards["ann"] >= 500.0)
            == (outcome.next is None)
        )
    assert {
        outcome.end
        for _, round_ in walk(stopped)
        if round_.turn == 1
        for outcome in round_.outcomes
    } <= {
        "limit",
        "stopped",
    }


@pytest.mark.parametrize("margin", [0.0, 0.25])
def test_a_round_stops_when_its_mean_reward_reaches_the_threshold(margin: float) -> None:
    rewards = [
        outcome.rewards["ann"]
        for outcome in _root(_play(Talk(pay=_ann), Plan(samples=(4, 1)))).outcomes
    ]
    assert len(set(rewards)) > 1
    plan = Plan(
        samples=(4, 1), stop_by="round", stop_at_reward=sum(rewards) / 4 + margin, expand="best"
    )
    root = _root(_play(Talk(pay=_ann), plan))
    if margin == 0.0:
        assert {outcome.end for outcome in root.outcomes} == {"stopped"}
        assert _per_turn(root) == [1]
    else:  # single rewards above the threshold stop nothing
        assert max(rewards) > plan.stop_at_reward  # type: ignore[operator]
        assert {outcome.end for outcome in root.outcomes} == {None, "pruned"}
        assert _per_turn(root) == [1, 1]


def test_stop_by_round_needs_a_reward_to_stop_at() -> None:
    with pytest.raises(ValueError, match=facts("stop_by round … reward")):
        Plan(stop_by="round")


def test_no_stop_rule_is_on_by_default() -> None:
    assert Plan().stop_at_reward is None
    root = _root(_play(Talk(pay=lambda said: 1e9), Plan(samples=(2, 2, 2))))
    assert _per_turn(root) == [1, 2, 4]


def test_rewards_are_for_all_agents_also_where_one_acts() -> None:
    talk = Talk(acting=lambda turn: ("ann",) if turn == 0 else ("bob",), pay=lambda said: len(said))
    root = _root(_play(talk, Plan(samples=(3, 2), pairing="crossed")))
    assert _per_turn(root) == [1, 3]  # one acting agent: J = G, not G²
    for path, round_ in walk(root):
        assert list(round_.prompts) == (["bob"] if path else ["ann"])
        assert all(
            outcome.rewards == {"ann": len(path) + 1.0, "bob": len(path) + 1.0}
            for outcome in round_.outcomes
        )


# ---------------------------------------------------------------------------------------- expanding


def test_best_goes_on_with_the_highest_reward_and_prunes_the_others() -> None:
    root = _root(_play(Talk(pay=_ann), Plan(samples=(6, 2), expand="best")))
    rewards = [outcome.rewards["ann"] for outcome in root.outcomes]
    chosen = rewards.index(max(rewards))
    assert [outcome.next is not None for outcome in root.outcomes] == [
        j == chosen for j in range(6)
    ]
    assert [outcome.end for outcome in root.outcomes] == [
        None if j == chosen else "pruned" for j in range(6)
    ]


def test_best_takes_the_lowest_index_of_equals_and_never_one_that_ended() -> None:
    assert _root(_play(Talk(), Plan(samples=(4, 1), expand="best"))).outcomes[0].next is not None
    ended = Talk(pay=_ann, ends=lambda said: len(said) == 1 and _ann(said) >= 500)
    outcomes = _root(_play(ended, Plan(samples=(16, 1), expand="best"))).outcomes
    rewards = [outcome.rewards["ann"] for outcome in outcomes]
    best_open = max(reward for reward in rewards if reward < 500)
    assert [outcome.end == "done" for outcome in outcomes] == [reward >= 500 for reward in rewards]
    assert [outcome.next is not None for outcome in outcomes] == [
        reward == best_open for reward in rewards
    ]


def test_random_chooses_one_by_seed_alone() -> None:
    plan = Plan(samples=(8, 1), expand="random")
    first, again = (
        _root(_play(Talk(pay=_ann, clock=random.Random(seed)), plan)) for seed in range(2)
    )
    assert first == again
    assert sum(outcome.next is not None for outcome in first.outcomes) == 1
    assert sum(outcome.end == "pruned" for outcome in first.outcomes) == 7


def test_a_replay_goes_on_with_one_and_plays_the_others_once() -> None:
    plan = Plan(samples=(3, 3, 2), expand="replay")
    root = _root(_play(Talk(pay=_ann), plan))
    assert _per_turn(root) == [1, 3, 5] == list(plan.rounds(2))
    whole: Round | None = root
    for turn, count in enumerate(plan.samples):
        assert whole is not None
        assert {len(drawn) for drawn in whole.samples.values()} == {count}
        if turn < 2:
            assert sum(outcome.once for outcome in whole.outcomes) == count - 1
            assert all(outcome.end is None for outcome in whole.outcomes)
        for outcome in whole.outcomes:
            below = [round_ for _, round_ in walk(outcome.next)] if outcome.next else []
            if outcome.once:
                assert [len(round_.outcomes) for round_ in below] == [1] * (2 - turn)
                assert not any(one.once for round_ in below for one in round_.outcomes)
        (whole,) = [one.next for one in whole.outcomes if not one.once][:1] or (None,)
    crossed = Plan(samples=(2, 2), expand="replay", pairing="crossed")
    assert _per_turn(_root(_play(Talk(), crossed))) == [1, 4] == list(crossed.rounds(2))


def test_what_a_replay_goes_on_with_depends_on_the_seed_alone() -> None:
    plan = Plan(samples=(4, 2), expand="replay")
    roots = [_root(_play(Talk(pay=pay), plan)) for pay in (_ann, lambda said: -_ann(said))]
    chosen = [[outcome.once for outcome in root.outcomes] for root in roots]
    assert chosen[0] == chosen[1]
    assert chosen[0].count(False) == 1


# ----------------------------------------------------------------------------------- without agents


def _without(root: Round) -> list[tuple[dict[str, int], float]]:
    return [(dict(outcome.picks), outcome.rewards["ann"]) for outcome in root.without]


def _told(said: Said) -> float:
    """Return 10 for a text of ann, and 1 for one of bob."""
    (_, ann), (_, bob) = said[-1]
    return 10.0 * bool(ann) + 1.0 * bool(bob)


def test_each_agent_is_left_out_of_each_joint_action_once() -> None:
    root = _root(_play(Talk(pay=_told), Plan(samples=(2,)), absent="one"))
    assert [outcome.rewards["ann"] for outcome in root.outcomes] == [11.0, 11.0]
    assert _without(root) == [
        ({"bob": 0}, 1.0), ({"ann": 0}, 10.0), ({"bob": 1}, 1.0), ({"ann": 1}, 10.0)
    ]  # fmt: skip
    assert _root(_play(Talk(pay=_told), Plan(samples=(2,)))).without == ()


def test_crossed_joint_actions_share_those_without_an_agent() -> None:
    plan = Plan(samples=(2,), pairing="crossed")
    root = _root(_play(Talk(pay=_told), plan, absent="one"))
    assert sorted(map(str, _without(root))) == sorted(
        map(str, [({"bob": 0}, 1.0), ({"bob": 1}, 1.0), ({"ann": 0}, 10.0), ({"ann": 1}, 10.0)])
    )
    root = _root(_play(Talk(pay=_told), plan, absent="all"))
    assert len(root.without) == 5
    assert ({}, 0.0) in _without(root)


def test_a_default_is_what_the_environment_names_and_else_nothing() -> None:
    talk = Talk()
    talk.defaults = {"ann": "I pass"}
    said: list[Said] = []
    talk.break_at = lambda place, state: said.append(state) if place == "step" else None
    _play(talk, Plan(samples=(1,)), absent="all")
    texts = [tuple(text for _, text in state[-1]) for state in said]
    assert ("I pass", "") in texts
    assert sum(ann == "I pass" for ann, _ in texts) == 2
    assert sum(bob == "" for _, bob in texts) == 2


def test_a_game_that_goes_on_without_an_agent_is_played_once() -> None:
    plan = Plan(samples=(2, 2, 2))
    root = _root(_play(Talk(), plan, absent="one"))
    assert _per_turn(root) == [1, 2, 4]
    for path, round_ in walk(root):
        assert len(round_.without) == 4
        for outcome in round_.without:
            below = [found for _, found in walk(outcome.next)] if outcome.next else []
            assert [len(found.outcomes) for found in below] == [1] * (2 - len(path))
            assert not any(found.without for found in below)


def test_an_agent_that_does_not_learn_is_not_left_out() -> None:
    team = replace(PAIR, frozen=frozenset({PAIR.policy_of("ann", 0)}))
    root = _root(_play(Talk(), Plan(samples=(1,)), absent="one", team=team))
    assert [dict(outcome.picks) for outcome in root.without] == [{"ann": 0}]


def test_steps_with_and_without_an_agent_have_the_same_luck() -> None:
    talk = Talk()
    _play(talk, Plan(samples=(2,)), absent="one")
    assert sorted(talk.seeds.count(seed) for seed in set(talk.seeds)) == [3, 3]


def test_a_joint_action_without_an_agent_that_breaks_stays_a_fault_of_its_own() -> None:
    broken = _broken("step", lambda said: said[-1][0][1] == "", EnvironmentFault("mute"))
    root = _root(_play(Talk(break_at=broken), Plan(samples=(2,)), absent="one"))
    assert [outcome.fault is None for outcome in root.outcomes] == [True, True]
    assert [outcome.fault is None for outcome in root.without] == [False, True, False, True]


def test_a_round_that_stops_together_stops_those_without_agents() -> None:
    plan = Plan(samples=(2, 2), stop_at_reward=11.0, stop_by="round")
    root = _root(_play(Talk(pay=_told), plan, absent="one"))
    assert {outcome.end for outcome in (*root.outcomes, *root.without)} == {"stopped"}
    root = _root(
        _play(Talk(pay=_told), plan.model_copy(update={"stop_by": "branch"}), absent="one")
    )
    assert {outcome.end for outcome in root.outcomes} == {"stopped"}
    assert all(outcome.next is not None for outcome in root.without)


def test_a_game_with_live_state_starts_anew_without_each_agent() -> None:
    talk = Talk(branches=False)
    root = _root(_play(talk, Plan(samples=(2,)), absent="one"))
    assert len(talk.closed) == 2 + len(root.without) == 6


# ----------------------------------------------------------------------------------------- choosing


def test_where_the_chosen_one_breaks_below_the_next_in_line_goes_on() -> None:
    root = _root(_play(Talk(pay=_ann), Plan(samples=(6, 1), expand="best")))
    order = sorted(range(6), key=lambda j: -root.outcomes[j].rewards["ann"])
    best = root.outcomes[order[0]].rewards["ann"]
    broken = _broken(
        "observe", lambda said: bool(said) and _ann(said) == best, SandboxFault("down")
    )
    again = _root(_play(Talk(pay=_ann, break_at=broken), Plan(samples=(6, 1), expand="best")))
    assert again.outcomes[order[0]].fault == Fault("sandbox", "SandboxFault", "down")
    assert again.outcomes[order[1]].next is not None
    assert sum(outcome.end == "pruned" for outcome in again.outcomes) == 4


# -------------------------------------------------------------------------------------------- seeds


def test_requests_have_stable_ids_policies_and_keys() -> None:
    sampler = KeySampler()
    _play(Talk(), Plan(samples=(2, 1)), sampler)
    assert sampler.waves == [
        [("e", (), 0, "ann"), ("e", (), 0, "bob")],
        [
            ("e", (0,), 1, "ann"),
            ("e", (0,), 1, "bob"),
            ("e", (1,), 1, "ann"),
            ("e", (1,), 1, "bob"),
        ],
    ]
    assert [request.policy for request in sampler.requests[:2]] == ["ann-policy", "bob-policy"]
    assert sampler.requests[1].keys == (derive(7, "e", "bob", (), 0), derive(7, "e", "bob", (), 1))
    assert sampler.requests[4].keys == (derive(7, "e", "ann", (1,), 0),)


def test_every_joint_action_steps_with_its_own_seed() -> None:
    talk = Talk()
    _play(talk, Plan(samples=(2, 1)))
    places = [((), 0), ((), 1), ((0,), 0), ((1,), 0)]
    assert sorted(talk.seeds) == sorted(derive(7, "e", path, j, "step") for path, j in places)


def test_an_episode_does_not_depend_on_how_long_steps_take() -> None:
    plan = Plan(samples=(3, 2, 1), pairing="crossed")
    waves, episodes = [], []
    for seed in range(5):
        sampler = KeySampler()
        episodes.append(_play(Talk(pay=_ann, clock=random.Random(seed)), plan, sampler))
        waves.append(sampler.waves)
    assert all(episode == episodes[0] for episode in episodes)
    assert all(wave == waves[0] for wave in waves)
    assert len(waves[0]) == 3


def test_the_system_text_of_an_agent_leads_its_prompt() -> None:
    async def main() -> Episode:
        waves = Waves(KeySampler())
        team = team_of(("ann", "bob"), {"bob": "Be brief."})
        return (await waves.run([play(TASK, "e", Talk(), team, Plan(samples=(1,)), waves, 7)]))[0]

    prompts = _root(asyncio.run(main())).prompts
    assert prompts == {
        "ann": (Message("user", "ann after ()"),),
        "bob": (Message("system", "Be brief."), Message("user", "bob after ()")),
    }


def test_a_greedy_path_is_played_beside_the_tree_in_the_same_waves() -> None:
    sampler = KeySampler()
    episode = _play(Talk(), Plan(samples=(3, 3)), sampler, greedy_path=True)
    assert episode.greedy is not None
    assert _per_turn(episode.greedy) == [1, 1]
    assert [c.text for _, round_ in walk(episode.greedy) for (c,) in round_.samples.values()] == [
        "999"
    ] * 4
    assert episode.root == _play(Talk(), Plan(samples=(3, 3))).root
    assert len(sampler.waves) == 2
    assert ("e", (), 0, "ann", "greedy") in sampler.waves[0]


def test_greedy_makes_every_request_greedy() -> None:
    sampler = KeySampler()
    _play(Talk(), Plan(samples=(1, 1)), sampler, greedy=True)
    assert len(sampler.requests) == 4
    assert all(request.greedy for request in sampler.requests)


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (EnvironmentFault("x"), "environment"),
        (RewardFault("x"), "reward"),
        (SandboxFault("x"), "sandbox"),
        (ValueError("x"), "environment"),
    ],
)
def test_a_broken_step_is_a_fault_and_its_siblings_stay(error: Exception, where: Any) -> None:
    sound = _root(_play(Talk(pay=_ann), Plan(samples=(4, 1))))
    victim = sound.outcomes[2].rewards["ann"]
    talk = Talk(
        pay=_ann,
        break_at=_broken("step", lambda said: len(said) == 1 and _ann(said) == victim, error),
    )
    root = _root(_play(talk, Plan(samples=(4, 1))))
    broken = root.outcomes[2]
    assert broken.fault == Fault(where, type(error).__name__, "x")
    assert (broken.rewards, broken.terms, broken.next, broken.end) == ({}, {}, None, None)
    assert [root.outcomes[j] for j in (0, 1, 3)] == [sound.outcomes[j] for j in (0, 1, 3)]


def _once(where: str, error: Exception) -> Callable[[str, Said], None]:
    """Fails only the first time."""
    left = [error]

    def check(place: str, said: Said) -> None:
        if place == where and left:
            raise left.pop()

    return check


@pytest.mark.parametrize("where", ["start", "step"])
def test_what_passes_leaves_the_episode_as_if_nothing_had_been(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_FIRST_WAIT_SECONDS", 0.0)
    sound, plan = Talk(pay=_ann), Plan(samples=(3, 2))
    talk = Talk(pay=_ann, break_at=_once(where, ConnectionError("gone")))
    assert _play(talk, plan) == _play(sound, plan)
    assert sorted(talk.seeds) == sorted(sound.seeds)
    lost = _play(
        Talk(break_at=_once(where, ConnectionError("gone"))), plan.model_copy(update={"retries": 0})
    )
    found = (
        lost.fault
        if where == "start"
        else next(one.fault for one in _root(lost).outcomes if one.fault)
    )
    assert found == Fault("environment", "ConnectionError", "gone")


def test_who_does_not_branch_is_not_asked_to_step_again() -> None:
    talk = Talk(branches=False, break_at=_once("step", ConnectionError("gone")))
    assert _play(talk, Plan(samples=(1, 1))).fault == Fault(
        "environment", "ConnectionError", "gone"
    )


@pytest.mark.parametrize("where", ["observe", "step"])
def test_what_breaks_a_whole_round_is_the_fault_of_the_outcome_above(where: str) -> None:
    sound = _root(_play(Talk(pay=_ann), Plan(samples=(3, 2))))
    first = sound.samples["ann"][1].text

    def below_the_second(said: Said) -> bool:
        return len(said) == (1 if where == "observe" else 2) and said[0][0][1] == first

    talk = Talk(pay=_ann, break_at=_broken(where, below_the_second, SandboxFault("down")))
    root = _root(_play(talk, Plan(samples=(3, 2))))
    assert root.outcomes[1].fault == Fault("sandbox", "SandboxFault", "down")
    assert (root.outcomes[1].rewards, root.outcomes[1].next) == ({}, None)
    assert [root.outcomes[j] for j in (0, 2)] == [sound.outcomes[j] for j in (0, 2)]


def test_a_prompt_that_cannot_be_sampled_is_the_fault_of_the_outcome_above() -> None:
    sampler = KeySampler(refuse=lambda request: request.id == ("e", (1,), 1, "bob"))
    root = _root(_play(Talk(), Plan(samples=(3, 1)), sampler))
    assert root.outcomes[1].fault == Fault("sampler", "long_prompt", "no room")
    assert root.outcomes[1].rewards == {}
    assert [root.outcomes[j].next is not None for j in range(3)] == [True, False, True]


@pytest.mark.parametrize("where", ["start", "observe", "step", "close"])
def test_what_breaks_at_the_root_is_the_fault_of_the_episode(where: str) -> None:
    talk = Talk(break_at=_broken(where, lambda said: len(said) <= 1, OSError("gone")))
    episode = _play(talk, Plan(samples=(3, 1)))
    assert episode.root is None
    assert episode.fault == Fault("environment", "OSError", "gone")
    assert talk.closed == ([] if where == "start" else [()])


def test_a_first_prompt_without_room_is_the_fault_of_the_episode() -> None:
    episode = _play(Talk(), Plan(samples=(2,)), KeySampler(refuse=lambda request: True))
    assert episode.fault == Fault("sampler", "long_prompt", "no room")


def test_a_greedy_path_that_breaks_is_the_fault_of_the_episode() -> None:
    sampler = KeySampler(refuse=lambda request: request.greedy)
    episode = _play(Talk(), Plan(samples=(2,)), sampler, greedy_path=True)
    assert (episode.root, episode.greedy) == (None, None)
    assert episode.fault == Fault("sampler", "long_prompt", "no room")


@pytest.mark.parametrize(
    ("agents", "pay", "said"),
    [
        (("ann",), 0.0, "rewards for ann … every agent … ann, bob"),
        (
            ("ann", "bob", "eve"),
            0.0,
            "rewards for ann, bob, eve … every agent … ann, bob",
        ),
        (
            ("ann", "bob"),
            float("nan"),
            "nan … reward of ann … a finite number … raise motet.RewardFault",
        ),
    ],
)
def test_rewards_are_one_finite_number_per_agent(
    agents: Sequence[str], pay: float, said: str
) -> None:
    episode = _play(Talk(agents=agents, pay=lambda _: pay), Plan(samples=(1,)))
    fault = episode.fault
    assert fault is not None
    assert (fault.where, fault.cause) == ("environment", "EnvironmentFault")
    assert says(fault.message, said)


@pytest.mark.parametrize("acting", [(), ("ann", "eve")])
def test_observed_agents_are_of_the_team(acting: Sequence[str]) -> None:
    fault = _play(Talk(acting=lambda turn: acting), Plan(samples=(1,))).fault
    assert fault is not None
    assert says(fault.message, "one or more … ann, bob")


@pytest.mark.parametrize("where", ["start", "observe", "step"])
def test_a_config_error_stops_the_run_and_closes_the_environment(where: str) -> None:
    talk = Talk(break_at=_broken(where, lambda said: True, ConfigError("no such expert")))
    with pytest.raises(ConfigError, match="no such expert"):
        _play(talk, Plan(samples=(3, 1)))
    assert talk.closed == ([] if where == "start" else [()])


# -------------------------------------------------------------------------------- checking the plan


def test_too_many_rounds_are_refused_with_the_numbers() -> None:
    check_plan(Plan(samples=(4, 4, 4), max_nodes=21), Talk(), PAIR)
    with pytest.raises(ConfigError, match=facts("1 + 4 + 16 = 21 … rollout.max_nodes 20")):
        check_plan(Plan(samples=(4, 4, 4), max_nodes=20), Talk(), PAIR)
    with pytest.raises(ConfigError, match=r"crossed pairing .* 1 \+ 16 = 17 Rounds"):
        check_plan(Plan(samples=(4, 1), pairing="crossed", max_nodes=16), Talk(), PAIR)


def test_a_plan_with_more_turns_than_the_environment_has_is_refused() -> None:
    class Short(Talk):
        most_turns = 2

    check_plan(Plan(samples=(4, 4)), Short(), PAIR)
    check_plan(Plan(samples=(4,)), Short(), PAIR)
    with pytest.raises(
        ConfigError, match=facts("3 turns … Short … at most 2 … rollout.samples [4, 3]")
    ):
        check_plan(Plan(samples=(4, 3, 2)), Short(), PAIR)


def test_an_environment_that_cannot_branch_takes_straight_paths() -> None:
    live = Talk(branches=False)
    for samples in [(1, 1), (2, 1), (4,), (8, 1, 1)]:
        check_plan(Plan(samples=samples), live, PAIR)
    for samples, instead in [((1, 2), "1, 1"), ((4, 1, 2), "4, 1, 1")]:
        with pytest.raises(
            ConfigError, match=rf"Talk has branches = False: use samples \[{instead}\]"
        ):
            check_plan(Plan(samples=samples), live, PAIR)


def test_a_later_state_that_cannot_branch_is_not_stepped_without_agents() -> None:
    check_plan(Plan(samples=(4,)), Talk(branches=False), PAIR, "one")
    check_plan(Plan(samples=(4, 1)), Talk(), PAIR, "one")
    with pytest.raises(ConfigError, match=facts("without agents … [4, 1] … branches = False")):
        check_plan(Plan(samples=(4, 1)), Talk(branches=False), PAIR, "one")


class Board(Environment[list[Any]]):
    """A game whose state is one live list: stepping it twice would mix two games."""

    agents = ("ann", "bob")

    def __init__(self, prompts: Sequence[str] = (), break_start: int | None = None) -> None:
        self.boards: list[list[Any]] = []
        self.closed: list[list[Any]] = []
        self._prompts, self._break_start = prompts, break_start

    async def start(self, task: Task, seed: int) -> list[Any]:
        if len(self.boards) == self._break_start:
            self._break_start = None
            raise ValueError("no board is free")
        self.boards.append([seed])
        return self.boards[-1]

    def observe(self, state: list[Any]) -> dict[str, str]:
        number = next(n for n, board in enumerate(self.boards) if board is state)
        first = self._prompts[number] if self._prompts and len(state) == 1 else "move"
        return dict.fromkeys(self.agents, f"{first} {len(state)}")

    async def step(self, state: list[Any], replies: Any, seed: int) -> Transition:
        state.append(tuple(reply.text for reply in replies.values()))
        reward = float(len(state))
        return Transition(state, dict.fromkeys(self.agents, reward), len(state) == 4)

    async def close(self, state: list[Any]) -> None:
        self.closed.append(state)


@pytest.mark.parametrize(
    ("samples", "pairing", "boards"),
    [((3, 1, 1), "aligned", 3), ((1, 1, 1), "aligned", 1), ((2, 1, 1), "crossed", 4)],
)
def test_every_path_of_a_game_with_live_state_has_a_start_of_its_own(
    samples: Any, pairing: Any, boards: int
) -> None:
    live = Board()
    root = _root(_play(live, Plan(samples=samples, pairing=pairing)))
    assert len(live.boards) == boards
    assert len({seed for seed, *_ in live.boards}) == 1
    assert [id(board) for board in live.closed] == [id(board) for board in live.boards]
    for j, outcome in enumerate(root.outcomes):
        picked, board = outcome, [live.boards[j][0]]
        round_ = root
        while True:
            board.append(
                tuple(round_.samples[agent][picked.picks[agent]].text for agent in live.agents)
            )
            if picked.next is None:
                break
            round_ = picked.next
            (picked,) = round_.outcomes
        assert board == live.boards[j]
        assert (len(board), picked.end) == (4, "done")


def test_a_greedy_path_of_a_game_with_live_state_has_its_own_start_too() -> None:
    live = Board()
    episode = _play(live, Plan(samples=(2, 1, 1)), greedy_path=True)
    assert episode.greedy is not None
    assert len(live.boards) == len(live.closed) == 3
    assert sorted(len(board) for board in live.boards) == [4, 4, 4]
    assert ("999", "999") in [board[1] for board in live.boards]


def test_a_start_that_fails_or_shows_another_prompt_is_the_fault_of_its_path_alone() -> None:
    lost = _root(_play(Board(break_start=2), Plan(samples=(4, 1, 1))))
    assert [outcome.fault for outcome in lost.outcomes if outcome.fault] == [
        Fault("environment", "ValueError", "no board is free")
    ]
    assert sum(outcome.next is not None for outcome in lost.outcomes) == 3
    other = _root(_play(Board(["a", "a", "b"]), Plan(samples=(3, 1, 1))))
    faults = [outcome.fault for outcome in other.outcomes]
    assert faults[:2] == [None, None]
    assert faults[2] is not None
    assert faults[2].cause == "unequal_starts"
    assert "show ann different prompts: 'a 1' and 'b 1'; expected equal ones" in faults[2].message


def test_a_team_for_other_agents_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=facts("team.agents … ann … ann, bob"),
    ):
        check_plan(Plan(), Talk(), team_of(("ann",)))


# ------------------------------------------------------------------------------------------ pairing


def test_aligned_plays_gth_with_gth() -> None:
    assert joint_actions(["a", "b"], 2, "aligned") == ({"a": 0, "b": 0}, {"a": 1, "b": 1})


def test_crossed_plays_all_with_all_last_agent_fastest() -> None:
    expected = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [tuple(picks.values()) for picks in joint_actions(["a", "b"], 2, "crossed")] == expected


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_crossed_with_one_sample_equals_aligned(agents: list[str]) -> None:
    assert (
        joint_actions(agents, 1, "crossed")
        == joint_actions(agents, 1, "aligned")
        == (dict.fromkeys(agents, 0),)
    )


@given(st.integers(1, 4), st.integers(1, 3))
def test_every_sample_takes_part_equally_often(samples: int, agents: int) -> None:
    for pairing, size in (("aligned", samples), ("crossed", samples**agents)):
        actions = joint_actions([str(agent) for agent in range(agents)], samples, pairing)
        assert len(actions) == size
        assert len({tuple(picks.items()) for picks in actions}) == size
        assert all(
            sum(picks["0"] == g for picks in actions) == size // samples for g in range(samples)
        )


# ----------------------------------------------------------------------------------------- stopping


def outcome(reward):
    return Outcome({"a": 0, "b": 0}, {"a": reward, "b": reward})


@pytest.mark.parametrize(
    ("plan", "reward", "done", "end"),
    [
        (Plan(samples=(2, 2)), 9.0, False, None),
        (Plan(samples=(2,)), 9.0, False, "limit"),
        (Plan(samples=(2, 2)), 0.0, True, "done"),
        (Plan(samples=(2, 2), stop_at_reward=4.0), 4.0, False, "stopped"),
        (Plan(samples=(2, 2), stop_at_reward=4.0, stop_by="round"), 9.0, False, None),
    ],
)
def test_a_branch_ends_by_the_environment_its_reward_or_the_limit(plan, reward, done, end):
    assert end_of(plan, 0, Transition(None, {"a": reward, "b": reward}, done)) == end


def test_a_round_ends_by_the_mean_of_the_joint_actions_that_did_not_fail():
    plan = Plan(samples=(3, 3), stop_at_reward=4.0, stop_by="round")
    failed = Outcome({"a": 0, "b": 0}, {}, fault=Fault("reward", "x", ""))
    ended = stopped_together(plan, [outcome(3.0), failed, outcome(5.0)])
    assert [one.end for one in ended] == ["stopped", None, "stopped"]
    kept = stopped_together(plan, [outcome(2.9), outcome(5.0)])
    assert [one.end for one in kept] == [None, None]


def test_whenever_a_game_is_cancelled_each_of_its_boards_is_closed() -> None:
    async def cancelled_after(passes: int) -> tuple[Board, bool]:
        live, waves = Board(), Waves(KeySampler())
        game = play(TASK, "e", live, PAIR, Plan(samples=(2, 1, 1)), waves, 7)
        playing = asyncio.ensure_future(waves.run([game]))
        for _ in range(passes):
            await asyncio.sleep(0)
        playing.cancel()
        await asyncio.wait({playing})
        return live, playing.cancelled()

    boards, was_cancelled, passes = set(), True, 1  # the waves must have begun
    gc.collect()  # what other tests have left
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        while was_cancelled:
            live, was_cancelled = asyncio.run(cancelled_after(passes))
            closed = [id(board) for board in live.closed]
            assert closed == [id(board) for board in live.boards], passes
            boards.add(len(live.boards))
            passes += 1
        gc.collect()
    assert boards == {1, 2}
    assert passes > 20
    assert not [one for one in told if "never awaited" in str(one.message)]


def test_a_reference_path_that_stops_the_run_closes_its_board() -> None:
    class Unsolved(Board):
        def solve(self, state: list[Any], seed: int) -> dict[str, str]:
            raise ConfigError("no such expert")

    live = Unsolved()
    with pytest.raises(ConfigError, match="no such expert"):
        asyncio.run(play_reference(live, TASK, "e", Plan(samples=(1,)), 7))
    assert len(live.closed) == len(live.boards) == 1
