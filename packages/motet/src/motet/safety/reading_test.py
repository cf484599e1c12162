"""Tests that reading any path ends, and that errors say what was expected."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from motet.api.setup import read_config
from motet.config.load import load_config
from motet.data.load import load_rows
from motet.errors import ConfigError
from motet.rollout.record import read_episodes
from motet.safety.reading import ROWS, read_bytes, read_json, read_up_to
from motet.trainer.checkpoint import what_is_wrong
from motet.trainer.metrics import read_metrics
from motet.trainer.run_folder import alone
from motet.user_code.plugins import load_object
from motet_verifier.answers import read_answers
from motet_verifier.folder import check_folder
from tests.fixtures.messages import facts


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_huge_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(9 << 40)  # a sparse file, which needs no disk space


KINDS: dict[str, Callable[[Path], Any]] = {
    "a device": a_device, "a pipe": os.mkfifo, "a folder": Path.mkdir, "a loop": a_loop,
    "a huge file": a_huge_file,
}  # fmt: skip


def extends(path: Path) -> Any:
    above = path.with_name("above.yaml")
    above.write_text(f"extends: {path.name}\nname: a\n")
    return load_config(above)


def answers(path: Path) -> Any:
    return read_answers(path)


def verifier(path: Path) -> Any:
    (path.parent / "verifier").mkdir()
    path.rename(path.parent / "verifier" / "verifier.json")
    return check_folder(path.parent / "verifier")


def manifest(path: Path) -> Any:
    (path.parent / "step-000001").mkdir()
    path.rename(path.parent / "step-000001" / "manifest.json")
    raise ConfigError(what_is_wrong(path.parent / "step-000001"))


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a config": ("case.yaml", load_config),
    "the target of a command": ("case.yaml", read_config),
    "extends": ("case.yaml", extends),
    "rows in JSON lines": ("rows.jsonl", load_rows),
    "rows in JSON": ("rows.json", load_rows),
    "rows in CSV": ("rows.csv", load_rows),
    "rows in Parquet": ("rows.parquet", load_rows),
    "rows in a folder": ("rows.jsonl", lambda path: load_rows(path.parent)),
    "episodes": ("train.jsonl", read_episodes),
    "metrics": ("metrics.jsonl", read_metrics),
    "answers": ("answers.jsonl", answers),
    "a verifier's card": ("verifier.json", verifier),
    "a checkpoint's manifest": ("manifest.json", manifest),
    "code of one's own": ("game.py", lambda path: load_object(f"{path}:Game")),
}


@pytest.fixture(autouse=True)
def ends():
    """Make a reader fail if it waits or reads forever."""

    def late(*_: Any) -> None:
        raise AssertionError("still reading")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_of_a_sensible_size_is_refused_before_it_is_read(
    tmp_path, reader, kind
):
    name, read = READERS[reader]
    if reader == "code of one's own" and kind == "a huge file":
        pytest.skip("code is trusted")
    KINDS[kind](tmp_path / name)
    with pytest.raises((ConfigError, OSError)) as refused:
        read(tmp_path / name)
    said = str(refused.value)
    assert "\n" not in said
    assert isinstance(refused.value, ConfigError) or kind == "a loop"


def test_a_file_is_read_up_to_its_limit_and_one_byte_more_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * (1 << 20))
    assert len(read_bytes(tmp_path / "file", 1 << 20)) == 1 << 20
    (tmp_path / "file").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match=facts("file … larger than 1 MiB")):
        read_bytes(tmp_path / "file", 1 << 20)


def test_a_file_that_says_it_is_empty_is_read_no_further_than_its_limit():
    said = Path("/proc/self/smaps")
    if not said.is_file() or said.stat().st_size:
        pytest.skip("no file of the kernel here")
    with pytest.raises(ConfigError, match="larger than"):
        read_bytes(said, 100)


class Noted(io.FileIO):
    """A file that notes how many bytes it was asked for."""

    asked: ClassVar[list[int]] = []

    def read(self, size: int | None = -1) -> bytes:
        self.asked.append(-1 if size is None else size)
        return super().read(size)


def test_no_more_memory_is_asked_for_than_a_file_has(tmp_path, monkeypatch):
    monkeypatch.setattr(Noted, "asked", [])
    (tmp_path / "file").write_bytes(b"x" * 40)
    with Noted(tmp_path / "file", "rb") as file:
        assert read_up_to(file, ROWS) == b"x" * 40
    assert 0 < sum(Noted.asked) <= 2 << 20
    assert min(Noted.asked) >= 0


def test_a_file_is_read_where_the_address_space_is_smaller_than_the_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 40)
    code = (
        "import resource, sys; from pathlib import Path; from motet.safety.reading import *;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2);"
        "print(len(read_bytes(Path(sys.argv[1]), ROWS)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "40\n", done.stderr


def test_what_grew_after_it_was_opened_is_read_too_and_a_position_is_kept(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    with (tmp_path / "file").open("rb") as file:
        file.seek(1)
        assert read_up_to(file, 1) == b"b"
        with (tmp_path / "file").open("ab") as more:
            more.write(b"d" * (1 << 20))
        assert read_up_to(file, 1 << 30) == b"c" + b"d" * (1 << 20)
        assert read_up_to(file, 1 << 30) == b""


@pytest.mark.parametrize("text", [b"\xff", b"{", b"[" * 100_000, b"", b'"\xed\xa0\x80"'])
def test_broken_json_is_one_line(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(ConfigError, match=r"a\.json is not JSON in UTF-8: [^\n]+\Z"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(json.dumps({"a": 1}))
    assert read_json(tmp_path / "a.json") == {"a": 1}


def test_a_run_folder_that_is_a_link_to_itself_is_refused(tmp_path):
    a_loop(tmp_path / "run")
    with pytest.raises((ConfigError, OSError)), alone(tmp_path / "run" / "x"):
        raise AssertionError("it was claimed")
