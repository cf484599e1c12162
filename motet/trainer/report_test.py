import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from motet.errors import ConfigError, MotetError
from motet.trainer.report import (
    Metrics,
    Progress,
    RunFolder,
    TensorBoard,
    Wandb,
    claimed,
    kept_lines,
    lost_episodes,
    read_metrics,
    write_whole,
)


class Mirrored:
    """A mirror that remembers."""

    def __init__(self):
        self.rows, self.closed = [], False

    def write(self, step, values):
        self.rows.append((step, dict(values)))

    def close(self):
        self.closed = True


def claim(path, **flags):
    with claimed(path, **flags) as folder:
        return folder


def test_an_existing_run_is_not_touched_without_a_flag(tmp_path):
    folder = claim(tmp_path / "runs" / "a")
    folder.metrics.write_text("{}\n")
    with pytest.raises(
        ConfigError, match=r"a exists; --resume goes on with that run, --overwrite deletes it and starts anew"
    ):
        claim(folder.path)
    assert folder.metrics.read_text() == "{}\n"


def test_overwrite_starts_with_nothing_and_resume_with_everything(tmp_path):
    folder = claim(tmp_path / "a")
    folder.metrics.write_text("{}\n")
    assert claim(folder.path, resume=True).metrics.exists()
    assert not claim(folder.path, overwrite=True).metrics.exists()
    assert folder.path.is_dir()


