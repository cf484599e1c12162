"""The tables of an evaluation at the width of a small terminal."""

from pathlib import Path

import pytest

from motet.commands import console
from motet.evaluation.intervals import Estimate
from motet_compare.baselines import BaselineRow, BaselineTable
from motet_compare.command import print_baselines


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
