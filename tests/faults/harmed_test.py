"""Checkpoints, records and models that were harmed between a kill and the resume.

From valid files the run resumes, and ends as the unbroken run did. Each harmed file is reported in
one line. If nothing valid is left, nothing is changed.
"""

import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.commands import main as cli
from tests.faults.short_runs import (
    command,
    differences,
    fingerprint,
    started,
    stopped,
    unbroken,
    wait,
)
from tests.small_runs import contents

pytestmark = pytest.mark.slow

NAME, OLDER, NEWEST = "relay_mappo", "step-000015", "step-000018"
TENSORS, STATE, MANIFEST = FILES = ("tensors.safetensors", "state.json", "manifest.json")
TITLE = "Harmed checkpoints"
Harm = Callable[[Path], object]


@pytest.fixture
def whole(tmp_path_factory) -> Path:
    """The unbroken run."""
    return unbroken(NAME, tmp_path_factory).run


@pytest.fixture
def hurt(tmp_path, tmp_path_factory) -> Path:
    """A run that was killed after step 19, with the checkpoints of steps 15 and 18."""
    return shutil.copytree(
        stopped(NAME, tmp_path_factory, steps=(15, 18), line=19), tmp_path / NAME, symlinks=True
    )


@pytest.fixture
def resume(hurt, monkeypatch, capsys) -> Callable[..., tuple[int, list[str]]]:
    """`motet train --resume` on it: returns the exit code, and the lines on stderr without
    progress."""

    def run(flag: str = "--resume") -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["motet", *command(NAME, hurt.parent, flag)[3:]])
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        lines = capsys.readouterr().err.splitlines()
        return code, [
            line
            for line in lines
            if line and not line.startswith(("train ", "step ", "before ", "after "))
        ]

    return run


# ------------------------------------------------------------------------------------- ways to harm


def flipped(at: float) -> Harm:
    """Flip one bit, at this share of the file."""

    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[min(int(at * len(content)), len(content) - 1)] ^= 4
        path.write_bytes(content)

    return harm


def cut(to: float) -> Harm:
    """Truncate the file to this share, and at least by one byte."""
    return lambda path: path.write_bytes(
        path.read_bytes()[: min(int(to * path.stat().st_size), path.stat().st_size - 1)]
    )


def said(**changes: Any) -> Harm:
    """Change values of the manifest."""
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def manifest_of(change: Callable[[dict[str, Any]], Any]) -> Harm:
    return lambda path: path.write_text(json.dumps(change(json.loads(path.read_text()))))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