def test_a_resumed_run_has_nothing_left_that_a_killed_process_had_begun(tmp_path):
    folder = claim(tmp_path / "a")
    for path in (
        folder.config,
        folder.path / ".summary.json.writing",
        folder.models / "tiny" / "x",
        folder.models / ".tiny.0.writing" / "x",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    claim(folder.path, resume=True)
    assert sorted(path.name for path in folder.path.rglob("*")) == ["config.yaml", "models", "tiny", "x"]


def test_a_folder_that_cannot_be_made_is_one_clear_line():
    with pytest.raises(
        ConfigError, match=r"/proc/nowhere/a cannot be made: .*; expected a folder that can be written to"
    ):
        claim(Path("/proc/nowhere/a"))


def test_a_run_that_turns_out_not_to_work_puts_back_what_it_overwrote(tmp_path):
    folder = claim(tmp_path / "runs" / "a")
    folder.metrics.write_text("{}\n")

    def begin(name):
        with claimed(tmp_path / name, overwrite=True) as begun:
            begun.metrics.write_text("new")
            raise ConfigError("no such model")

    for name in ("runs/a", "other/b"):
        with pytest.raises(ConfigError, match="no such model"):
            begin(name)
    assert folder.metrics.read_text() == "{}\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "metrics.jsonl", "runs"]


def test_what_is_no_run_folder_is_never_deleted(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="exists and is no run folder"):
        claim(tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match="exists and is no run folder"):
        claim(tmp_path / "thesis.tex", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "x"


def test_flags_that_contradict_the_folder_or_each_other_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"absent holds no run to resume; start it without --resume"):
        claim(tmp_path / "absent", resume=True)
    with pytest.raises(ConfigError, match="expected at most one"):
        claim(tmp_path / "absent", resume=True, overwrite=True)
    assert not (tmp_path / "absent").exists()


def test_a_run_folder_knows_its_places(tmp_path):
    folder = claim(tmp_path / "a")
    assert folder.episodes("train", 7) == tmp_path / "a" / "episodes" / "train-000007.jsonl"
    write_whole(folder.summary, "old")
    write_whole(folder.summary, "new")
    assert [path.name for path in folder.path.iterdir()] == ["summary.json"]
    assert folder.summary.read_text() == "new"


def test_a_line_is_the_step_then_names_in_order_with_exact_floats(tmp_path):
    with Metrics(tmp_path / "m.jsonl") as metrics:
        metrics.write(3, {"play/reward": 0.1 + 0.2, "learn/kl/aux": 1e-12, "credit/samples": 64})
        line = (tmp_path / "m.jsonl").read_text()  # written through at once
    assert line == '{"step": 3, "credit/samples": 64, "learn/kl/aux": 1e-12, "play/reward": 0.30000000000000004}\n'
    assert read_metrics(tmp_path / "m.jsonl")[0]["play/reward"] == 0.1 + 0.2


@pytest.mark.parametrize("name", ["reward", "train/reward", "play/", "play/Reward", "play/reward/", "play reward"])
def test_a_name_outside_the_grammar_is_refused_and_nothing_written(tmp_path, name):
    with Metrics(tmp_path / "m.jsonl") as metrics, pytest.raises(MotetError, match="expected stage/name"):
        metrics.write(1, {"play/reward": 1.0, name: 1.0})
    assert (tmp_path / "m.jsonl").read_text() == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused(tmp_path, value):
    with Metrics(tmp_path / "m.jsonl") as metrics, pytest.raises(MotetError, match=r"metric learn/kl is .* at step 1"):
        metrics.write(1, {"learn/kl": value})


def test_mirrors_get_what_the_file_gets_and_warm_up_steps_keep_their_own_number(tmp_path):
    mirror = Mirrored()
    with Metrics(tmp_path / "m.jsonl", [mirror]) as metrics:
        metrics.write(0, {"warmup/step": 20, "warmup/loss": 1.5})
        metrics.write(1, {"play/reward": 1.0})
    assert [step for step, _ in mirror.rows] == [20, 1]
    assert mirror.closed


def test_a_resumed_run_drops_what_came_after_the_lines_that_count_and_half_a_line(tmp_path):
    path = tmp_path / "m.jsonl"
    with Metrics(path) as metrics:
        for step in range(4):
            metrics.write(step, {"play/reward": step / 3})
    unbroken = path.read_text()
    path.write_text(unbroken + '{"step": 4, "play/re')
    assert len(read_metrics(path)) == 4
    with Metrics(path, keep=3) as metrics:
        metrics.write(3, {"play/reward": 3 / 3})
    assert path.read_text() == unbroken


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lambda lines: lines[:2], "has 2 whole lines, expected the 3 that the checkpoint counted"),
        (lambda lines: [*lines[:2], lines[2][:-4]], "has 2 whole lines, expected the 3"),
        (lambda lines: [], "has 0 whole lines"),
        (lambda lines: [lines[0], lines[2], lines[3]], "first 3 lines are not those"),
        (lambda lines: [lines[0].replace(b"0", b"1"), *lines[1:]], "first 3 lines are not those"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "line 2: got "),
        (lambda lines: [lines[0], b'{"step": "\xff"}\n', *lines[1:]], "line 2: got "),
        (lambda lines: [b"3\n", *lines[1:]], "line 1: got "),
        (lambda lines: [lines[0][:9], *lines[1:]], "line 1: got "),
    ],
)
def test_lines_that_count_and_are_not_there_as_they_were_are_an_error_and_stay_as_they_are(tmp_path, harm, complaint):
    path = tmp_path / "m.jsonl"
    with Metrics(path) as metrics:
        for step in range(3):
            metrics.write(step, {"play/reward": step / 3})
        digest = metrics.digest
        metrics.write(3, {"play/reward": 1.0})
    assert kept_lines(path, 3, digest).count("\n") == 3
    harmed = b"".join(harm(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(harmed)
    with pytest.raises(ConfigError, match=rf"m\.jsonl.*{complaint}.*: put the file back as it was"):
        kept_lines(path, 3, digest)
    assert path.read_bytes() == harmed


def test_a_name_with_a_line_separator_is_one_line_again(tmp_path):
    with Metrics(tmp_path / "m.jsonl") as metrics:
        metrics.write(1, {"learn/kl/a\u2028b\x85": 0.5})
    assert read_metrics(tmp_path / "m.jsonl") == [{"step": 1, "learn/kl/a\u2028b\x85": 0.5}]
    with Metrics(tmp_path / "m.jsonl", keep=1) as again:
        assert again.digest == metrics.digest


def test_episodes_that_are_missing_or_cut_short_are_one_line(tmp_path):
    folder = RunFolder(tmp_path)
    folder.episodes("train", 1).parent.mkdir()
    for step in range(1, 5):
        folder.episodes("train", step).write_text("{}\n{}\n")
    assert lost_episodes(folder, 4) == []
    folder.episodes("train", 2).write_text("{}\n{")
    folder.episodes("train", 3).write_text("")
    folder.episodes("train", 4).unlink()
    assert lost_episodes(folder, 1) == []
    (line,) = lost_episodes(folder, 4)
    assert line.startswith(f"{folder.episodes('train', 2)} and 2 more: ")


def test_tensorboard_gets_every_scalar(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    mirror = TensorBoard(tmp_path / "tb")
    mirror.write(1, {"play/reward": 0.5})
    mirror.write(2, {"play/reward": 0.75})
    mirror.close()
    events = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("play/reward")] == [(1, 0.5), (2, 0.75)]


def test_wandb_that_is_not_installed_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r'pip install "motet\[wandb\]"'):
        Wandb(tmp_path, name="a", project="motet", entity=None, tags=(), config={})


def test_wandb_gets_every_step_as_a_value(tmp_path, monkeypatch):
    logged = []

    class Run:
        log = staticmethod(logged.append)
        finish = staticmethod(lambda: logged.append("end"))

    class Library:
        init = staticmethod(lambda **settings: logged.append(settings["project"]) or Run)

    monkeypatch.setitem(sys.modules, "wandb", Library)
    mirror = Wandb(tmp_path, name="a", project="motet", entity=None, tags=(), config={})
    mirror.write(3, {"play/reward": 0.5})
    mirror.close()
    assert logged == ["motet", {"step": 3, "play/reward": 0.5}, "end"]


def shown(terminal: bool, mode: str = "auto") -> str:
    ticks = iter(range(1000))
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, _environ={})
    with Progress(mode, console=console, every=10, clock=lambda: float(next(ticks))) as progress:
        progress.stage("train", total=25, first=5)
        for step in range(6, 26):
            progress.show(step, {"reward": step / 10, "success": 0.25}, tokens=100)
    return out.getvalue()


