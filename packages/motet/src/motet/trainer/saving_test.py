"""The state of a checkpoint may hold anything: it is refused before a run resumes from it."""

from pathlib import Path
from typing import Any

import pytest

from motet.errors import CannotResume
from motet.trainer.saving import check_state, restoring
from tests.fixtures.messages import facts

FIGURES = {"success": 0.5, "reward": None, "faults": 0, "more": []}
STATE: dict[str, Any] = {
    "machine": {"threads": 1, "torch": "2"},
    "tasks": {"train": "a", "eval": "b"},
    "metrics_lines": 3,
    "metrics_digest": "abc",
    "weights": {"versions": {"p": 1}, "optimizers": {"p": {"step": 2}}},
    "averages": {"0": [1.0, 0.5]},
    "kl_coefficients": {"p": 0.1},
    "evaluated": True,
    "heldout": {"before": FIGURES},
    "best": None,
    "profile": {"steps": 2, "seconds": {"play": 0.5}},
    "watch": {"min_entropy": 0},
    "alarms": [],
    "tokens": 48,
    "step_seconds": 0.2,
}
PATH = Path("runs/x/checkpoints/step-000002/state.json")


def test_the_state_of_a_run_and_that_of_an_older_version_are_accepted() -> None:
    check_state(STATE, PATH)
    check_state({key: STATE[key] for key in list(STATE)[:8]}, PATH)
    check_state({**STATE, "notable": {"best": {"rank": 1.0, "step": 2}}}, PATH)


@pytest.mark.parametrize("value", ["text", ["a"], {"a": {"b": []}}, float("inf")], ids=repr)
@pytest.mark.parametrize("key", [key for key in STATE if key not in ("metrics_digest", "best")])
def test_a_value_of_another_form_is_named_with_its_file(key: str, value: object) -> None:
    if key == "step_seconds" and value == float("inf"):
        return
    with pytest.raises(CannotResume, match=rf"^{PATH}: {key}.*state of a run"):
        check_state({**STATE, key: value}, PATH)


@pytest.mark.parametrize("state", [None, [], "x", 1, {}])
def test_what_is_no_state_is_refused(state: object) -> None:
    with pytest.raises(CannotResume, match=facts(f"{PATH} … state of a run … restore … delete")):
        check_state(state, PATH)


@pytest.mark.parametrize("error", [KeyError("weights.p.0"), RuntimeError("shapes"), TypeError()])
def test_what_does_not_fit_the_run_is_named(error: Exception) -> None:
    said = rf"^{PATH.parent} does not fit this run: "
    with pytest.raises(CannotResume, match=said), restoring(PATH.parent):
        raise error
