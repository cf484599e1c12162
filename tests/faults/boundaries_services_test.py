"""A verifier and an expert that are down, disconnect, refuse, send garbage, or never answer.

All tests are whole runs.
"""

import json
from contextlib import ExitStack

import pytest

import motet
from tests.faults.boundary_games import (
    Clinic,
    causes,
    check_figures,
    clinic,
    recorded,
    seconds,
    small,
)
from tests.small_runs import contents, rows, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.slow,
]
TABLE = "Faults injected"
ASKED = {"timeout_seconds": 20.0, "retries": 1}


def of(kind: str, address: str, **sections):
    """Return the config of a run that asks a verifier, or an expert, at every step."""
    asks = {
        "verifier": {"verifier": {"base_url": address, "batch_size": 1, **ASKED}},
        "expert": {"expert": {"base_url": f"{address}/v1", "model": "tiny", **ASKED}},
    }
    return small({"verifier": "Scored", "expert": "Advised"}[kind], **asks[kind], **sections)


CASES = {
    "500 every third time": (lambda n: "500" if n % 3 == 0 else "fine", None),
    "429 every third time": (lambda n: "429" if n % 3 == 0 else "fine", None),
    "hangs up every third time": (lambda n: "hangs up" if n % 3 == 0 else "fine", None),
    "always 404": (lambda n: "404", "refused"),
    "garbage every fourth time": (lambda n: "garbage" if n % 4 == 0 else "fine", "garbled"),
    "numbers that are none, every fourth time": (
        lambda n: "numbers" if n % 4 == 0 else "fine",
        "garbled",
    ),
    "silent every ninth time": (lambda n: "slow" if n % 9 == 0 else "fine", "timeout"),
}
"""Behaviour of the server -> the cause that is counted; None if a retry succeeds."""


@pytest.mark.parametrize("kind", ["verifier", "expert"])
@pytest.mark.parametrize("case", CASES)
def test_how_a_server_fails_is_counted_by_its_cause_or_passes(train, tell, tmp_path, kind, case):
    manner, cause = CASES[case]
    short = {
        "train": {"max_fault_share": 1.0, "steps": 2},
        "rollout": {"samples": [2]},
        "evaluation": {"tasks": 2},
    }
    with clinic(manner, mended=cause is None) as server, seconds() as took:
        config = of(kind, server.address, **short)
        if cause == "timeout":
            config[kind]["timeout_seconds"] = 1.5
        run = train(config)
    where = "reward/verifier_" if kind == "verifier" else "environment/expert_"
    found = causes(run)
    assert set(found) == ({f"{where}{cause}"} if cause is not None else set())
    check_figures(run)
    if cause is None:
        with clinic(lambda n: "fine") as server:
            unbroken = train(of(kind, server.address, **short), runs=tmp_path / "unbroken")
        assert json.dumps(rows(run)) == json.dumps(rows(unbroken))
        assert contents(run / "episodes") == contents(unbroken / "episodes")
        assert weights(run) == weights(unbroken)
    counted = ", ".join(f"{name} x{count}" for name, count in found.items()) or "none: asked again"
    tell(
        TABLE,
        injected=f"{kind}: {case}",
        ended="finished",
        faults=counted,
        seconds=took(),
        checkpoint="",
    )


@pytest.mark.parametrize("kind", ["verifier", "expert"])
def test_a_server_that_is_away_from_the_start_stops_the_run_in_one_line(
    train, tell, tmp_path, kind
):
    with clinic(lambda n: "fine") as server:
        address = server.address
    config = of(
        kind,
        address,
        train={"tasks_per_step": 2},
        rollout={"samples": [2]},
        evaluation={"tasks": 2},
    )
    with (
        seconds() as took,
        pytest.raises(motet.MotetError, match=rf"failed, .*{kind}_unreachable.*\(2 tries\)"),
    ):
        train(config)
    records = recorded(tmp_path / "runs" / "run")
    assert records
    assert all(one.fault is not None and one.root is None for one in records)
    assert "play/reward" not in (tmp_path / "runs" / "run" / "metrics.jsonl").read_text()
    tell(
        TABLE,
        injected=f"{kind}: away from the start",
        ended="stopped, one line",
        faults="100%",
        seconds=took(),
    )


@pytest.mark.parametrize("kind", ["verifier", "expert"])
def test_a_server_that_dies_in_the_middle_stops_the_run_which_goes_on_as_if_nothing_had_been(
    train, tell, tmp_path, kind
):
    with ExitStack() as stack:
        server = stack.enter_context(clinic(lambda n: "fine"))
        config = of(kind, server.address)
        unbroken = train(config, runs=tmp_path / "unbroken")
        asked, port = server.asked, server.server_port
    dead = Clinic(lambda n: "fine" if n < asked // 2 else "hangs up", port)
    try:
        with seconds() as took, pytest.raises(motet.MotetError, match=f"{kind}_unreachable"):
            train(config)
        assert any(
            outcome.rewards
            for one in recorded(tmp_path / "runs" / "run")
            if one.root
            for outcome in one.root.outcomes
        )
        dead.manner = lambda n: "fine"
        run = train(config, resume=True)
    finally:
        dead.shutdown()
        dead.server_close()
    assert causes(run) == {}
    assert json.dumps(rows(run)) == json.dumps(rows(unbroken))
    assert contents(run / "episodes") == contents(unbroken / "episodes")
    assert weights(run) == weights(unbroken)
    told = {
        "ended": "stopped, one line",
        "faults": "over 50%",
        "checkpoint": "resumed to the same bytes",
    }
    tell(TABLE, injected=f"{kind}: dies in the middle", seconds=took(), **told)
