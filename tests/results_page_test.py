"""`make results` and its siblings write the tables of their pages and keep the text."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import motet

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "speed")]
import results  # noqa: E402
import results_credit  # noqa: E402
import results_curricula  # noqa: E402
import results_games  # noqa: E402
import results_real  # noqa: E402
import results_self_play  # noqa: E402

for folder in (ROOT / "benchmarks", ROOT / "benchmarks" / "speed"):
    while str(folder) in sys.path:
        sys.path.remove(str(folder))
PART = re.compile(
    r"(<!-- measured: `make results(?:-[\w-]+)?` writes (\w+) -->\n)(.*?)(\n<!-- /\2 -->)",
    re.DOTALL,
)


@pytest.mark.parametrize(
    "written",
    [
        results,
        results_credit,
        results_curricula,
        results_games,
        results_real,
        results_self_play,
    ],
)
def test_a_page_has_a_place_for_each_table_once_and_no_other(written):
    names = [found[2] for found in PART.finditer(written.PAGE.read_text())]
    assert sorted(names) == sorted(written.PARTS)


def test_new_tables_leave_the_text_around_them_as_it_is():
    page = results.PAGE.read_text()
    new = results.filled(page, {name: results.Part(lambda: "new") for name in results.PARTS})
    assert new == PART.sub(r"\1\nnew\n\4", page)
    assert new.count("\nnew\n") == len(results.PARTS)
    assert "| seed 0 |" in page
    assert "| seed 0 |" not in new


def test_a_table_without_a_place_is_an_error():
    with pytest.raises(ValueError, match="writes zoo"):
        results.filled("# Results", {"zoo": results.Part(lambda: "new")})


def test_a_stopped_run_of_a_table_goes_on_and_a_finished_one_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("results_runs.RUNS", tmp_path)
    one = results.Experiment("one", "quickstart", ("train.steps=3",))
    commands = []

    def keep(finished):
        heldout = {"before": {"success": 0.25}, "after": {"success": 0.5}}
        kept = {"finished": finished, "heldout": heldout}
        one.folder(0).mkdir(exist_ok=True)
        (one.folder(0) / "summary.json").write_text(json.dumps(kept))

    def finish(command, **_):
        commands.append(command)
        keep(finished=True)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("subprocess.run", finish)
    keep(finished=False)
    assert results.run(one, 0).endswith("0.250 -> 0.500")
    assert commands == [one.resume(0)]
    assert "--resume" in commands[0]
    assert "--overwrite" not in commands[0]
    results.run(one, 0)
    assert len(commands) == 1


@pytest.mark.wide
def test_a_run_from_the_warmed_up_model_of_another_has_its_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("results_runs.RUNS", tmp_path)
    short = ("warmup.steps=5", "train.steps=3", "evaluation.tasks=16")
    first = results.Experiment("first", "quickstart", short)
    other = results.Experiment("other", "quickstart", short, warmed_by=first)
    for one in (first, other):
        config, *overrides = one.command(seed=4)[2:-3]
        motet.train(config, overrides, runs=tmp_path, show="silent")
    rows = [figures(one.folder(4)) for one in (first, other)]
    assert len(rows[0]) >= 3
    assert rows[0] == rows[1]
    weights = [sorted((one.folder(4) / "team").rglob("*.safetensors")) for one in (first, other)]
    assert len(weights[0]) == 2
    assert [file.read_bytes() for file in weights[0]] == [file.read_bytes() for file in weights[1]]


def figures(run: Path) -> list[dict[str, float]]:
    """Return the rows of a run's metrics without times and memory."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in row.items() if not name.startswith(("time", "memory"))}
        for row in rows
    ]
