import pytest

from motet.evaluation.evaluate import Evaluation
from motet.evaluation.intervals import CONFIDENCE, RESAMPLES, Estimate
from motet.rollout.summary import summarise
from motet_compare.baselines import BaselineResult, baseline_table
from tests.fixtures.finished_games import BROKE, LOST, WON, game


def entry(protocol, *games, note=""):
    played = Evaluation([], summarise([]), 1.0)
    return BaselineResult(protocol, [[one] for one in games], played, 2, 12.0, 0.5, note)


def table(*results):
    return baseline_table(results, {"single agent": "why not"}, tasks=3, samples=1, seed=0)


def test_a_row_has_the_figures_of_its_result():
    found = table(entry("ours", WON, WON, WON, note="a note"))
    assert (found.tasks, found.samples, found.confidence, found.resamples, found.left_out) == (
        3, 1, CONFIDENCE, RESAMPLES, {"single agent": "why not"}
    )  # fmt: skip
    (row,) = found.rows
    assert (row.protocol, row.n, row.tokens_per_task, row.note) == ("ours", 2, 12.0, "a note")
    assert row.success == Estimate(1.0, pytest.approx(0.4385, abs=1e-4), 1.0)
    assert row.reward == Estimate(1.0, 1.0, 1.0)
    assert (row.tasks, row.lead, row.time) == (3, {}, {"seconds_per_task": 0.5})


def test_the_first_row_is_compared_task_by_task_where_both_have_a_value():
    ours = entry("ours", WON, WON, LOST, BROKE)
    theirs = entry("theirs", LOST, LOST, BROKE, WON)
    first, second = table(ours, theirs).rows
    assert first.lead == {}
    assert second.lead["reward"] == Estimate(1.0, 1.0, 1.0)
    lead = second.lead["success"]  # two tasks: Wilson's 2 of 2 is .342 to 1, so 1 − .658·√2
    assert (lead.mean, lead.low) == (1.0, pytest.approx(1.0 - 0.65762 * 2**0.5, abs=1e-4))
    assert (first.tasks, second.tasks) == (3, 3)


def test_a_metric_that_nobody_reports_is_none():
    silent = game((1.0, {}))
    first, second = table(entry("ours", silent), entry("theirs", silent)).rows
    assert first.success is second.success is second.lead["success"] is None
    assert second.lead["reward"] == Estimate(0.0, 0.0, 0.0)
