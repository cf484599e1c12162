"""The tables of an evaluation at the width of a small terminal."""

from pathlib import Path
from typing import Any

import pytest

from motet.commands import console
from motet.commands.evaluation_tables import print_baselines


def row(protocol: str, lead: dict[str, float] | None) -> dict[str, Any]:
    estimated = {"mean": 0.983, "low": 0.97, "high": 0.99}
    return {
        "protocol": protocol, "success": estimated, "reward": estimated,
        "lead": {"success": lead} if lead else {}, "n": 8, "tokens_per_task": 1036.1,
        "faults": 0, "causes": {}, "note": "", "time": {"seconds_per_task": 0.021},
    }  # fmt: skip


def test_baselines_fit_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.out, "_width", 80)
    behind = {"mean": -0.1, "low": -0.15, "high": -0.02}
    rows = [row("team", None), row("self-consistency", behind)]
    about = {"tasks": 9, "samples": 1, "confidence": 0.95, "resamples": 10, "left_out": {}}
    print_baselines(Path("runs/mine"), {**about, "rows": rows})
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert shown.count("0.97 to 0.99") == 4
    assert "-0.15 to -0.02" in shown
    assert "self-consistency " in shown
