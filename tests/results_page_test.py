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
import results_sick  # noqa: E402
import results_tables  # noqa: E402

for folder in (ROOT / "benchmarks", ROOT / "benchmarks" / "speed"):
    while str(folder) in sys.path:
        sys.path.remove(str(folder))
PART = re.compile(
    r"(<!-- measured: `make results(?:-[\w-]+)?` writes (\w+) -->\n)(.*?)(\n<!-- /\2 -->)",
    re.DOTALL,
)


PAGES = [
    results,
    results_credit,
    results_curricula,
    results_games,
    results_real,
    results_self_play,
    results_sick,
]


@pytest.mark.parametrize("written", PAGES)
def test_a_page_has_a_place_for_each_table_once_and_no_other(written):
    names = [found[2] for found in PART.finditer(written.PAGE.read_text())]
    assert sorted(names) == sorted(written.PARTS)


@pytest.mark.parametrize("written", PAGES)
def test_a_page_shows_what_its_command_measured_or_says_that_it_did_not(written):
    kept = results_tables.kept(written.PAGE)
    assert set(kept) <= set(written.PARTS)
    for found in PART.finditer(written.PAGE.read_text()):
        name, shown = found[2], found[3].strip()
        if name in kept:
            assert shown == kept[name].shown(), name
        else:
            earlier = shown.endswith(results_tables.EARLIER)
            assert earlier or shown == results_tables.NOT_YET, name


def test_a_new_table_is_kept_and_shown_and_the_text_around_it_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("results_tables.FOLDER", tmp_path / "tables")
    page = tmp_path / "results.md"
    before = results.PAGE.read_text()
    page.write_text(before)
    new = results_tables.measured("| new |", "python benchmarks/results.py zoo", "2026-11-27")
    results_tables.keep(page, "zoo", new, "make results")
    wanted = r"\1\n" + new.shown().replace("\\", r"\\") + r"\n\4"
    assert page.read_text() == re.sub(
        PART.pattern.replace(r"(\w+)", "(zoo)"), wanted, before, flags=re.DOTALL
    )
    assert "| new |" in page.read_text()
    other = results_tables.measured("| other |", "python benchmarks/results.py relay", "2026-11-28")
    results_tables.keep(page, "relay", other, "make results")
    assert results_tables.kept(page) == {"relay": other, "zoo": new}


def test_a_table_says_when_where_and_how_it_was_measured():
    one = results_tables.Table(
        "| a |", "python benchmarks/a.py b", "2026-11-27", "CPU, 2 cores", "2"
    )
    assert one.shown() == (
        "| a |\n\n*Measured 2026-11-27 on CPU, 2 cores, with torch 2, by\n"
        "`python benchmarks/a.py b`.*"
    )


def test_a_table_without_a_place_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("results_tables.FOLDER", tmp_path / "tables")
    page = tmp_path / "results.md"
    page.write_text("# Results")
    with pytest.raises(ValueError, match="writes zoo"):
        results_tables.keep(
            page, "zoo", results_tables.measured("| new |", "c", "d"), "make results"
        )
    assert not results_tables.kept(page)


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
