import pytest

from motet.core import Completion, End, Episode, Fault, Outcome, Round, Task, Usage
from motet.rollout.summary import (
    EndpointUse,
    endpoint_use,
    episode_stats,
    fault_share,
    joined_use,
    onward_weights,
    outcome_weights,
    summarise,
)

BROKEN = Fault("sandbox", "TimeoutError", "slow")


def _outcome(
    reward: float, end: End | None = None, next: Round | None = None, **terms: float
) -> Outcome:
    """An outcome in which the agents earn reward ± 1, so that `reward` is their mean."""
    return Outcome({"a": 0}, {"a": reward - 1.0, "b": reward + 1.0}, terms, next, end)


def _fault() -> Outcome:
    return Outcome({"a": 0}, {}, fault=BROKEN)


def _round(turn: int, *outcomes: Outcome, tokens: tuple[int, ...] | None = (1, 2)) -> Round:
    logprobs = None if tokens is None else (-1.0,) * len(tokens)
    completion = Completion("p", "x", "stop", tokens=tokens, logprobs=logprobs)
    return Round(turn, {"a": "?"}, {"a": (1,)}, {"a": (completion,)}, outcomes)


def _episode(
    root: Round | None, greedy: Round | None = None, fault: Fault | None = None
) -> Episode:
    return Episode("e", Task("t", {}), root, greedy, fault)


def test_valid_outcomes_share_the_weight_and_faults_have_none() -> None:
    below = _round(1, _outcome(0, "limit"))
    round_ = _round(
        0,
        _outcome(0, "done"),
        _fault(),
        _outcome(0, next=below),
        _outcome(0, "pruned"),
        _outcome(0, "pruned"),
    )
    assert outcome_weights(round_) == (0.25, 0.0, 0.25, 0.25, 0.25)
    assert onward_weights(round_) == (0.0, 0.0, 0.75, 0.0, 0.0)


def test_a_path_sums_its_rewards() -> None:
    root = _round(0, _outcome(1.0, next=_round(1, _outcome(3.0, "done", success=1.0))))
    stats = episode_stats(_episode(root))
    assert (stats.reward, stats.final_reward, stats.success, stats.turns, stats.tokens) == (
        4.0,
        3.0,
        1.0,
        2.0,
        4,
    )
    assert stats.terms == {"success": 1.0}
    assert stats.agent_rewards == {"a": 2.0, "b": 6.0}


def test_an_end_that_does_not_say_is_no_success_where_others_do() -> None:
    solved = _episode(_round(0, _outcome(1.0, "done", success=1.0)))
    cut = _episode(_round(0, _outcome(0.0, "limit")))
    assert summarise([solved, cut, cut, cut]).success == 0.25
    assert summarise([cut]).success is None
    assert (
        episode_stats(
            _episode(_round(0, _outcome(1.0, "done", success=1.0), _outcome(0.0, "limit")))
        ).success
        == 0.5
    )


def test_the_share_of_faults_counts_joint_actions_and_whole_episodes() -> None:
    half = _episode(_round(0, _outcome(1.0, "done"), _fault()))
    assert fault_share([half, _episode(None, fault=BROKEN)]) == 0.75
    assert fault_share([]) == 0.0


def test_a_tree_is_worth_its_expected_path() -> None:
    left = _round(1, _outcome(4.0, "limit", success=1.0), _outcome(0.0, "limit", success=0.0))
    root = _round(0, _outcome(1.0, next=left), _outcome(5.0, "done", success=1.0))
    stats = episode_stats(_episode(root))
    assert stats.reward == pytest.approx((1.0 + 2.0) / 2 + 5.0 / 2)
    assert stats.final_reward == pytest.approx(2.0 / 2 + 5.0 / 2)
    assert stats.success == pytest.approx(0.75)
    assert stats.turns == pytest.approx(1.5)


def test_the_chosen_one_stands_for_the_pruned_ones_afterwards() -> None:
    below = _round(1, _outcome(8.0, "limit", success=1.0))
    root = _round(
        0,
        _outcome(1.0, "pruned", success=0.0),
        _outcome(2.0, next=below),
        _outcome(3.0, "done", success=0.0),
    )
    stats = episode_stats(_episode(root))
    assert stats.reward == pytest.approx((1.0 + 2.0 + 3.0) / 3 + 8.0 * 2 / 3)
    assert stats.final_reward == pytest.approx(3.0 / 3 + 8.0 * 2 / 3)
    assert stats.success == pytest.approx(2 / 3)


def test_a_broken_outcome_counts_as_a_fault_and_never_as_zero() -> None:
    stats = episode_stats(
        _episode(_round(0, _outcome(6.0, "done", success=1.0), _fault(), _fault()))
    )
    assert (stats.reward, stats.final_reward, stats.success) == (6.0, 6.0, 1.0)
    assert stats.faults == (BROKEN, BROKEN)


