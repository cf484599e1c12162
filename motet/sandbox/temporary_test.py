import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from motet.sandbox import Level, Sandbox, temporary

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from motet.sandbox import temporary
path, lock = temporary.make("motet-")
(path / "model" / "deep").mkdir(parents=True)
(path / "model" / "weights").write_text("x")
print(path, flush=True)
time.sleep(600)
"""
FORKED = HOLDER.replace("print", "import os\nif os.fork() == 0: time.sleep(600)\nprint")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def process(program: str, place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a temporary folder, in a group of its own, and that folder."""
    environment = os.environ | {"TMPDIR": str(place)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True
    ) as made:
        assert made.stdout is not None
        try:
            yield made, Path(made.stdout.readline().strip())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)


def test_a_folder_is_there_in_its_block_and_gone_behind_it(place: Path) -> None:
    with temporary.folder("motet-check-") as made:
        (made / "some").mkdir()
        (made / "some" / "file").write_text("x")
        assert list(place.iterdir()) == [made]
        assert made.name.startswith("motet-check-")
    with contextlib.suppress(ZeroDivisionError), temporary.folder():
        raise ZeroDivisionError
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start(place: Path) -> None:
    with process(HOLDER, place) as (made, left):
        with temporary.folder():
            assert (left / "model" / "weights").exists(), "its process lives"
        made.kill()
        made.wait()
    assert left.exists()
    with temporary.folder() as mine:
        assert list(place.iterdir()) == [mine]


def test_a_folder_lives_as_long_as_a_child_of_its_process(place: Path) -> None:
    with process(FORKED, place) as (made, held):
        made.kill()
        made.wait()
        temporary.sweep()
        assert held.exists()
        os.killpg(made.pid, signal.SIGKILL)
        assert made.stdout is not None
        made.stdout.read()  # until the child has closed its end, too
    with (place / "wait").open("w"):
        while True:  # what the dead had open closes one by one: the output may be earlier than the lock
            handle = os.open(held, os.O_RDONLY)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            os.close(handle)
        os.close(handle)
    temporary.sweep()
    assert not held.exists()


def test_what_is_not_ours_stays_whatever_its_name(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / temporary._MARK).touch()
    (place / "motet-training").mkdir()  # somebody's own, without our mark
    (place / "motet-training" / "results").write_text("x")
    (place / "motet-link").symlink_to(elsewhere)
    (place / "motet-file").write_text("x")
    (place / "motet-loop").mkdir()
    (place / "motet-loop" / temporary._MARK).symlink_to(elsewhere / temporary._MARK)
    (place / "other").mkdir()
    (place / "other" / temporary._MARK).touch()
    before = {path: path.lstat().st_ino for path in place.rglob("*")}
    temporary.sweep()
    assert {path: path.lstat().st_ino for path in place.rglob("*")} == before
    assert list(elsewhere.iterdir()) == [elsewhere / temporary._MARK]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user owns")
@pytest.mark.parametrize("owned", ["folder", "mark"])
def test_another_users_folder_stays(owned: str, place: Path) -> None:
    folder = place / "motet-theirs"
    folder.mkdir()
    (folder / temporary._MARK).touch()
    os.chown(folder if owned == "folder" else folder / temporary._MARK, 54321, 54321)
    temporary.sweep()
    assert folder.exists()


def test_a_link_in_a_left_folder_is_removed_and_not_followed(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x")
    left, lock = temporary.make("motet-")
    (left / "inner").mkdir()
    for link in (left / "link", left / "inner" / "link"):
        link.symlink_to(elsewhere)
    os.close(lock)
    temporary.sweep()
    assert not left.exists()
    assert (elsewhere / "precious").exists()


def test_who_sweeps_at_the_same_time_does_not_fail(place: Path) -> None:
    for _ in range(40):
        left, lock = temporary.make("motet-")
        (left / "file").touch()
        os.close(lock)
    command = [sys.executable, "-c", "from motet.sandbox import temporary\ntemporary.sweep()"]
    environment = os.environ | {"TMPDIR": str(place)}
    sweepers = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(3)]
    assert [sweeper.wait() for sweeper in sweepers] == [0, 0, 0]
    assert list(place.iterdir()) == []


def test_a_folder_that_was_half_removed_can_still_be_swept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, lock = temporary.make("motet-")
    (left / "a").mkdir()
    (left / "a" / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            temporary.remove(left)
    os.close(lock)
    temporary.sweep()
    assert list(place.iterdir()) == []


def test_remove_clears_locked_folders_and_trees_too_deep_for_a_path(tmp_path: Path) -> None:
    place = tmp_path / "top" / "place"
    place.mkdir(parents=True)
    (place / "outside").symlink_to(tmp_path)
    (place / "locked").mkdir()
    (place / "locked" / "file").write_text("x")
    (place / "locked").chmod(0)
    here = os.open(".", os.O_RDONLY)
    os.chdir(place)
    for _ in range(1500):
        Path("deep").mkdir()
        os.chdir("deep")
    os.chdir(here)
    os.close(here)
    temporary.remove(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


SERVER = """
import os, signal, time
from motet.sandbox import scratch
with scratch.folder(["seccomp", "landlock"]) as place:
    open(place.path + "/file", "w").close()
    print(place.path, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has scratch folders")
def test_a_scratch_folder_goes_where_its_server_and_its_watchman_were_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)  # a server has no variables: its place is the usual one
    with process(
        SERVER.replace("print(", "os.kill(place.group, signal.SIGKILL); print("), Path(tempfile.gettempdir())
    ) as (
        made,
        left,
    ):
        with Sandbox(workers=1, maximum=Level.SECCOMP):
            assert (left / "file").exists(), "its server lives"
        made.kill()
        made.wait()
    assert left.exists()
    with Sandbox(workers=1, maximum=Level.SECCOMP):
        assert not left.parent.exists()
