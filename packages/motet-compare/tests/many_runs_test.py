"""Several runs: groups over seeds, their statistics, tables, and a plot with a band."""

import csv
import io
import json
import sys
from math import sqrt
from statistics import mean, stdev

import pytest

import motet
import motet_compare
from motet.commands.main import main
from motet_compare.command import print_comparison
from motet_compare.many_runs import ComparedRun, differences
from motet_compare.over_seeds import OverSeeds
from tests.fixtures.messages import facts, says
from tests.small_runs import run_config, steps, summary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two seeds of one config, and one run with another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        config = run_config(name=f"plain-seed{seed}", seed=seed)
        motet.train(config, runs=folder, show="silent")
    fast = run_config(name="fast")
    motet.train(fast, ["optimizer.learning_rate=0.02"], runs=folder, show="silent")
    (folder / "notes.txt").write_text("no run")
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        capsys.readouterr()
        names = ("plain-seed0", "plain-seed1", "fast")
        monkeypatch.setattr(sys, "argv", ["motet", "compare", *names, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_runs_of_one_config_are_a_group_whatever_their_seeds(folder):
    found = motet_compare.runs(f"{folder}/*")
    assert [run.path.name for run in found] == ["fast", "plain-seed0", "plain-seed1"]
    names = {group: [run.path.name for run in of] for group, of in found.groups.items()}
    assert names == {"fast": ["fast"], "plain": ["plain-seed0", "plain-seed1"]}
    listed = motet_compare.runs([folder / "plain-seed1", folder / "fast"])
    assert [run.path.name for run in listed] == ["plain-seed1", "fast"]


def test_metrics_and_summaries_of_all_runs(folder):
    found = motet_compare.runs(f"{folder}/*")
    metrics = found.metrics
    assert list(metrics.columns[:4]) == ["group", "run", "seed", "step"]
    mine = metrics[metrics["run"] == str(folder / "plain-seed1")]
    assert set(mine["seed"]) == {1}
    assert mine["play/reward"].dropna().tolist() == [
        row["play/reward"] for row in steps(folder / "plain-seed1")
    ]
    summaries = found.summaries.set_index("run")
    for name in ("fast", "plain-seed0", "plain-seed1"):
        heldout = summary(folder / name)["heldout"]
        assert summaries.loc[str(folder / name), "after"] == heldout["after"]["success"]
        assert summaries.loc[str(folder / name), "reward"] == heldout["after"]["reward"]


def test_statistics_are_those_of_the_runs(folder):
    found = motet_compare.runs(f"{folder}/*").statistics
    rewards = [summary(folder / f"plain-seed{k}")["heldout"]["after"]["reward"] for k in (0, 1)]
    row = found.loc["plain"]
    assert (row["runs"], row["seeds"]) == (2, "0 1")
    assert row["reward_mean"] == pytest.approx(mean(rewards))
    assert row["reward_std"] == pytest.approx(stdev(rewards))
    half = 12.7062 * stdev(rewards) / sqrt(2)
    assert row["reward_high"] == pytest.approx(mean(rewards) + half, abs=1e-4)
    assert found["reward_std"].isna()["fast"]


def rows_of(group, afters, differs=()):
    """Rows of `compare` with seed -> success after."""
    return [
        ComparedRun(
            run=f"{group}-seed{seed}", group=group, seed=seed, steps=3, finished=True, before=0.25,
            after=after, reward=None, wall_seconds=1.0, cpu_seconds=1.0, differs=differs,
        )
        for seed, after in afters.items()
    ]  # fmt: skip


def test_differences_are_of_runs_with_the_same_seed():
    rows = rows_of("a", {0: 0.5, 1: 0.7, 2: 0.9}) + rows_of("b", {2: 0.96, 1: 0.74, 9: 0.1})
    rows += rows_of("c", {0: 0.6})
    (found,) = differences(rows)
    assert (found.group, found.runs, found.seeds) == ("b", 2, [1, 2])
    assert found.before == OverSeeds(runs=2, mean=0.0, std=0.0, low=0.0, high=0.0)
    assert found.after.mean == pytest.approx((0.04 + 0.06) / 2)
    half = 12.7062 * (0.01 * sqrt(2)) / sqrt(2)  # t of one degree of freedom, std / √pairs
    assert found.after.low == pytest.approx(0.05 - half, abs=1e-4)
    assert found.reward is None


def test_the_table_has_each_difference_once(capsys):
    rows = rows_of("a", {0: 0.5, 1: 0.7}) + rows_of("b", {0: 0.54, 1: 0.76}, ["x=1"])
    print_comparison(rows)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "b − a, success after, 2 pairs of one seed: +0.050 (-0.077 to +0.177)" in lines
    assert [line for line in lines if "differs" in line] == ["b differs from a: x=1"]


def test_differences_of_loaded_runs_are_a_table(folder):
    found = motet_compare.runs(f"{folder}/*")
    assert found.differences.empty
    assert list(found.differences.columns) == list(found.statistics.columns)


def test_curves_have_statistics_at_every_step(folder):
    curves = motet_compare.runs(f"{folder}/*").curves("play/reward")
    plain = curves[curves["group"] == "plain"].set_index("step")
    both = [[row["play/reward"] for row in steps(folder / f"plain-seed{k}")] for k in (0, 1)]
    assert plain["mean"].tolist() == pytest.approx([mean(pair) for pair in zip(*both, strict=True)])
    assert plain["runs"].tolist() == [2, 2]
    with pytest.raises(motet.ConfigError, match=facts("metric 'play/rewards' … 'play/reward'")):
        motet_compare.runs(f"{folder}/*").curves("play/rewards")


@pytest.mark.parametrize("band", ["interval", "std"])
def test_a_plot_with_a_band(folder, tmp_path, band):
    found = motet_compare.runs(f"{folder}/*")
    path = found.plot(tmp_path / f"{band}.png", band=band)
    assert path.read_bytes().startswith(b"\x89PNG")
    other = found.plot(tmp_path / "reward.png", "evaluate/reward")
    assert other.read_bytes() != path.read_bytes()


def test_a_run_without_a_summary_has_its_metrics(folder, tmp_path):
    import shutil

    shutil.copytree(folder / "fast", tmp_path / "running")
    (tmp_path / "running" / "summary.json").unlink()
    found = motet_compare.runs(f"{tmp_path}/*")
    assert found.summaries["finished"].tolist() == [False]
    assert found.summaries["after"].isna().tolist() == [True]
    assert len(found.metrics) == 3
    assert found.statistics["runs"].tolist() == [1]


def test_no_run_is_an_error(folder):
    with pytest.raises(motet.ConfigError, match="matches no run folder"):
        motet_compare.runs(f"{folder}/nothing-*")
    with pytest.raises(motet.ConfigError, match="matches no run folder"):
        motet_compare.runs([])
    with pytest.raises(motet.ConfigError, match=r"notes.txt.*expected"):
        motet_compare.runs([folder / "notes.txt"])


def test_a_notebook_shows_the_groups(folder):
    shown = motet_compare.runs(f"{folder}/*")._repr_html_()
    assert "<table" in shown
    assert "after_mean" in shown


def test_the_table_of_the_command_has_groups(command, folder):
    code, out, err = command()
    assert code == 0, err
    assert "success before" in out
    rewards = [summary(folder / f"plain-seed{k}")["heldout"]["after"]["reward"] for k in (0, 1)]
    assert f"{mean(rewards):.3f} ± {stdev(rewards):.3f}" in out
    code, out, _ = command("--json")
    assert [row["group"] for row in json.loads(out)] == ["plain", "plain", "fast"]


def test_csv_has_a_line_per_group(command, folder):
    code, out, err = command("--csv")
    assert code == 0, err
    plain, fast = csv.DictReader(io.StringIO(out))
    rewards = [summary(folder / f"plain-seed{k}")["heldout"]["after"]["reward"] for k in (0, 1)]
    assert (plain["group"], plain["runs"], plain["seeds"]) == ("plain", "2", "0 1")
    assert float(plain["reward_mean"]) == pytest.approx(mean(rewards))
    assert float(plain["reward_std"]) == pytest.approx(stdev(rewards))
    assert (fast["group"], fast["reward_std"]) == ("fast", "")


def test_latex_is_a_table(command, folder):
    code, out, err = command("--latex")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrr}"
    assert lines[-1] == r"\end{tabular}"
    rewards = [summary(folder / f"plain-seed{k}")["heldout"]["after"]["reward"] for k in (0, 1)]
    (plain,) = [line for line in lines if line.startswith("plain & 2 & ")]
    assert f"{mean(rewards):.3f} ± {stdev(rewards):.3f} [" in plain
    assert plain.endswith(r" \\")


def test_plot_from_the_command_line(command, tmp_path):
    path = tmp_path / "runs.png"
    code, out, err = command("--plot", str(path), "--metric", "play/reward", "--band", "std")
    assert code == 0, err
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "plain" in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("--csv", "--latex"), "--csv and --latex … at most one"),
        (("--metric", "play/reward"), "--metric without --plot … add --plot"),
        (("--plot", "runs.pdf"), "--plot … runs.pdf … .png"),
        (("--plot", "r.png", "--metric", "play/rewards"), "'play/rewards' … 'play/reward'"),
    ],
)
def test_mistakes_are_one_line(command, line, said):
    code, out, err = command(*line)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert says(err, said)
