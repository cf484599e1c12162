"""`make results` and its siblings write the tables of their pages and keep the text."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import motet

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "speed")]
import kept_runs  # noqa: E402
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


def end(folder: Path, finished: bool = True, **success: float | None) -> None:
    """Write the summary of a run whose success rises from .25 to .5, or to what is given."""
    success = {"before": 0.25, "after": 0.5} | success
    heldout = {when: {"success": value, "reward": 0.75} for when, value in success.items()}
    folder.mkdir(parents=True, exist_ok=True)
    said = {"finished": finished, "heldout": heldout, "steps": 3, "tokens": 90, "cpu_seconds": 7.25}
    (folder / "summary.json").write_text(json.dumps(said))


def test_a_run_without_successes_is_shown_by_its_rewards(tmp_path, monkeypatch):
    monkeypatch.setattr("results_runs.RUNS", tmp_path)
    one = results.Experiment("one", "quickstart")
    end(one.folder(0), before=None, after=None)
    assert results.run(one, 0).endswith("0.750 -> 0.750")


@pytest.fixture
def keeping(tmp_path, monkeypatch):
    """Folders for runs and for what is kept of them, and the commands that would have been run."""
    monkeypatch.setattr("results_runs.RUNS", tmp_path / "runs" / "results")
    monkeypatch.setattr("kept_runs.RUNS", tmp_path / "runs" / "results")
    monkeypatch.setattr("kept_runs.FOLDER", tmp_path / "kept")
    monkeypatch.setenv("DATA", str(tmp_path / "texts"))
    commands: list[str] = []

    def finish(command, **_):
        commands.append(" ".join(command[1:3]))
        end(tmp_path / "runs" / "results" / f"one-seed{len(commands) - 1}")
        return subprocess.CompletedProcess(command, 0)

    def call(*words):
        commands.append(" ".join(words))
        return {"success": 0.125}

    monkeypatch.setattr("subprocess.run", finish)
    monkeypatch.setattr("kept_runs.motet", call)
    return commands


def test_a_run_that_is_kept_is_not_made_again_without_its_folder(tmp_path, keeping):
    texts = f"data.train.path={tmp_path}/texts/posts/train.jsonl"
    one = results.Experiment(
        "one", "quickstart", (texts,), (0, 1, 2), calls=("messages --blank 1",)
    )
    (tmp_path / "runs" / "results").mkdir(parents=True)
    assert kept_runs.run_and_keep(one, 0).endswith("0.250 -> 0.500")
    assert keeping == ["train quickstart", f"messages {one.folder(0)} --blank 1"]
    shutil.rmtree(tmp_path / "runs")
    assert "kept since 20" in kept_runs.run_and_keep(one, 0)
    assert len(keeping) == 2
    found = kept_runs.reached(one, 0)
    assert found.success == {"before": 0.25, "after": 0.5}
    assert found.reward == {"before": 0.75, "after": 0.75}
    assert (found.steps, found.tokens, found.cpu_seconds) == (3, 90, 7.2)
    assert found.calls == {"messages --blank 1": 0.125}
    assert kept_runs.of_seeds(one) == [found]
    file = tmp_path / "kept" / "one.json"
    assert str(tmp_path) not in file.read_text()
    assert json.loads(file.read_text())["settings"][1] == "data.train.path=DATA/posts/train.jsonl"


def test_runs_with_other_settings_or_calls_do_not_count(tmp_path, keeping):
    one = results.Experiment("one", "quickstart", ("train.steps=3",))
    (tmp_path / "runs" / "results").mkdir(parents=True)
    kept_runs.run_and_keep(one, 0)
    longer = results.Experiment("one", "quickstart", ("train.steps=4",))
    assert kept_runs.reached(longer, 0) is None
    called = dataclasses.replace(one, calls=("messages --blank 1",))
    kept_runs.run_and_keep(called, 0)
    assert kept_runs.reached(called, 0).calls == {"messages --blank 1": 0.125}


def test_a_table_of_kept_runs_names_their_days_and_machines(keeping, monkeypatch):
    one = results.Experiment("one", "quickstart")
    with pytest.raises(SystemExit, match="no run of this table is kept yet: make it makes them"):
        kept_runs.made("| a |", "make it", [one])
    for seed, date in {2: "2026-11-29", 0: "2026-11-27"}.items():
        kept_runs._keep(
            one, seed, kept_runs.Reached(date, "CPU", "2", 3, 90, 7.2, {}, {"after": 0.5}, {})
        )
    table = kept_runs.made("| a |", "make it", [one])
    assert (table.date, table.machine, table.torch) == ("2026-11-27 to 2026-11-29", "CPU", "2")
    assert [each.date for each in kept_runs.of_seeds(one)] == ["2026-11-27", "2026-11-29"]


@pytest.mark.parametrize(
    ("values", "said"),
    [([], "-"), ([None], "-"), ([0.5], "0.500"), ([0.5, None, 0.75], "**0.625** (0.500, 0.750)")],
)
def test_a_cell_has_the_mean_of_the_seeds_that_are_known_and_each(values, said):
    assert kept_runs.average(values) == said


def test_only_tables_of_kept_runs_are_written_without_running_anything(monkeypatch):
    monkeypatch.setattr("sys.argv", ["results_real.py", "--so-far", "tasks", "crossplay"])
    with pytest.raises(SystemExit, match="--so-far is for tables whose runs are kept: taboo, con"):
        results.main(results_real.PARTS, results_real.PAGE)


def test_a_stopped_run_of_a_table_goes_on_and_a_finished_one_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("results_runs.RUNS", tmp_path)
    one = results.Experiment("one", "quickstart", ("train.steps=3",))
    commands = []

    def finish(command, **_):
        commands.append(command)
        end(one.folder(0))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("subprocess.run", finish)
    end(one.folder(0), finished=False)
    assert results.run(one, 0).endswith("0.250 -> 0.500")
    assert commands == [one.resume(0)]
    assert "--resume" in commands[0]
    assert "--overwrite" not in commands[0]
    results.run(one, 0)
    assert len(commands) == 1


def test_a_run_waits_for_the_one_whose_models_it_begins_with(capsys):
    first = results.Experiment("first", "quickstart", seeds=(0,))
    other = results.Experiment("other", "quickstart", seeds=(0,), warmed_by=first)
    beside = threading.Event()
    ended = []

    def go(one, seed):
        if one is first:
            assert beside.wait(60)
        if one.name == "beside":
            beside.set()
        ended.append(one.name)
        return one.name

    third = results.Experiment("beside", "quickstart", seeds=(0,))
    results.run_all([(go, first, 0), (go, third, 0), (go, other, 0), (go, first, 0)])
    assert ended[:2] == ["beside", "first"]
    assert sorted(ended[2:]) == ["first", "other"]
    assert sorted(capsys.readouterr().out.split()) == sorted(ended)


def test_a_failed_run_ends_the_runs_that_begin_with_its_models():
    first = results.Experiment("first", "quickstart", seeds=(0,))
    other = results.Experiment("other", "quickstart", seeds=(0,), warmed_by=first)

    def go(one, seed):
        raise SystemExit(f"{one.name} failed")

    with pytest.raises(SystemExit, match="first failed"):
        results.run_all([(go, first, 0), (go, other, 0)])


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
