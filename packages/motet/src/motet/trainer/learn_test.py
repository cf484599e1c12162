from dataclasses import replace

import pytest

from motet.batch import pack
from motet.settings import Algorithm, OwnLoss
from motet.trainer.learn import gradient_is_advantage, without_gradient
from tests.fixtures.samples import LONGEST, sample


def samples(*advantages):
    return [
        sample(index, (5, 6), (1, 2), advantage=advantage)
        for index, advantage in enumerate(advantages)
    ]


def places(ids):
    return sorted(id.index for id in ids)


def test_samples_whose_advantage_is_zero_at_every_token_are_skipped():
    mixed = samples(*[1.0] * 6, (0.0, -1.0), -2.0, 0.0, (0.0, 0.0), -0.0)
    assert places(without_gradient(mixed)) == [8, 9, 10]


def test_some_samples_of_each_policy_are_read_all_the_same():
    flat = samples(*[0.0] * 16)
    assert places(without_gradient(flat)) == list(range(1, 16, 2)), "eight, from all over the step"
    assert places(without_gradient(samples(*[1.0] * 5, *[0.0] * 9))) == [6, 7, 9, 10, 12, 13]
    assert not without_gradient(flat[:8])
    other = [
        replace(one, completion=replace(one.completion, policy="large"))
        for one in samples(*[1.0] * 8)
    ]
    assert len(without_gradient(flat + other)) == 8, "those of another policy do not count"


def test_the_samples_that_are_left_keep_their_weights():
    mixed = samples(1.0, 0.0, 2.0)
    (whole,) = pack(mixed, 1000, "token_mean", LONGEST)
    (part,) = pack(mixed, 1000, "token_mean", LONGEST, skipped={mixed[1].id})
    assert [id.index for id in part.ids] == [0, 2]
    assert part.token_weight_B.tolist() == whole.token_weight_B.tolist()[::2]


@pytest.mark.parametrize(
    ("fields", "skips"),
    [
        ({}, True),
        ({"loss": {"kind": "clipped_surrogate"}}, True),
        ({"kl": {"kind": "reward", "coefficient": 0.1}}, True),
        ({"kl": {"kind": "loss", "coefficient": 0.1}}, False),
        ({"entropy_coefficient": 0.01}, False),
        ({"loss": OwnLoss(kind="./mine.py:loss")}, False),
        ({"loss": {"kind": "clipped_surrogate"}, "epochs": 2, "stop_at_kl": 0.1}, False),
    ],
)
def test_a_loss_with_another_term_reads_all(fields, skips):
    assert gradient_is_advantage(Algorithm(**fields)) == skips


def test_the_entropy_bonus_changes_linearly_to_its_final_weight():
    falling = Algorithm(entropy_coefficient=0.5, entropy_final=0.1)
    assert [falling.entropy_at(step, 5) for step in range(1, 6)] == pytest.approx(
        [0.5, 0.4, 0.3, 0.2, 0.1]
    )
    assert falling.entropy_at(1, 1) == 0.5
    assert Algorithm(entropy_coefficient=0.5).entropy_at(4, 5) == 0.5
