from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.batch import (
    Batch,
    Mean,
    ValueBatch,
    merge,
    minibatches,
    pack,
    pack_values,
    policy_objective,
    value_objective,
)
from motet.core import Completion, SampleId, TrainSample, ValueId, ValueSample
from motet.errors import ConfigError
from motet.losses import POLICY_LOSSES, PolicyLoss
from motet.settings import Algorithm

LONGEST = {"small": 10, "large": 10}


def sample(index: int, prompt: tuple[int, ...], tokens: tuple[int, ...], **changes) -> TrainSample:
    logprobs = tuple(-0.1 * (index + place + 1) for place in range(len(tokens)))
    completion = Completion("small", "", "stop", tokens=tokens, logprobs=logprobs)
    whole = TrainSample(
        SampleId("e", (), "a", index), "small", 0, 0, prompt, completion, 1.0 + index, 0.25
    )
    return replace(whole, **changes)


SAMPLES = [
    sample(0, (5, 6), (1, 2, 9)),
    sample(1, (7,), (3, 9)),
    sample(2, (5, 6), (4, 9)),
    sample(3, (7,), (9,), advantage=(0.5,)),
]


def test_a_prompt_stands_once_for_its_completions() -> None:
    (batch,) = pack(SAMPLES, 1000, "sequence_sum", LONGEST)
    assert batch.prompts_PL.tolist() == [[0, 7], [5, 6]]
    assert batch.prompt_mask_PL.tolist() == [[False, True], [True, True]]
    assert batch.prompt_of_B.tolist() == [0, 0, 1, 1]
    assert batch.tokens_BL.tolist() == [[9, 0, 0], [3, 9, 0], [4, 9, 0], [1, 2, 9]]
    assert batch.mask_BL.sum(dim=1).tolist() == [1, 2, 2, 3]  # the end-of-sequence token 9 counts
    assert batch.advantages_BL.tolist() == [[0.5, 0, 0], [2, 2, 0], [3, 3, 0], [1, 1, 1]]
    assert batch.weight_B.tolist() == [0.25] * 4
    assert batch.old_logp_BL is None
    assert batch.reference_logp_BL is None


def test_a_batch_is_of_one_policy() -> None:
    other = replace(SAMPLES[1], policy="large")
    batches = pack([SAMPLES[0], other, SAMPLES[2]], 1000, "sequence_sum", LONGEST)
    assert [(batch.policy, len(batch.tokens_BL)) for batch in batches] == [
        ("small", 2),
        ("large", 1),
    ]


def test_the_padded_size_stays_within_the_budget_and_a_larger_sample_goes_alone() -> None:
    many = [sample(i, (1,) * (i % 5 + 1), (2,) * (i % 7 + 1)) for i in range(40)] + [
        sample(40, (1,) * 30, (2,) * 9)
    ]
    batches = pack(many, 30, "token_mean", LONGEST)
    sizes = [len(b.tokens_BL) * (b.prompts_PL.shape[1] + b.tokens_BL.shape[1]) for b in batches]
    assert max(sizes[:-1]) <= 30
    assert (sizes[-1], len(batches[-1].tokens_BL)) == (39, 1)
    assert sum(len(batch.tokens_BL) for batch in batches) == 41


@settings(deadline=None, max_examples=30)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=10),
    budget=st.integers(1, 60),
    how=st.sampled_from(["token_mean", "sequence_mean", "sequence_sum", "constant_length"]),
)
def test_any_budget_gives_the_loss_and_the_metrics_of_one_batch(shapes, budget, how) -> None:
    samples = [
        sample(i, (prompt,) * prompt, (2,) * length) for i, (prompt, length) in enumerate(shapes)
    ]
    objective = policy_objective(Algorithm())

    def learn(token_budget: int) -> tuple[float, dict[str, Mean]]:
        results = [
            objective(batch, -batch.behaviour_logp_BL.exp(), batch.advantages_BL)
            for batch in pack(samples, token_budget, how, LONGEST)
        ]
        return sum(loss.item() for loss, _ in results), merge(metrics for _, metrics in results)

    (loss, metrics), (whole_loss, whole_metrics) = learn(budget), learn(10**6)
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    assert {name: mean.value for name, mean in metrics.items()} == pytest.approx(
        {name: mean.value for name, mean in whole_metrics.items()}, rel=1e-6
    )


