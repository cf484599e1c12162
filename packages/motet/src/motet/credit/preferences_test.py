"""Pairs of joint actions: which ones, their loss, and that its gradient is that of MADPO."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import logsigmoid

from motet.algorithms import ALGORITHMS, check_plan
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
from motet.credit.preferences import (
    PreferencePair,
    PreferencePairs,
    completion_logp,
    preference_advantages,
    preference_loss,
    replayed,
    weights_of,
)
from motet.errors import ConfigError
from motet.settings import Algorithm, Decode, PairCredit, PairReplay, Plan
from tests.fixtures.messages import facts

AGENTS = ("a", "b")
TEAM = Team({"a": ("p",), "b": ("q",)}, dict.fromkeys(AGENTS, Decode()))
REWARDS = (1.0, 0.25, 0.25, 0.5)


def completion(policy: str, index: int) -> Completion:
    return Completion(policy, "x", "stop", tokens=(1, 2), logprobs=(-1.0, -0.5 * (index + 1)))


def episode(name: str = "e", rewards: tuple[float, ...] = REWARDS) -> Episode:
    """One Round of aligned joint actions with these rewards."""
    samples = {
        agent: tuple(completion(policy, index) for index in range(len(rewards)))
        for agent, policy in (("a", "p"), ("b", "q"))
    }
    outcomes = tuple(
        Outcome(dict.fromkeys(AGENTS, i), dict.fromkeys(AGENTS, reward), end="done")
        for i, reward in enumerate(rewards)
    )
    prompts = dict.fromkeys(AGENTS, "?")
    return Episode(
        name, Task("t", {}), Round(0, prompts, dict.fromkeys(AGENTS, (1,)), samples, outcomes)
    )


def sample_id(agent: str, index: int, name: str = "e") -> SampleId:
    return SampleId(name, (), agent, index)


def credit(algorithm: Algorithm, *episodes: Episode, scores: Scores | None = None):
    return assign_credit(
        episodes or [episode()], scores or Scores(), algorithm, CreditState(), TEAM, 1
    )


def chosen_and_rejected(algorithm: Algorithm, *episodes: Episode) -> list[tuple[int, int]]:
    pairs = credit(algorithm, *episodes).preferences.pairs
    assert all(
        {id.agent for id in side} == {"a", "b"} for p in pairs for side in (p.chosen, p.rejected)
    )
    return [(pair.chosen[0].index, pair.rejected[0].index) for pair in pairs]


def madpo(**changes: object) -> Algorithm:
    return Algorithm(name="madpo", credit=PairCredit(**changes))


def test_all_pairs_are_those_with_different_returns() -> None:
    assert chosen_and_rejected(madpo(select="all")) == [(0, 1), (0, 2), (0, 3), (3, 1), (3, 2)]


def test_the_largest_gaps_come_first_and_ties_keep_their_order() -> None:
    assert chosen_and_rejected(madpo(pairs=3)) == [(0, 1), (0, 2), (0, 3)]
    assert chosen_and_rejected(madpo(pairs=1), episode(), episode("f", (0.0, 1.0))) == [
        (0, 1),
        (1, 0),
    ], "of every Round"


def test_random_pairs_depend_on_the_round_only() -> None:
    some = madpo(select="random", pairs=2)
    assert chosen_and_rejected(some) == chosen_and_rejected(some)
    drawn = {tuple(chosen_and_rejected(some, episode(f"e{n}"))) for n in range(40)}
    assert len(drawn) > 5
    assert {pair for pairs in drawn for pair in pairs} == {(0, 1), (0, 2), (0, 3), (3, 1), (3, 2)}


def test_halves_compare_the_gth_joint_action_of_each_half() -> None:
    rewards = (1.0, 0.25, 0.0, 0.5, 0.75, 0.5, 0.0, 0.25)
    # (0, 4): 1.0 and 0.75; (1, 5): 0.25 and 0.5; (2, 6): a tie; (3, 7): 0.5 and 0.25.
    everything = madpo(compare="halves", select="all")
    assert chosen_and_rejected(everything, episode(rewards=rewards)) == [(0, 4), (5, 1), (3, 7)]
    # The comparator is in the second half: 0.75, 0.5 and 0.25.
    best = madpo(compare="halves", select="comparator_reward", pairs=2)
    assert chosen_and_rejected(best, episode(rewards=rewards)) == [(0, 4), (5, 1)]
    swapped = rewards[4:] + rewards[:4]  # now 1.0, 0.25 and 0.5
    assert chosen_and_rejected(best, episode(rewards=swapped)) == [(4, 0), (7, 3)]
    widest = madpo(compare="halves", pairs=1)
    assert chosen_and_rejected(widest, episode(rewards=(0.5, 0.0, 0.25, 1.0))) == [(3, 1)]


def test_of_equal_comparators_the_wider_gap_comes_first() -> None:
    best = madpo(compare="halves", select="comparator_reward", pairs=1)
    assert chosen_and_rejected(best, episode(rewards=(0.25, 1.0, 0.5, 0.5))) == [(1, 3)]


def test_null_pairs_are_all_pairs_the_widest_first() -> None:
    assert chosen_and_rejected(madpo(pairs=None)) == [(0, 1), (0, 2), (0, 3), (3, 1), (3, 2)]


def test_equal_returns_give_nothing_to_learn_from() -> None:
    found = credit(madpo(), episode(rewards=(0.5, 0.5)))
    assert (found.samples, found.preferences.pairs) == ([], ())
    assert found.metrics["credit/pairs"] == 0.0


def test_a_completion_is_one_sample_whatever_the_number_of_its_pairs() -> None:
    found = credit(madpo(pairs=2))
    assert [one.id for one in found.samples] == [
        sample_id(agent, index) for agent in AGENTS for index in (0, 1, 2)
    ]
    assert {one.share for one in found.samples} == {0.5}, "1 / pairs"
    assert found.preferences.sampled_logp == {
        sample_id(agent, index): -1.0 - 0.5 * (index + 1) for agent in AGENTS for index in (0, 1, 2)
    }


def test_margins_sum_over_agents_and_use_the_present_policy_where_it_is_given() -> None:
    preferences = credit(madpo(pairs=1)).preferences
    # Both agents: -1.5 for sample 0 and -2.0 for sample 1.
    assert preferences.margins(preferences.pairs, {}).tolist() == [1.0]
    now = {sample_id("a", 0): -3.0, sample_id("a", 1): -1.0}
    assert preferences.margins(preferences.pairs, now).tolist() == [-3.0 + 1.0 + 0.5]


def test_a_mean_over_tokens_does_not_count_the_length() -> None:
    assert completion_logp((-1.0, -3.0), mean=False) == -4.0
    assert completion_logp((-1.0, -3.0), mean=True) == -2.0
    assert completion_logp((), mean=True) == 0.0, "a partner behind an API"
    by_length = Algorithm(name="madpo", credit=PairCredit(pairs=1), reduce="sequence_mean")
    reference = {sample_id("a", index): (-2.0, 0.0, 2.0 * index) for index in (0, 1)}
    preferences = credit(by_length, scores=Scores(reference=reference)).preferences
    # Of sample 0 (-1 - 0.5)/2 for each agent, and -1 of sample 1; a's reference -2/3 and 0.
    assert preferences.sampled_logp[sample_id("a", 0)] == -0.75
    assert preferences.margins(preferences.pairs, {}).tolist() == pytest.approx([0.5 + 2 / 3])


def test_a_reference_is_subtracted() -> None:
    reference = {
        sample_id("a", 0): (-1.0, -1.0),
        sample_id("a", 1): (-0.5, -0.5),
        sample_id("b", 0): (0.0, -2.0),
        sample_id("b", 1): (0.0, -4.0),
    }
    found = credit(
        madpo(pairs=1, reference=True),
        episode(rewards=(1.0, 0.0)),
        scores=Scores(reference=reference),
    )
    # (-1.5 + 2) - (-2 + 1) = 1.5 for a, (-1.5 + 2) - (-2 + 4) = -1.5 for b.
    assert found.preferences.margins(found.preferences.pairs, {}).tolist() == [0.0]
    assert preference_loss(torch.zeros(1), 0.1).item() == pytest.approx(math.log(2.0))


def test_loss_and_advantages_by_hand() -> None:
    a0, a1, b0, b1 = (sample_id(agent, index) for agent in AGENTS for index in (0, 1))
    pairs = [PreferencePair((a0, b0), (a1, b1)), PreferencePair((a0, b0), (b1,))]
    margins = torch.tensor([2.0, -1.0], dtype=torch.float64)
    # log(1 + e^-1) and log(1 + e^0.5)
    assert preference_loss(margins, 0.5).tolist() == pytest.approx([0.3132616875, 0.9740769842])
    first, second = 0.5 / (1 + math.e), 0.5 / (1 + math.exp(-0.5))
    assert preference_advantages(pairs, margins, 0.5) == pytest.approx(
        {a0: first + second, b0: first + second, a1: -first, b1: -first - second}
    )


def test_the_gradient_is_that_of_the_published_loss() -> None:
    """comlrl 1.4.3: -log σ(β(own difference + the others' detached differences)), mean of pairs."""
    torch.manual_seed(0)
    beta = 0.3
    logp = {
        sample_id(agent, index): torch.randn((), dtype=torch.float64, requires_grad=True)
        for agent in ("a", "b", "c")
        for index in range(4)
    }
    pairs = [
        PreferencePair(*(tuple(sample_id(agent, i) for agent in ("a", "b", "c")) for i in two))
        for two in ((0, 1), (0, 2), (3, 2))
    ]

    def difference(pair: PreferencePair, agent: str) -> torch.Tensor:
        own = [
            [logp[id] for id in side if id.agent == agent] for side in (pair.chosen, pair.rejected)
        ]
        return own[0][0] - own[1][0]

    published = torch.stack(
        [
            -logsigmoid(
                beta
                * (
                    difference(pair, agent)
                    + sum(difference(pair, other).detach() for other in "abc" if other != agent)
                )
            )
            for agent in "abc"
            for pair in pairs
        ]
    )
    expected = torch.autograd.grad(published.sum() / len(pairs), list(logp.values()))
    preferences = PreferencePairs(tuple(pairs), {id: value.item() for id, value in logp.items()})
    margins = preferences.margins(pairs, {})
    advantages = preference_advantages(pairs, margins, beta)
    surrogate = -sum(advantages[id] * value for id, value in logp.items()) / len(pairs)
    got = torch.autograd.grad(surrogate, list(logp.values()))
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        preference_loss(margins, beta).repeat(3), published.detach(), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": {"kind": "clipped_surrogate"}}, "use loss.kind: policy_gradient"),
        ({"reduce": "token_mean"}, "use reduce: sequence_sum, or sequence_mean"),
        ({"kl": {"kind": "loss", "coefficient": 0.1}}, "use credit.reference: true"),
    ],
)
def test_a_pair_has_a_loss_of_its_own(settings, message) -> None:
    with pytest.raises(ValidationError, match=message):
        Algorithm(credit=PairCredit(), **settings)


