"""Full disks, read-only disks, removed folders and broken rows.

Each ends in one line, and a resumed run continues from its record.
"""

import json
import re
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.faults.boundary_games import command, game, seconds, small
from tests.fixtures.messages import says
from tests.small_runs import contents, rows, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.slow,
]
TABLE = "Faults injected"
REFUSALS = (
    "No space left on device",
    "File too large",
    "Read-only file system",
    "No such file or directory",
)
LINE = re.compile(rf"error: (\S+: |a tensor file cannot be written: )?({'|'.join(REFUSALS)})")


@pytest.fixture
def motet(monkeypatch, capsys, tmp_path):
    """`motet(config, runs, words)` trains by the command; returns exit code and last output.

    No file may grow beyond `most` bytes.
    """

    def run(config: dict, runs: Path, *words: str, most: int | None = None) -> tuple[int, str]:
        written = tmp_path / "run.yaml"
        written.write_text(json.dumps(config))
        with nullcontext() if most is None else limited(most):
            return command(f"train {written} --runs {runs} {' '.join(words)}", monkeypatch, capsys)

    return run


@pytest.fixture
def disk(tmp_path) -> Iterator[Callable[[str], Path]]:
    """`disk(options)` mounts a file system with these options; called again, it changes them."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(options: str) -> Path:
        nonlocal mounted
        words = ["-o", f"remount,{options}"] if mounted else ["-t", "tmpfs", "-o", options, "motet"]
        done = subprocess.run(
            ["mount", *words, str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode and not mounted:
            pytest.skip(f"this user may not mount a file system: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        mounted = True
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def same(run: Path, unbroken: Path) -> None:
    assert json.dumps(rows(run)) == json.dumps(rows(unbroken))
    assert contents(run / "episodes") == contents(unbroken / "episodes")
    assert weights(run) == weights(unbroken)


def size(folder: Path) -> int:
    """Return the size in bytes, rounded up to pages, as a file system in memory counts them."""
    return sum(
        -(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file()
    )


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    """The folder of an undisturbed run."""
    import motet

    runs = tmp_path_factory.mktemp("unbroken")
    return runs / motet.train(small("Harmed"), runs=runs, show="silent").name


# --------------------------------------------------------------------------------------------- full


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.9, 0.98])
def test_a_disk_that_is_full_at_any_moment_ends_in_one_line_and_with_room_the_run_goes_on(
    motet, disk, unbroken, tell, share
):
    place = disk(f"size={int(share * size(unbroken)) // 4096 * 4096}")
    with seconds() as took:
        code, said = motet(small("Harmed"), place)
    assert code == 1
    assert LINE.match(said), said
    assert "No space left on device" in said
    reached = sorted((place / "run" / "checkpoints").glob("step-*"))
    disk("size=64m")
    begun = (place / "run" / "config.yaml").is_file() and (
        place / "run" / "config.yaml"
    ).stat().st_size > 0
    assert ("resume with: motet train" in said) == begun
    again, told = motet(small("Harmed"), place, "--resume" if begun else "")
    assert again == 0, told
    same(place / "run", unbroken)
    kept = (
        f"{reached[-1].name}, resumed to the same bytes"
        if reached
        else "none yet, resumed to the same bytes"
    )
    what = f"disk full at {share:.0%} of what a run needs"
    tell(TABLE, injected=what, ended=f"exit {code}, one line", seconds=took(), checkpoint=kept)


@pytest.mark.parametrize(
    "target",
    [
        ".metrics.jsonl.writing",
        ".config.yaml.writing",
        "episodes/evaluate-000003.jsonl",
        "team/p/model.safetensors",
        ".summary.json.writing",
        "curve.png",
    ],
)
def test_a_file_that_takes_no_more_ends_in_one_line(motet, unbroken, tell, tmp_path, target):
    runs = tmp_path / "runs"
    shutil.copytree(unbroken, runs / "run")
    (runs / "run" / target).unlink(missing_ok=True)
    (runs / "run" / target).symlink_to("/dev/full")
    with seconds() as took:
        code, said = motet(small("Harmed"), runs, "--resume")
    if code:
        assert "No space left on device" in said
        assert "resume with: motet train" in said
        (runs / "run" / target).unlink(missing_ok=True)
        code_again, told = motet(small("Harmed"), runs, "--resume")
        assert code_again == 0, told
    else:  # the target was replaced, not written through
        assert not (runs / "run" / target).is_symlink()
    same(runs / "run", unbroken)
    ended = f"exit {code}, one line" if code else "finished: the file was replaced"
    tell(
        TABLE,
        injected=f"disk full at {target}",
        ended=ended,
        seconds=took(),
        checkpoint="resumed to the same bytes",
    )


@pytest.mark.parametrize("most", [600, 20_000, 40_000])
def test_files_that_may_not_grow_end_in_one_line(motet, unbroken, tell, tmp_path, most):
    with seconds() as took:
        code, said = motet(small("Harmed"), tmp_path / "runs", most=most)
    assert code == 1
    assert LINE.match(said), said
    begun = (tmp_path / "runs" / "run" / "config.yaml").is_file()
    again, told = motet(small("Harmed"), tmp_path / "runs", "--resume" if begun else "")
    assert again == 0, told
    same(tmp_path / "runs" / "run", unbroken)
    what = f"no file over {most} bytes (RLIMIT_FSIZE)"
    tell(
        TABLE,
        injected=what,
        ended="exit 1, one line",
        seconds=took(),
        checkpoint="resumed to the same bytes",
    )


@contextmanager
def limited(most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# -------------------------------------------------------------------------------- refused, and gone


@pytest.mark.parametrize("begun", [False, True])
def test_a_disk_that_is_read_only_ends_in_one_line(motet, disk, unbroken, tell, begun):
    place = disk("size=64m")
    if begun:
        shutil.copytree(unbroken, place / "run")
    disk("ro")
    with seconds() as took:
        code, said = motet(small("Harmed"), place, *(["--resume"] if begun else []))
    assert code in (1, 2)
    assert "Read-only file system" in said
    disk("rw")
    again, told = motet(small("Harmed"), place, *(["--resume"] if begun else []))
    assert again == 0, told
    same(place / "run", unbroken)
    what = f"read-only disk, {'resumed' if begun else 'new'} run"
    tell(
        TABLE,
        injected=what,
        ended=f"exit {code}, one line",
        seconds=took(),
        checkpoint="goes on once it is writable",
    )


@pytest.mark.parametrize("gone", ["", "episodes", "checkpoints"])
def test_a_folder_that_vanishes_under_a_run_ends_in_one_line_or_is_made_again(
    motet, tell, tmp_path, gone
):
    place = tmp_path / "runs" / "run"
    done = threading.Event()

    def remove() -> None:
        while not done.wait(0.001):
            if (place / "episodes" / "train-000001.jsonl").exists():
                shutil.rmtree(place / gone, ignore_errors=True)
                return

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    try:
        with seconds() as took:
            code, said = motet(small("Harmed", train={"steps": 12}), tmp_path / "runs")
    finally:
        done.set()
        thread.join()
    if code:
        assert "No such file or directory" in said
    ended = f"exit {code}, one line" if code else "finished: it was made again"
    tell(
        TABLE,
        injected=f"run folder{'/' + gone if gone else ''} removed in step 2",
        ended=ended,
        seconds=took(),
    )


# --------------------------------------------------------------------------------------------- data


def dataset(place: Path, lines: list[str]) -> dict:
    place.write_text("\n".join(lines) + "\n")
    source = {"path": str(place)}
    return small("Rows", environment=game("Rows", turns=2), data={"train": source, "eval": source})


GOOD = [json.dumps({"number": number}) for number in range(4)]


def test_a_dataset_that_vanished_is_one_line_and_back_again_the_run_goes_on(motet, tell, tmp_path):
    config = dataset(tmp_path / "rows.jsonl", GOOD)
    assert motet(config, tmp_path / "unbroken")[0] == 0
    assert motet(config, tmp_path / "runs")[0] == 0
    (tmp_path / "rows.jsonl").rename(tmp_path / "away.jsonl")
    before = contents(tmp_path / "runs")
    with seconds() as took:
        code, said = motet(config, tmp_path / "runs", "--resume")
    assert code == 2
    assert "rows.jsonl does not exist" in said
    assert contents(tmp_path / "runs") == before
    (tmp_path / "away.jsonl").rename(tmp_path / "rows.jsonl")
    assert motet(config, tmp_path / "runs", "--resume")[0] == 0
    same(tmp_path / "runs" / "run", tmp_path / "unbroken" / "run")
    told = {"ended": "exit 2, one line", "checkpoint": "untouched, resumed to the same bytes"}
    tell(TABLE, injected="dataset gone at resume", seconds=took(), **told)


BROKEN = {
    "half a line": ('{"number": ', "line 3 … not JSON"),
    "a list": ("[2]", "line 3 … list … object"),
    "no UTF-8": ('{"number": "\udcff"}', "line 3 … not JSON"),
    "another field": ('{"nr": 2}', "number"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_row_in_the_middle_is_one_line_that_names_it(motet, tell, tmp_path, what):
    row, message = BROKEN[what]
    config = dataset(tmp_path / "rows.jsonl", GOOD)
    text = "\n".join([*GOOD[:2], row, *GOOD[2:]])
    (tmp_path / "rows.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    with seconds() as took:
        code, said = motet(config, tmp_path / "runs")
    assert code == 2
    assert says(said, message)
    assert not (tmp_path / "runs" / "run").exists()
    tell(
        TABLE,
        injected=f"dataset row: {what}",
        ended="exit 2, one line",
        seconds=took(),
        checkpoint="nothing touched",
    )