def test_a_term_is_averaged_over_the_outcomes_that_have_it() -> None:
    below = _round(1, _outcome(0.0, "limit", depth=2.0), _outcome(0.0, "limit"))
    root = _round(0, _outcome(0.0, next=below, depth=1.0), _outcome(0.0, "done"))
    # Weights: 1/2 at the first turn, 1/4 at the second.
    assert episode_stats(_episode(root)).terms == {
        "depth": pytest.approx((0.5 * 1.0 + 0.25 * 2.0) / 0.75)
    }


def test_an_episode_that_failed_has_a_fault_and_no_figures() -> None:
    stats = episode_stats(_episode(None, fault=BROKEN))
    assert (stats.reward, stats.final_reward, stats.success, stats.turns) == (
        None,
        None,
        None,
        None,
    )
    assert (dict(stats.terms), stats.tokens, stats.faults) == ({}, 0, (BROKEN,))


def test_a_greedy_path_costs_tokens_and_earns_nothing() -> None:
    stats = episode_stats(
        _episode(_round(0, _outcome(1.0, "done")), greedy=_round(0, _outcome(9.0, "done")))
    )
    assert (stats.reward, stats.tokens) == (1.0, 4)


def test_a_partner_behind_an_api_generates_no_tokens_of_ours() -> None:
    assert episode_stats(_episode(_round(0, _outcome(1.0, "done"), tokens=None))).tokens == 0


def test_many_episodes_are_averaged_over_those_that_have_the_figure() -> None:
    won = _episode(_round(0, _outcome(2.0, "done", success=1.0)))
    lost = _episode(_round(0, _outcome(0.0, "done", success=0.0), _fault()))
    summary = summarise(
        [won, lost, _episode(None, fault=Fault("sampler", "long_prompt", "no room"))]
    )
    assert (summary.episodes, summary.faults, summary.tokens) == (3, 2, 4)
    assert summary.causes == {"sampler/long_prompt": 1, "sandbox/TimeoutError": 1}
    assert (summary.reward, summary.final_reward, summary.success, summary.turns) == (
        1.0,
        1.0,
        0.5,
        1.0,
    )
    assert summary.terms == {"success": 0.5}


def test_no_episodes_have_no_figures() -> None:
    summary = summarise([])
    assert (
        summary.episodes,
        summary.faults,
        summary.reward,
        summary.success,
        dict(summary.terms),
    ) == (
        0,
        0,
        None,
        None,
        {},
    )


def test_what_is_paid_is_compared_with_what_is_right() -> None:
    def said(paid: tuple[float, float], right: tuple[float, float]) -> Episode:
        outcome = Outcome(
            {"a": 0, "b": 0},
            dict(zip("ab", paid, strict=True)),
            {"right/a": right[0], "right/b": right[1]},
            end="done",
        )
        return _episode(_round(0, outcome))

    agreeing = [said((0.9, 0.1), (1.0, 0.0)), said((0.2, 0.8), (0.0, 1.0))]
    # Rewards .9 .1 .2 .8 and right 1 0 0 1: deviations .4 -.4 -.3 .3 and .5 -.5 -.5 .5.
    assert summarise(agreeing).gold_correlation == pytest.approx(0.7 / (0.5 * 1.0) ** 0.5)
    assert summarise([said((0.1, 0.9), (1.0, 0.0))]).gold_correlation == pytest.approx(-1.0)
    assert summarise([said((0.5, 0.5), (1.0, 0.0))]).gold_correlation is None
    assert summarise([said((0.1, 0.9), (1.0, 1.0))]).gold_correlation is None
    assert summarise([_episode(_round(0, _outcome(1.0, "done")))]).gold_correlation is None


def test_what_servers_counted_is_summed_by_policy_and_the_rest_is_uncounted() -> None:
    said = [
        Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,)),
        Completion("q", "x", "stop", usage=Usage(7, 2)),
        Completion("q", "y", "stop", usage=Usage()),
        Completion("q", "z", "stop", usage=Usage(5, 0)),
        Completion("r", "x", "stop", usage=Usage()),
    ]
    use = {"q": EndpointUse(3, 12, 2, 1), "r": EndpointUse(1, None, None, 1)}
    assert endpoint_use(said) == use
    more = {"r": EndpointUse(2, 6, 8, 0)}
    assert joined_use(use, more) == {"q": use["q"], "r": EndpointUse(3, 6, 8, 1)}
    assert joined_use() == {}


def test_a_summary_has_the_use_of_all_games_with_their_greedy_paths() -> None:
    def played(usage: Usage | None) -> Round:
        completion = Completion("q", "x", "stop", usage=usage)
        return Round(0, {"a": "?"}, {"a": ()}, {"a": (completion,)}, (_outcome(1, "done"),))

    asked = _episode(played(Usage(7, 2)), greedy=played(Usage(7, 1)))
    assert episode_stats(asked).endpoints == {"q": EndpointUse(2, 14, 3, 0)}
    assert summarise([asked, asked]).endpoints == {"q": EndpointUse(4, 28, 6, 0)}
    assert summarise([_episode(played(None))]).endpoints is None