def test_what_does_not_match_its_tokens_is_refused_by_name() -> None:
    for changes in (
        {"advantage": (1.0,)},
        {"reference_logprobs": (0.0,)},
        {"old_logprobs": (0.0,) * 3},
    ):
        with pytest.raises(ValueError, match=f"index=1.*{next(iter(changes))} for 2 tokens"):
            pack([SAMPLES[0], replace(SAMPLES[1], **changes)], 1000, "sequence_sum", LONGEST)
    with pytest.raises(ValueError, match="none of reference_logprobs"):
        pack(
            [replace(SAMPLES[1], reference_logprobs=(0.0, 0.0)), SAMPLES[0]],
            1000,
            "sequence_sum",
            LONGEST,
        )


def test_an_api_partner_is_never_packed() -> None:
    with pytest.raises(ValueError, match="has no tokens"):
        pack(
            [replace(SAMPLES[0], completion=Completion("api", "hello", "stop"))],
            1000,
            "sequence_sum",
            LONGEST,
        )


def test_a_batch_prints_all_its_shapes_when_one_is_wrong() -> None:
    (batch,) = pack(SAMPLES, 1000, "sequence_sum", LONGEST)
    with pytest.raises(ValueError) as caught:
        replace(batch, weight_B=torch.ones(4, 1))
    assert "weight_B [4, 1], expected [4]" in str(caught.value)
    assert "prompts_PL [2, 2], expected [2, 2]" in str(caught.value)
    assert "mask_BL [4, 3], expected [4, 3]" in str(caught.value)


# ------------------------------------------------------------ minibatches


def test_one_minibatch_is_all_samples_as_they_came() -> None:
    assert list(minibatches(SAMPLES, epochs=2, minibatches=1, seed=0)) == [SAMPLES, SAMPLES]


def test_every_epoch_deals_each_sample_once_in_another_order() -> None:
    many = [sample(i, (1,), (2,)) for i in range(8)]
    parts = [
        [s.id.index for s in part] for part in minibatches(many, epochs=2, minibatches=2, seed=3)
    ]
    assert [sorted(parts[0] + parts[1]), sorted(parts[2] + parts[3])] == [list(range(8))] * 2
    assert parts[0] not in (parts[2], parts[3])
    assert parts == [
        [s.id.index for s in part] for part in minibatches(many, epochs=2, minibatches=2, seed=3)
    ]
    assert parts != [
        [s.id.index for s in part] for part in minibatches(many, epochs=2, minibatches=2, seed=4)
    ]


def test_each_part_weighs_as_much_as_the_whole() -> None:
    many = [sample(i, (1,), (2,)) for i in range(5)]
    parts = list(minibatches(many, epochs=1, minibatches=2, seed=0))
    assert [len(part) for part in parts] == [3, 2]
    assert [sum(s.weight for s in part) for part in parts] == pytest.approx([1.25, 1.25])


def test_no_sample_is_no_step_and_no_part_is_empty() -> None:
    assert list(minibatches([], epochs=2, minibatches=1, seed=0)) == []
    assert [len(part) for part in minibatches(SAMPLES[:2], epochs=1, minibatches=4, seed=0)] == [
        1,
        1,
    ]


# ------------------------------------------------------------ objective


def scored(batch: Batch) -> Batch:
    """Return the batch with reference log-probabilities that are 0.5 nats below the behaviour
    policy's."""
    return replace(batch, reference_logp_BL=batch.behaviour_logp_BL - 0.5)


def two_tokens() -> Batch:
    """Two completions of lengths 2 and 1, advantages 1 and -1, weights 0.5."""
    rows = [
        sample(0, (5,), (1, 9), advantage=1.0, weight=0.5),
        sample(1, (5,), (9,), advantage=-1.0, weight=0.5),
    ]
    # Sorted by length: the one-token row comes first.
    return pack(rows, 1000, "sequence_sum", LONGEST)[0]


