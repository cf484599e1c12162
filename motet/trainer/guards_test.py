"""An alarm is told when a figure stays beyond its bound, once, and again only after it came back."""

import pytest

from motet.settings import Guards
from motet.trainer.guards import WATCHED, Watch


def alarms(values, guards, metric="learn/entropy"):
    watch = Watch(guards)
    return [
        step for step, value in enumerate(values, 1) for _ in watch.see(step, {} if value is None else {metric: value})
    ]


LOW = Guards(patience=3, min_entropy=0.1)


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
    assert alarms([0.96] * 4, Guards(patience=2), "play/duplicates") == [2]
    assert alarms([0.94] * 4, Guards(patience=2), "play/duplicates") == []
    assert alarms([0.96] * 4, Guards(patience=2, max_duplicates=None), "play/duplicates") == []


def test_a_solved_game_is_no_collapse_unless_that_is_watched_too():
    for guards, told in ((Guards(patience=1), 0), (Guards(patience=1, unless_success=None), 1)):
        assert len(Watch(guards).see(1, {"play/duplicates": 1.0, "play/success": 0.95})) == told
    assert len(Watch(Guards(patience=1)).see(1, {"play/duplicates": 1.0, "play/success": 0.85})) == 1


def test_an_alarm_says_figure_bound_and_meaning():
    (alarm,) = Watch(Guards(patience=1)).see(7, {"play/cut": 0.987})
    assert str(alarm) == (
        "alarm at step 7: play/cut is 0.987, beyond guards.max_cut: most answers are cut off at decode.max_new_tokens"
    )


def test_counting_goes_on_where_a_run_was_killed():
    first = Watch(LOW)
    assert [first.see(step, {"learn/entropy": 0.0}) for step in (1, 2)] == [[], []]
    resumed = Watch(LOW, first.state())
    assert len(resumed.see(3, {"learn/entropy": 0.0})) == 1
    assert resumed.standing == 1


def test_every_bound_is_a_field_of_the_settings():
    assert {watched.bound for watched in WATCHED} == set(Guards.model_fields) - {
        "patience",
        "stop",
        "unless_success",
        "max_mismatch",
    }