def test_off_a_terminal_every_tenth_step_and_the_last_is_one_aligned_line():
    lines = shown(terminal=False).strip().splitlines()
    assert lines == [
        "train     10/25  reward  1.000  success  0.250      100 tokens/s  left 0:00:15",
        "train     20/25  reward  2.000  success  0.250      100 tokens/s  left 0:00:05",
        "train     25/25  reward  2.500  success  0.250      100 tokens/s  took 0:00:20",
    ]


def test_on_a_terminal_there_is_a_bar_with_the_figures():
    text = shown(terminal=True)
    assert "25/25" in text
    assert "reward  2.500  success  0.250      100 tokens/s  took 0:00:20" in text


def test_a_stage_goes_on_after_another_one_in_between():
    out = io.StringIO()
    console = Console(file=out, width=120, _environ={})
    with Progress(console=console, every=1) as progress:
        progress.stage("train", total=2)
        progress.show(1, {})
        progress.counter("step 1", 1)(None)
        progress.stage("train", total=2, first=1)
        progress.show(2, {})
    assert [line[:13] for line in out.getvalue().splitlines()] == ["train     1/2", "step 1    1/1", "train     2/2"]
    assert [bar.description for bar in progress._bar.tasks if bar.visible] == ["train", "step 1"]


def test_silent_shows_nothing():
    assert shown(terminal=True, mode="silent") == ""
    assert shown(terminal=False, mode="silent") == ""


def test_metrics_of_two_runs_are_the_same_bytes(tmp_path):
    for name, order in (("a", ("play/reward", "play/success")), ("b", ("play/success", "play/reward"))):
        with Metrics(tmp_path / name) as metrics:
            metrics.write(1, dict.fromkeys(order, 1 / 3))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads((tmp_path / "a").read_text())["play/reward"] == 1 / 3