def test_the_loss_by_hand() -> None:
    batch, logp_BL = scored(two_tokens()), torch.tensor([[-0.2, 9.0], [-0.1, -0.2]])
    entropy_BL = torch.tensor([[1.0, 9.0], [2.0, 3.0]])
    assert torch.allclose(batch.behaviour_logp_BL, torch.tensor([[-0.2, 0.0], [-0.1, -0.2]]))
    loss, metrics = policy_objective(Algorithm())(batch, logp_BL, entropy_BL)
    assert loss.item() == pytest.approx(0.5 * (-0.2) + 0.5 * 0.3)  # −A·logp, summed per sequence
    assert metrics["entropy"] == Mean(6.0, 3)
    assert metrics["kl"].value == pytest.approx(0.1065307)  # e^-0.5 + 0.5 - 1
    full = Algorithm(kl_in="loss", kl_coefficient=0.1, entropy_coefficient=0.01)
    loss, _ = policy_objective(full)(batch, logp_BL, entropy_BL)
    assert loss.item() == pytest.approx(0.05 + 0.5 * 3 * 0.1 * 0.125 - 0.5 * 0.01 * 6.0)


def test_the_first_on_policy_ratio_is_one_and_the_sampler_agrees() -> None:
    batch = two_tokens()
    _, metrics = policy_objective(Algorithm(policy_loss="clipped_surrogate"))(
        batch, batch.behaviour_logp_BL, batch.advantages_BL
    )
    assert metrics["ratio"].value == 1.0
    assert metrics["sampling_logp_difference"].value == 0.0
    assert metrics["clip_fraction"].value == 0.0


def test_a_ratio_compares_with_the_old_policy_and_the_mismatch_with_the_sampler() -> None:
    batch = two_tokens()
    behind = replace(batch, old_logp_BL=batch.behaviour_logp_BL - 0.5)
    _, metrics = policy_objective(Algorithm(policy_loss="clipped_surrogate", epochs=2))(
        behind, batch.behaviour_logp_BL + 0.1, batch.advantages_BL
    )
    assert metrics["ratio"].value == pytest.approx(1.8221188)  # e^0.6
    assert metrics["sampling_logp_difference"].value == pytest.approx(0.1)
    # Ratio > 1 + high, A > 0: the row of two tokens.
    assert metrics["clip_fraction"] == Mean(2.0, 3)


@pytest.mark.parametrize("padding", [5.0, float("nan"), float("inf"), float("-inf")])
def test_padding_changes_neither_loss_nor_gradient_nor_metrics(padding: float) -> None:
    algorithm = Algorithm(
        policy_loss="clipped_surrogate",
        kl_in="loss",
        kl_coefficient=0.1,
        kl_estimator="k3",
        entropy_coefficient=0.01,
    )
    batch, results = scored(two_tokens()), []
    for filled in (0.0, padding):
        logp_BL, entropy_BL = torch.full((2, 2), -0.3), torch.full((2, 2), 1.5)
        logp_BL[0, 1], entropy_BL[0, 1] = filled, filled
        logp_BL.requires_grad_()
        advantages_BL = torch.where(batch.mask_BL, batch.advantages_BL, filled)
        loss, metrics = policy_objective(algorithm)(
            replace(batch, advantages_BL=advantages_BL), logp_BL, entropy_BL
        )
        loss.backward()
        results.append((loss.item(), logp_BL.grad.tolist(), metrics))
    assert results[0] == results[1]
    assert results[0][1][0][1] == 0.0


def test_the_end_of_sequence_token_is_trained() -> None:
    batch, logp_BL = two_tokens(), torch.full((2, 2), -1.0, requires_grad=True)
    policy_objective(Algorithm())(batch, logp_BL, torch.zeros(2, 2))[0].backward()
    assert logp_BL.grad.tolist() == [[0.5, 0.0], [-0.5, -0.5]]


def test_a_loss_without_a_ratio_refuses_a_second_step_even_one_of_the_users_own(
    monkeypatch,
) -> None:
    monkeypatch.setitem(
        POLICY_LOSSES, "mine", PolicyLoss(lambda given: -given.advantages_BL * given.logp_BL)
    )
    with pytest.raises(ConfigError, match=r"mine has no ratio.*epochs 2 x minibatches 3 = 6"):
        policy_objective(Algorithm(policy_loss="mine", epochs=2, minibatches=3))


def test_kl_in_the_loss_without_a_reference_is_refused() -> None:
    batch = two_tokens()
    with pytest.raises(ValueError, match="samples of small carry none"):
        policy_objective(Algorithm(kl_in="loss", kl_coefficient=0.1))(
            batch, batch.behaviour_logp_BL, batch.advantages_BL
        )