def test_several_updates_are_allowed_and_the_row_is_as_published() -> None:
    assert Algorithm(credit=PairCredit(), epochs=20, minibatches=3).epochs == 20
    row = ALGORITHMS["madpo"].credit
    assert (row.select, row.pairs, row.beta, row.reference) == ("reward_gap", 16, 0.1, False)
    assert not ALGORITHMS["madpo"].needs_reference
    assert madpo(reference=True).needs_reference


def test_pairs_need_two_joint_actions_and_all_is_all() -> None:
    with pytest.raises(ConfigError, match="use at least 2 samples at one turn"):
        check_plan(madpo(), Plan(samples=(1,)), 2)
    check_plan(madpo(), Plan(samples=(2, 1)), 2)
    with pytest.raises(ValidationError, match="got pairs 3 with select all"):
        PairCredit(select="all", pairs=3)
    assert PairCredit(select="all", pairs=None).pairs is None


def test_halves_need_even_numbers_of_aligned_samples() -> None:
    halves = madpo(compare="halves")
    check_plan(halves, Plan(samples=(4,)), 2)
    for plan in (Plan(samples=(3,)), Plan(samples=(4,), pairing="crossed")):
        with pytest.raises(ConfigError, match=facts("even numbers … pairing: aligned")):
            check_plan(halves, plan, 2)
    with pytest.raises(ValidationError, match="expected compare: halves"):
        PairCredit(select="comparator_reward")


