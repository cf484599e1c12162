"""Tests of alarms.

An alarm is raised once when a metric stays beyond its bound, and again only after the metric came
back. If log-probabilities differ from those of sampling by more than rounding explains, the run
stops.
"""

import pytest
import torch

from motet.batch import Batch, Mean
from motet.errors import MotetError
from motet.models.rows import padded
from motet.settings import AlarmBounds
from motet.trainer.alarms import WATCHED, Watch, refuse_mismatch
from tests.fixtures.messages import says


def alarms(values, bounds, metric="learn/entropy"):
    watch = Watch(bounds)
    return [
        step
        for step, value in enumerate(values, 1)
        for _ in watch.see(step, {} if value is None else {metric: value})
    ]


LOW = AlarmBounds(patience=3, min_entropy=0.1)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.05, 0.05, 0.05, 0.05, 0.05], [3]),
        ([0.05, 0.05, 0.2, 0.05, 0.05], []),
        ([0.05, 0.05, 0.05, 0.2, 0.05, 0.05, 0.05], [3, 7]),
        ([0.05, None, 0.05, 0.05], [4]),
        ([0.1, 0.1, 0.1, 0.1], []),
    ],
)
def test_an_alarm_begins_at_the_third_step_in_a_row(values, told):
    assert alarms(values, LOW) == told


def test_the_other_bounds_are_upper_ones_and_null_is_not_watched():
    assert alarms([0.96] * 4, AlarmBounds(patience=2), "play/duplicates") == [2]
    assert alarms([0.94] * 4, AlarmBounds(patience=2), "play/duplicates") == []
    assert alarms([0.96] * 4, AlarmBounds(patience=2, max_duplicates=None), "play/duplicates") == []


def test_a_solved_game_is_no_collapse_unless_that_is_watched_too():
    for bounds, told in (
        (AlarmBounds(patience=1), 0),
        (AlarmBounds(patience=1, unless_success=None), 1),
    ):
        assert len(Watch(bounds).see(1, {"play/duplicates": 1.0, "play/success": 0.95})) == told
    assert (
        len(Watch(AlarmBounds(patience=1)).see(1, {"play/duplicates": 1.0, "play/success": 0.85}))
        == 1
    )


def test_an_alarm_says_figure_bound_and_meaning():
    (alarm,) = Watch(AlarmBounds(patience=1)).see(7, {"play/truncated": 0.987})
    assert says(
        alarm, "step 7 … play/truncated … 0.987 … alarms.max_truncated … decode.max_new_tokens"
    )


def test_counting_goes_on_where_a_run_was_killed():
    first = Watch(LOW)
    assert [first.see(step, {"learn/entropy": 0.0}) for step in (1, 2)] == [[], []]
    resumed = Watch(LOW, first.state())
    assert len(resumed.see(3, {"learn/entropy": 0.0})) == 1
    assert resumed.active == 1


def test_every_bound_is_a_field_of_the_settings():
    assert {watched.bound for watched in WATCHED} == set(AlarmBounds.model_fields) - {
        "patience",
        "rollback",
        "stop",
        "unless_success",
        "max_mismatch",
    }


# ------------------------------------------------------------------------- log-probability mismatch


def batch_of(lengths, temperatures):
    """A batch of completions with these lengths, all for one prompt."""
    tokens, mask = padded([[1] * length for length in lengths], 0, "right", torch.device("cpu"))
    nothing = torch.zeros(tokens.shape)
    temperature, one = torch.tensor(temperatures), torch.ones(len(lengths))
    prompt = torch.ones((1, 2), dtype=torch.int64)
    of = torch.zeros(len(lengths), dtype=torch.int64)
    return Batch(prompt, prompt.bool(), of, tokens, mask, "p", nothing, nothing, one, temperature)


class Computes:
    """A fake learner that has only a dtype."""

    def __init__(self, dtype):
        self._dtype = dtype

    def precision(self, name):
        return self._dtype


@pytest.mark.parametrize(
    ("lengths", "temperatures", "dtype", "bound", "most"),
    [
        ([64], [1.0], "bfloat16", "dtype", 0.3),
        ([64], [2.0], "bfloat16", "dtype", 0.3),
        ([32, 32], [0.5, 0.5], "bfloat16", "dtype", 0.6),
        ([96, 32], [0.5, 1.0], "bfloat16", "dtype", 0.3 * (96 * 2 + 32 * 1) / 128),
        ([16], [1.0], "bfloat16", "dtype", 0.6),
        ([1, 1, 1, 1], [1.0] * 4, "bfloat16", "dtype", 1.2),
        ([1], [0.5], "float32", "dtype", 0.16),
        ([1], [1.0], "bfloat16", 0.2, 0.2),
    ],
)  # fmt: skip
def test_a_bound_grows_where_answers_are_colder_and_where_tokens_are_few(
    lengths, temperatures, dtype, bound, most
):
    batch, tokens = batch_of(lengths, temperatures), sum(lengths)
    within, beyond = (
        {"sampling_logp_difference": Mean(share * most * tokens, tokens)}
        for share in (0.999, 1.001)
    )
    refuse_mismatch([batch], [within], bound, Computes(dtype))
    with pytest.raises(MotetError, match=rf"policy p: .* at most {most:.3g}\."):
        refuse_mismatch([batch], [beyond], bound, Computes(dtype))