def test_a_token_mean_is_over_the_tokens_of_its_turn_so_a_wordy_turn_counts_no_more() -> None:
    short = [sample(index, (1,), (5, 6), turn=0, weight=0.5) for index in range(2)]
    wordy = [sample(index, (2,), (5,) * 8, turn=1, weight=0.5) for index in range(2, 4)]
    (batch,) = pack([*short, *wordy], 1000, "token_mean", LONGEST)
    per_row = dict(zip(batch.mask_BL.sum(1).tolist(), batch.weight_B.tolist(), strict=True))
    assert per_row == {2: pytest.approx(1 / 4), 8: pytest.approx(1 / 16)}


# ------------------------------------------------------------ values of critics


def value(
    tokens: tuple[int, ...], at: tuple[int, ...], target, old, weight: float, critic: str = "c"
) -> ValueSample:
    return ValueSample(
        ValueId("e", (), "a"), critic, (("p", 0),), 0, tokens, at, target, old, weight
    )


def test_a_batch_of_values_by_hand():
    rows = [
        value((5, 6, 7), (1, 2), (1.0, 2.0), (0.5, 0.0), 0.6),
        value((8,), (0,), (3.0,), (0.0,), 0.2),
    ]
    (batch,) = pack_values(rows, 100)
    assert batch.tokens_BL.tolist() == [[8, 0, 0], [5, 6, 7]]
    assert batch.mask_BL.tolist() == [[True, False, False], [True] * 3]
    assert batch.read_BL.tolist() == [[True, False, False], [False, True, True]]
    assert batch.targets_BL.tolist() == [[3, 0, 0], [0, 1, 2]]
    assert batch.old_values_BL.tolist() == [[0, 0, 0], [0, 0.5, 0]]
    # weights per value: 0.2 once and 0.6 twice, of a total of 1.4
    assert batch.weight_B.tolist() == pytest.approx([0.2 / 1.4, 0.6 / 1.4])


def test_a_batch_of_values_is_of_one_critic_within_the_budget():
    rows = [
        value((1,) * length, (0,), (0.0,), (0.0,), 1.0, critic)
        for critic in "cd"
        for length in (9, 2, 2, 3)
    ]
    batches = pack_values(rows, 6)
    assert [(batch.critic, list(batch.tokens_BL.shape)) for batch in batches] == [
        (critic, shape) for critic in "cd" for shape in ([2, 2], [1, 3], [1, 9])
    ]


def told(batch: ValueBatch, *numbers: float) -> torch.Tensor:
    """Return the numbers at positions where values are read, and values that must be ignored
    elsewhere."""
    return torch.full(batch.read_BL.shape, torch.nan).masked_scatter(
        batch.read_BL, torch.tensor(numbers)
    )


def test_the_value_loss_is_half_the_squared_error_in_the_mean_and_padding_says_nothing():
    rows = [
        value((5, 6, 7), (1, 2), (1.0, 2.0), (0.0, 0.0), 0.5),
        value((8,), (0,), (3.0,), (0.0,), 0.5),
    ]
    (batch,) = pack_values(rows, 100)
    said = told(batch, 2.0, 0.0, 4.0).requires_grad_()
    loss, metrics = value_objective(Algorithm(critic_view="own"), 0.1)(batch, said)
    assert loss.item() == pytest.approx(0.1 * 0.5 * (1 + 1 + 4) / 3)
    assert metrics["value"].value == pytest.approx(2.0)
    assert metrics["value_error"].value == pytest.approx(1.0)
    loss.backward()
    assert said.grad.tolist() == [
        [pytest.approx(-0.1 / 3), 0, 0],
        [0, pytest.approx(-0.1 / 3), pytest.approx(0.2 / 3)],
    ]


def test_a_value_that_moved_past_its_clip_towards_the_target_has_no_gradient_and_one_that_moved_away_has():  # noqa: E501
    algorithm = Algorithm(
        critic_view="own", policy_loss="clipped_surrogate", epochs=2, clip_value=0.2
    )
    for said, pulled in ((0.5, False), (0.1, True), (-0.5, True)):  # old value 0, target 1
        (batch,) = pack_values([value((5,), (0,), (1.0,), (0.0,), 1.0)], 100)
        moved = torch.tensor([[said]], requires_grad=True)
        loss, _ = value_objective(algorithm, 1.0)(batch, moved)
        loss.backward()
        held = max(-0.2, min(0.2, said))
        assert loss.item() == pytest.approx(max(0.5 * (said - 1) ** 2, 0.5 * (held - 1) ** 2))
        assert (moved.grad.item() != 0.0) == pulled
