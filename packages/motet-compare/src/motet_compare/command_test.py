"""The tables of an evaluation at the width of a small terminal."""

from pathlib import Path

import pytest

from motet.commands import console
from motet.evaluation.intervals import Estimate
from motet_compare.baselines import BaselineRow, BaselineTable
from motet_compare.command import print_baselines, print_comparison
from motet_compare.many_runs import ComparedRun


def row(protocol: str, lead: Estimate | None) -> BaselineRow:
    estimated = Estimate(0.983, 0.97, 0.99)
    return BaselineRow(
        protocol, estimated, estimated, {"success": lead} if lead else {}, n=8,
        tokens_per_task=1036.1, tasks=9, faults=0, causes={}, note="",
        time={"seconds_per_task": 0.021},
    )  # fmt: skip


def test_baselines_fit_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.out, "_width", 80)
    behind = Estimate(-0.1, -0.15, -0.02)
    rows = [row("team", None), row("self-consistency", behind)]
    print_baselines(Path("runs/mine"), BaselineTable(9, 1, 0.95, 10, rows, {}))
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert shown.count("0.97 to 0.99") == 4
    assert "-0.15 to -0.02" in shown
    assert "self-consistency " in shown


def compared(group: str, seed: int, after: float | None) -> ComparedRun:
    return ComparedRun(
        f"runs/{group}-seed{seed}", group, seed, 10, after is not None, 0.1, after, after,
        1.0, 1.0, [],
    )  # fmt: skip


def test_runs_that_did_not_finish_are_in_no_mean_and_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = [compared("a", seed, 0.9 + seed / 100) for seed in range(5)]
    ended = [compared("b", seed, 0.95 if seed < 3 else None) for seed in range(5)]
    print_comparison([*whole, *ended])
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 of 5 runs" in shown
    assert "b: 2 of 5 runs have no success after training, and are in no mean of it" in shown
    assert "a: " not in shown
    print_comparison(ended)
    shown = capsys.readouterr().out
    assert "63% of the runs" in shown, "1 - .05^(1/3), of the three that finished"