def test_a_failed_joint_action_leaves_the_other_halves_where_they_are() -> None:
    played = episode(rewards=(1.0, 0.25, 0.5, 0.0, 0.75, 0.25))
    assert played.root is not None
    outcomes = list(played.root.outcomes)
    outcomes[1] = Outcome(outcomes[1].picks, {}, fault=Fault("environment", "broken", "it broke"))
    broken = replace(played, root=replace(played.root, outcomes=tuple(outcomes)))
    # (0, 3): 1.0 and 0.0; (1, 4): 1 failed; (2, 5): 0.5 and 0.25.
    everything = madpo(compare="halves", select="all")
    assert chosen_and_rejected(everything, broken) == [(0, 3), (2, 5)]


# ------------------------------------------------------------------------------------------- replay


HISTORY = (["a1", "a2"], ["b1", "b2", "b3"], ["c1", "c2", "c3", "c4"])
DECAY = PairReplay(mode="lambda_decay", decay=0.5)


def test_weights_by_hand() -> None:
    assert weights_of(3, PairReplay()) == [0.0, 0.0, 1.0]
    assert weights_of(3, PairReplay(mode="nearest_k", k=2)) == [0.0, 0.5, 0.5]
    assert weights_of(1, PairReplay(mode="nearest_k", k=2)) == [1.0]
    assert weights_of(4, PairReplay(mode="all_history")) == [0.25] * 4
    # (1 - 0.5)·0.5^age = 0.5, 0.25, 0.125 of age 0, 1, 2; their sum is 0.875.
    assert weights_of(3, DECAY) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert weights_of(2, PairReplay(mode="lambda_decay", decay=0.0)) == [0.0, 1.0]
    assert weights_of(2, PairReplay(mode="lambda_decay", decay=1.0)) == [0.5, 0.5]
    # The sum is 2, and 0.5^12 = 0.00024 is more than 1e-4 of it, 0.5^13 = 0.00012 less.
    assert [weight > 0.0 for weight in weights_of(20, DECAY)] == [False] * 7 + [True] * 13