EVERY_FILE: dict[str, Harm] = {
    "missing": Path.unlink,
    "empty": cut(0.0),
    "cut in half": cut(0.5),
    "without its last byte": cut(1.0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a folder": a_folder,
    "flipped at its first byte": flipped(0.0),
    "flipped at a tenth": flipped(0.1),
    "flipped in the middle": flipped(0.5),
    "flipped at its last byte": flipped(1.0),
}
MANIFESTS: dict[str, Harm] = {
    "of another schema": said(schema=1),
    "of a schema that is a text": said(schema="2"),
    "of another step": said(step=15),
    "of no step": manifest_of(
        lambda manifest: {key: value for key, value in manifest.items() if key != "step"}
    ),
    "that lists nothing": said(files={}),
    "that lists another file": manifest_of(
        lambda manifest: manifest | {"files": {"other": manifest["files"][STATE]}}
    ),
    "that lists one file only": manifest_of(
        lambda manifest: manifest | {"files": {STATE: manifest["files"][STATE]}}
    ),
    "whose files are a list": said(files=[TENSORS, STATE]),
    "whose files are null": said(files=None),
    "whose files are a text": said(files=TENSORS),
    "whose hashes are numbers": said(files={TENSORS: 1, STATE: 2}),
    "without files": manifest_of(
        lambda manifest: {"schema": manifest["schema"], "step": manifest["step"]}
    ),
    "that is a list": manifest_of(lambda manifest: [manifest]),
    "that is no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "of a thousand thousand brackets": lambda path: path.write_text("[" * 1_000_000),
}


def another_step(folder: Path) -> None:
    folder.rename(folder.with_name("step-000019"))


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("here was a checkpoint")


def a_link_to_nothing(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("gone")


def the_older_again(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name(OLDER), folder)


FOLDERS: dict[str, Harm] = {
    "empty": lambda folder: [(folder / name).unlink() for name in FILES],
    "a file": a_file,
    "a link to nothing": a_link_to_nothing,
    "a copy of the older one": the_older_again,
    "named after another step": another_step,
    "with the older one's tensors": lambda folder: shutil.copy(
        folder.with_name(OLDER) / TENSORS, folder
    ),
    "with the older one's state": lambda folder: shutil.copy(
        folder.with_name(OLDER) / STATE, folder
    ),
}
NEWEST_HARMED: dict[str, Harm] = {
    **{
        f"{name} {how}": lambda f, n=name, h=harm: h(f / n)
        for name in FILES
        for how, harm in EVERY_FILE.items()
    },
    **{f"a manifest {how}": lambda f, h=harm: h(f / MANIFEST) for how, harm in MANIFESTS.items()},
    **{f"the folder {how}": harm for how, harm in FOLDERS.items()},
}


def swapped(checkpoints: Path) -> None:
    (checkpoints / OLDER).rename(checkpoints / "aside")
    (checkpoints / NEWEST).rename(checkpoints / OLDER)
    (checkpoints / "aside").rename(checkpoints / NEWEST)


def both(harm: Harm) -> Harm:
    return lambda checkpoints: [harm(checkpoints / name) for name in (OLDER, NEWEST)]


NONE_SOUND: dict[str, Harm] = {
    "swapped": swapped,
    "both torn": both(lambda folder: cut(0.5)(folder / TENSORS)),
    "both files": both(a_file),
    "one file and one link to nothing": lambda root: (
        a_file(root / OLDER),
        a_link_to_nothing(root / NEWEST),
    ),
}
HARMLESS: dict[str, Harm] = {
    "a save that was not finished": lambda root: shutil.copytree(
        root / NEWEST, root / ".step-000019.writing"
    ),
    "a save that had just begun": lambda root: (root / ".step-000021.writing").mkdir(),
    "a file more": lambda root: (root / NEWEST / "notes").write_text("mine"),
    "a copy under another name": lambda root: shutil.copytree(
        root / OLDER, root / "step-000015.bak"
    ),
    "a folder of no step": lambda root: (root / "step-last").mkdir(),
    "a torn older one": lambda root: cut(0.5)(root / OLDER / STATE),
}
MINE = ("checkpoints/step-000018/notes", "checkpoints/step-000015.bak", "checkpoints/step-last")
"""Files that a person put there; nothing may remove them."""


# -------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("harm", NEWEST_HARMED)
def test_a_harmed_checkpoint_is_named_and_the_older_one_leads_to_the_same_end(
    harm, hurt, whole, resume, tell
):
    NEWEST_HARMED[harm](hurt / "checkpoints" / NEWEST)
    code, lines = resume()
    named = [line for line in lines if "step-0000" in line]
    differ = differences(hurt, whole)
    tell(
        TITLE,
        harm=harm,
        said=_after(named, "/step-"),
        equal=", ".join(differ) or f"yes {fingerprint(hurt)}",
    )
    assert code == 0, lines
    assert len(named) == 1, lines
    assert named[0].startswith("skipped an invalid checkpoint: ")
    assert not differ


@pytest.mark.parametrize("harm", NONE_SOUND)
def test_without_a_sound_checkpoint_one_line_says_so_and_nothing_is_touched(
    harm, hurt, resume, tell
):
    NONE_SOUND[harm](hurt / "checkpoints")
    before = pictured(hurt)
    code, lines = resume()
    tell(
        TITLE,
        harm=f"checkpoints {harm}",
        said=_after(lines, "holds"),
        equal=f"refused, exit code {code}",
    )
    assert code == 2
    assert len(lines) == 1, lines
    assert all(part in lines[0] for part in ("error: ", "has no valid checkpoint", OLDER, NEWEST))
    assert pictured(hurt) == before


@pytest.mark.parametrize("harm", HARMLESS)
def test_what_is_no_harm_to_the_newest_checkpoint_is_none(harm, hurt, whole, resume, tell):
    HARMLESS[harm](hurt / "checkpoints")
    code, lines = resume()
    differ = [one for one in differences(hurt, whole) if not one.startswith(MINE)]
    tell(
        TITLE,
        harm=harm,
        said=_after(lines, "/step-"),
        equal=", ".join(differ) or f"yes {fingerprint(hurt)}",
    )
    assert code == 0, lines
    assert not lines
    assert not differ


# --------------------------------------------------------------------------------------- the record


def edited(change: Callable[[list[bytes]], list[bytes]]) -> Harm:
    """Replace the lines of a file."""
    return lambda path: path.write_bytes(
        b"".join(change(path.read_bytes().splitlines(keepends=True)))
    )


METRICS: dict[str, Harm] = {
    "empty": cut(0.0),
    "cut in half": cut(0.5),
    "that miss a line": edited(lambda lines: [*lines[:10], *lines[11:]]),
    "that miss ten lines": edited(lambda lines: [*lines[:5], *lines[15:]]),
    "with a line twice": edited(lambda lines: [*lines[:10], *lines[9:]]),
    "with garbage in the middle": edited(
        lambda lines: [*lines[:10], b"\x00\x17garbage\n", *lines[10:]]
    ),
    "with bytes that are no text": edited(
        lambda lines: [*lines[:10], lines[10][:9] + b"\xff" + lines[10][9:], *lines[11:]]
    ),
    "with a line of many brackets": edited(
        lambda lines: [*lines[:10], b"[" * 100_000 + b"\n", *lines[10:]]
    ),
    "with an empty line": edited(lambda lines: [*lines[:10], b"\n", *lines[10:]]),
    "with another number": edited(
        lambda lines: [*lines[:10], lines[10].replace(b"0.", b"1.", 1), *lines[11:]]
    ),
    "a folder": a_folder,
}


@pytest.mark.parametrize("harm", METRICS)
def test_metrics_that_are_not_what_the_checkpoint_counted_are_never_a_silent_gap(
    harm, hurt, whole, resume, tell
):
    METRICS[harm](hurt / "metrics.jsonl")
    before = pictured(hurt)
    code, lines = resume()
    named = [line for line in lines if "metrics.jsonl" in line]
    went_on = code == 0 and not differences(hurt, whole)
    tell(
        TITLE,
        harm=f"metrics {harm}",
        said=_after(named, "metrics.jsonl"),
        equal=f"refused, exit code {code}" if code else "yes",
    )
    assert len(named) == 1, lines
    assert went_on or (code == 2 and len(lines) == 1 and pictured(hurt) == before)


def test_a_last_line_that_was_cut_off_and_does_not_count_is_written_anew(hurt, whole, resume):
    cut(1.0)(hurt / "metrics.jsonl")
    code, lines = resume()
    assert (code, lines, differences(hurt, whole)) == (0, [], [])


EPISODES: dict[str, Harm] = {
    "missing": Path.unlink,
    "empty": cut(0.0),
    "cut short": cut(0.5),
}


@pytest.mark.parametrize("harm", EPISODES)
def test_episodes_that_were_recorded_and_are_not_there_are_named(harm, hurt, resume, tell):
    EPISODES[harm](hurt / "episodes" / "train-000007.jsonl")
    code, lines = resume()
    tell(
        TITLE,
        harm=f"episodes of a step {harm}",
        said=_after(lines, "episodes"),
        equal=f"exit code {code}",
    )
    assert code == 0
    assert len(lines) == 1, lines
    assert "train-000007.jsonl" in lines[0]


def test_episodes_after_the_checkpoint_are_written_anew(hurt, whole, resume):
    cut(0.5)(hurt / "episodes" / "train-000019.jsonl")
    code, lines = resume()
    assert (code, lines, differences(hurt, whole)) == (0, [], [])


# -------------------------------------------------------------------------------- config and models

CONFIGS: dict[str, Harm] = {
    "missing": Path.unlink,
    "empty": cut(0.0),
    "cut in half": cut(0.5),
    "that is no text": lambda path: path.write_bytes(b"\xff\xfe\x00" * 9),
    "that is no YAML": lambda path: path.write_text("name: [relay\n"),
    "that is a list": lambda path: path.write_text("- relay\n"),
    "with another number": lambda path: path.write_text(
        path.read_text().replace("seed: 0", "seed: 1", 1)
    ),
    "a folder": a_folder,
}


@pytest.mark.parametrize("harm", CONFIGS)
def test_a_harmed_config_is_an_error_that_names_the_run_and_nothing_is_touched(
    harm, hurt, resume, tell
):
    CONFIGS[harm](hurt / "config.yaml")
    before = pictured(hurt)
    code, lines = resume()
    tell(TITLE, harm=f"config {harm}", said=_after(lines, NAME), equal=f"refused, exit code {code}")
    assert code == 2, lines
    assert str(hurt) in "".join(lines)
    assert "Traceback" not in "".join(lines)
    assert pictured(hurt) == before


MODELS: dict[str, Harm] = {
    "flipped": lambda folder: flipped(0.7)(folder / "model.safetensors"),
    "cut short": lambda folder: cut(0.5)(folder / "model.safetensors"),
    "without weights": lambda folder: (folder / "model.safetensors").unlink(),
    "with another tokenizer": lambda folder: flipped(0.5)(folder / "tokenizer.json"),
    "empty": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("harm", MODELS)
def test_a_harmed_model_that_policies_start_from_is_an_error_and_nothing_is_touched(
    harm, hurt, resume, tell
):
    MODELS[harm](hurt / "models" / "tiny")
    before = pictured(hurt)
    code, lines = resume()
    tell(
        TITLE,
        harm=f"the warm model {harm}",
        said=_after(lines, "tiny"),
        equal=f"refused, exit code {code}",
    )
    assert code == 2, lines
    assert len(lines) == 1
    assert "models/tiny" in lines[0]
    assert pictured(hurt) == before


def test_a_model_that_policies_start_from_and_is_gone_is_warmed_up_to_the_same_again(
    hurt, whole, resume, tell
):
    shutil.rmtree(hurt / "models" / "tiny")
    code, lines = resume()
    lines = [line for line in lines if not line.startswith("warmup ")]
    differ = differences(hurt, whole)
    tell(
        TITLE,
        harm="the warm model gone",
        said=_after(lines, "tiny"),
        equal=", ".join(differ) or "yes",
    )
    assert (code, lines, differ) == (0, [], [])


# -------------------------------------------------------------------------------------- two at once


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_two_processes_are_never_at_work_in_one_run_folder_and_a_killed_one_holds_nothing(
    flag, tmp_path, hurt, whole, resume, tell
):
    with started(NAME, tmp_path, "--resume") as first:
        wait(lambda: _is_locked(_lock(hurt)), first, tmp_path)
        first.send_signal(signal.SIGSTOP)  # so that it cannot end before the other has begun
        code, lines = resume(flag)
        tell(
            "Two at once",
            first="--resume",
            second=flag,
            said=_after(lines, "another"),
            exit_code=code,
        )
        assert (code, len(lines)) == (2, 1), lines
        assert "another process uses" in lines[0]
        first.kill()
        assert first.wait() == -signal.SIGKILL
    code, lines = resume()
    assert (code, lines, differences(hurt, whole)) == (0, [], [])
    assert not _lock(hurt).exists()


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock: the file exists shortly before it is locked."""
    if not path.exists():
        return False
    inode = path.stat().st_ino
    locks = Path("/proc/locks").read_text().splitlines()
    return any(line.split()[-3].endswith(f":{inode}") for line in locks)


def _lock(run: Path) -> Path:
    return run.with_name(f".{run.name}.lock")


def pictured(run: Path) -> dict[str, Any]:
    """Return every file of a run with its content, and every folder and link."""
    rest = {
        path.relative_to(run).as_posix(): path.is_symlink()
        for path in run.rglob("*")
        if not path.is_file()
    }
    return {**contents(run), **rest}


def _after(lines: list[str], mark: str) -> str:
    """Return the output from `mark` on, as far as a table has room."""
    text = " / ".join(lines)
    return text[max(text.find(mark), 0) :][:90]
