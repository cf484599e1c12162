from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.batch import (
    Mean,
    merge,
    minibatches,
    pack,
    pack_value_pairs,
    pack_values,
    policy_objective,
)
from motet.core import Completion, ValueSample
from motet.settings import Algorithm
from tests.fixtures.samples import LONGEST, sample, value

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
    assert batch.token_weight_B.tolist() == [0.25] * 4
    assert batch.reference_logp_BL is None


def test_a_batch_is_of_one_policy() -> None:
    other = replace(SAMPLES[1], completion=replace(SAMPLES[1].completion, policy="large"))
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
        {"reference_logprobs": (0.0,) * 3},
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
            [replace(SAMPLES[0], completion=Completion("small", "hello", "stop"))],
            1000,
            "sequence_sum",
            LONGEST,
        )


def test_a_batch_prints_all_its_shapes_when_one_is_wrong() -> None:
    (batch,) = pack(SAMPLES, 1000, "sequence_sum", LONGEST)
    with pytest.raises(ValueError) as caught:
        replace(batch, token_weight_B=torch.ones(4, 1))
    assert "token_weight_B [4, 1], expected [4]" in str(caught.value)
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
    for part in (many, *parts):
        (batch,) = pack(part, 1000, "sequence_sum", LONGEST, scale=5 / len(part))
        assert batch.token_weight_B.sum().item() == pytest.approx(1.25)


def test_no_sample_is_no_step_and_no_part_is_empty() -> None:
    assert list(minibatches([], epochs=2, minibatches=1, seed=0)) == []
    assert [len(part) for part in minibatches(SAMPLES[:2], epochs=1, minibatches=4, seed=0)] == [
        1,
        1,
    ]


def test_a_token_mean_is_over_the_tokens_of_its_turn_so_a_wordy_turn_counts_no_more() -> None:
    short = [sample(index, (1,), (5, 6), turn=0, share=0.5) for index in range(2)]
    wordy = [sample(index, (2,), (5,) * 8, turn=1, share=0.5) for index in range(2, 4)]
    (batch,) = pack([*short, *wordy], 1000, "token_mean", LONGEST)
    per_row = dict(zip(batch.mask_BL.sum(1).tolist(), batch.token_weight_B.tolist(), strict=True))
    assert per_row == {2: pytest.approx(1 / 4), 8: pytest.approx(1 / 16)}


# ------------------------------------------------------------ values of critics


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
    assert batch.value_weight_B.tolist() == pytest.approx([0.2 / 1.4, 0.6 / 1.4])


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


def test_pairs_stay_together_within_the_budget() -> None:
    def text(length: int) -> ValueSample:
        return value((1,) * length, (length - 1,), (0.0,), (0.0,), 1.0)

    pairs = [(text(3), text(2)), (text(1), text(9)), (text(4), text(4)), (text(2), text(1))]
    batches = pack_value_pairs(pairs, 16)
    lengths = [batch.mask_BL.sum(dim=1).tolist() for batch in batches]
    assert lengths == [[2, 1, 3, 2], [4, 4], [1, 9]]
    for batch in batches:
        assert batch.value_weight_B.tolist() == [0.25] * len(batch.tokens_BL)
        at_the_end = batch.mask_BL.sum(dim=1) - 1
        assert batch.read_BL.sum(dim=1).tolist() == [1] * len(batch.tokens_BL)
        assert batch.read_BL.int().argmax(dim=1).tolist() == at_the_end.tolist()
    assert pack_value_pairs([], 16) == []