def test_the_current_mode_takes_every_present_pair_in_its_order() -> None:
    assert replayed(HISTORY, PairReplay(), 0) == ["c1", "c2", "c3", "c4"]
    assert replayed([["a1"], []], PairReplay(), 0) == []


def test_as_many_are_drawn_as_there_are_present_pairs_or_as_the_size_says() -> None:
    assert len(replayed(HISTORY, DECAY, 0)) == 4
    assert len(replayed(HISTORY, DECAY.model_copy(update={"size": 9}), 0)) == 9
    assert len(replayed([["a1", "a2"], []], DECAY, 0)) == 2, "those of the last with pairs"
    assert replayed([[], []], DECAY, 0) == []
    assert replayed(HISTORY, DECAY, 5) == replayed(HISTORY, DECAY, 5)
    assert replayed(HISTORY, DECAY, 5) != replayed(HISTORY, DECAY, 6)


def test_iterations_are_drawn_by_their_weights_and_those_without_pairs_are_passed_over() -> None:
    many = PairReplay(mode="lambda_decay", decay=0.5, size=7000)
    drawn = Counter(pair[0] for pair in replayed(HISTORY, many, 0))
    assert drawn["a"] == pytest.approx(1000, rel=0.1)
    assert drawn["b"] == pytest.approx(2000, rel=0.1)
    assert drawn["c"] == pytest.approx(4000, rel=0.1)
    without = Counter(pair[0] for pair in replayed((*HISTORY[:2], []), many, 0))
    assert without["b"] == pytest.approx(7000 * 2 / 3, rel=0.1)
    nearest = PairReplay(mode="nearest_k", k=1, size=50)
    assert {pair[0] for pair in replayed(HISTORY, nearest, 0)} == {"c"}


def test_no_pair_is_drawn_again_before_all_were_drawn() -> None:
    size = PairReplay(mode="all_history", size=11)
    counts = Counter(replayed([["a1", "a2", "a3", "a4"]], size, 3))
    assert sorted(counts.values()) == [2, 3, 3, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "nearest_k"}, "k null … mode nearest_k"),
        ({"mode": "lambda_decay"}, "decay null … mode lambda_decay"),
        ({"mode": "all_history", "k": 2}, "k 2 … mode all_history"),
        ({"decay": 0.5}, "decay 0.5 … mode current"),
        ({"size": 5}, "size 5 … mode current"),
    ],
)
def test_each_mode_has_its_own_keys(settings, message) -> None:
    with pytest.raises(ValidationError, match=facts(message)):
        PairReplay(**settings)
