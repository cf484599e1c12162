import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from codejudge import Level, Sandbox, temporary

ROOT = Path(__file__).parents[1]
HOLDER = """
import sys, time
from codejudge import temporary
path, lock = temporary.make("app-")
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
    """Start a process with a temporary folder, in its own process group. Yields both."""
    environment = os.environ | {"TMPDIR": str(place)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    ) as made:
        assert made.stdout is not None
        try:
            yield made, Path(made.stdout.readline().strip())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)


def test_a_folder_is_there_in_its_block_and_gone_behind_it(place: Path) -> None:
    with temporary.folder("app-check-") as made:
        (made / "some").mkdir()
        (made / "some" / "file").write_text("x")
        assert list(place.iterdir()) == [made]
        assert made.name.startswith("app-check-")
    with contextlib.suppress(ZeroDivisionError), temporary.folder("app-"):
        raise ZeroDivisionError
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start(place: Path) -> None:
    with process(HOLDER, place) as (made, left):
        with temporary.folder("app-"):
            assert (left / "model" / "weights").exists(), "its process lives"
        made.kill()
        made.wait()
    assert left.exists()
    with temporary.folder("app-") as mine:
        assert list(place.iterdir()) == [mine]


def test_a_folder_lives_as_long_as_a_child_of_its_process(place: Path) -> None:
    with process(FORKED, place) as (made, held):
        made.kill()
        made.wait()
        temporary.sweep("app-")
        assert held.exists()
        os.killpg(made.pid, signal.SIGKILL)
        assert made.stdout is not None
        made.stdout.read()  # until the child has closed its end too
    with (place / "wait").open("w"):
        # A dead process closes its descriptors one by one, possibly the output before the lock.
        while True:
            handle = os.open(held, os.O_RDONLY)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            os.close(handle)
        os.close(handle)
    temporary.sweep("app-")
    assert not held.exists()


def test_what_is_not_ours_stays_whatever_its_name(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    model, lock = temporary.make("app-")
    os.close(lock)
    shutil.copytree(model, place / "app-copy")  # a copy that somebody wanted to keep
    model = model.rename(place / "app-kept")
    (elsewhere / temporary._MARK).write_bytes(temporary._said("app-link"))
    (place / "app-training").mkdir()  # a folder of the user, without our mark
    (place / "app-training" / "results").write_text("x")
    (place / "app-link").symlink_to(elsewhere)
    (place / "app-file").write_text("x")
    (place / "app-loop").mkdir()
    (place / "app-loop" / temporary._MARK).symlink_to(elsewhere / "mark")
    (elsewhere / "mark").write_bytes(temporary._said("app-loop"))
    (place / "app-pipe").mkdir()
    os.mkfifo(place / "app-pipe" / temporary._MARK)
    (place / "other").mkdir()
    (place / "other" / temporary._MARK).write_bytes(temporary._said("other"))
    before = {path: path.lstat().st_ino for path in place.rglob("*")}
    temporary.sweep("app-")
    assert {path: path.lstat().st_ino for path in place.rglob("*")} == before
    assert sorted(elsewhere.iterdir()) == [elsewhere / temporary._MARK, elsewhere / "mark"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user owns")
@pytest.mark.parametrize("owned", ["folder", "mark"])
def test_another_users_folder_stays(owned: str, place: Path) -> None:
    folder, lock = temporary.make("app-theirs-")
    os.close(lock)
    os.chown(folder if owned == "folder" else folder / temporary._MARK, 54321, 54321)
    temporary.sweep("app-")
    assert folder.exists()
    os.chown(folder if owned == "folder" else folder / temporary._MARK, 0, 0)
    temporary.sweep("app-")
    assert not folder.exists()


def test_a_folder_of_another_machine_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared file system, each machine may see its own locks only."""
    folder, lock = temporary.make("app-")
    os.close(lock)
    with monkeypatch.context() as patch:
        patch.setattr(temporary, "_said", lambda name: f"another.machine\n{name}\n".encode())
        temporary.sweep("app-")
    assert folder.exists()
    temporary.sweep("app-")
    assert not folder.exists()


def test_who_makes_a_folder_waits_for_who_looks_at_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a folder and its mark, another process may briefly hold the lock."""
    looked = threading.Event()
    flock = fcntl.flock

    def late(handle: int, operation: int) -> None:
        if threading.current_thread() is maker:
            other = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY)
            flock(other, fcntl.LOCK_EX)
            threading.Timer(0.05, lambda: (looked.set(), os.close(other))).start()
        flock(handle, operation)

    made: list[tuple[Path, int]] = []
    maker = threading.Thread(target=lambda: made.append(temporary.make("app-")))
    monkeypatch.setattr(fcntl, "flock", late)
    maker.start()
    maker.join()
    ((folder, lock),) = made
    assert looked.is_set()
    assert (folder / temporary._MARK).exists()
    temporary.sweep("app-")
    assert folder.exists()
    os.close(lock)
    temporary.sweep("app-")
    assert not folder.exists()


def test_a_place_that_cannot_be_listed_or_is_none_stops_nobody(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    for gone in (lambda: str(place / "absent"), none):
        monkeypatch.setattr(tempfile, "gettempdir", gone)
        temporary.sweep("app-")


def test_folders_beside_another_are_swept_by_its_name(tmp_path: Path) -> None:
    for prefix, suffix in ((".mine.", ".writing"), (".theirs.", ".writing"), (".mine.", ".other")):
        os.close(temporary.make(prefix, suffix, tmp_path)[1])
    with temporary.folder(".mine.", ".writing", tmp_path) as made:
        others = [path for path in tmp_path.iterdir() if path != made]
        assert sorted((path.name[:6], path.suffix) for path in others) == [
            (".mine.", ".other"),
            (".their", ".writing"),
        ]


def test_a_link_in_a_left_folder_is_removed_and_not_followed(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x")
    left, lock = temporary.make("app-")
    (left / "inner").mkdir()
    for link in (left / "link", left / "inner" / "link"):
        link.symlink_to(elsewhere)
    os.close(lock)
    temporary.sweep("app-")
    assert not left.exists()
    assert (elsewhere / "precious").exists()


def test_who_sweeps_at_the_same_time_does_not_fail(place: Path) -> None:
    for _ in range(40):
        left, lock = temporary.make("app-")
        (left / "file").touch()
        os.close(lock)
    command = [sys.executable, "-c", "from codejudge import temporary\ntemporary.sweep('app-')"]
    environment = os.environ | {"TMPDIR": str(place)}
    sweepers = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(3)]
    assert [sweeper.wait() for sweeper in sweepers] == [0, 0, 0]
    assert list(place.iterdir()) == []


def test_a_folder_that_was_half_removed_can_still_be_swept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, lock = temporary.make("app-")
    (left / "a").mkdir()
    (left / "a" / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            temporary.remove(left)
    os.close(lock)
    temporary.sweep("app-")
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


def test_a_folder_that_cannot_be_removed_is_no_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    with monkeypatch.context() as patch, temporary.folder("app-") as left:
        patch.setattr(temporary, "remove", refuse)
    assert left.exists()
    temporary.sweep("app-")
    assert not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("options", ["mode=1733", "ro"])
def test_a_server_starts_where_its_temporary_folder_cannot_be_used(options: str) -> None:
    program = (
        "from codejudge import Call, Returned, Sandbox\n"
        "with Sandbox(workers=1, user=54321) as sandbox:\n"
        "    print(sandbox.run_sync(['def main(): return 7'], [Call('main')]).calls)\n"
    )
    # The interpreter and the sources may be in a temporary folder, which the mounts would hide.
    # So they are also mounted elsewhere.
    apart = next(
        place
        for place in (Path("/mnt"), Path("/media"))
        if place.is_dir() and place not in ROOT.parents
    )
    seen = {Path(sys.prefix): apart / "environment", ROOT: apart / "sources"}
    mounts = [f"mount -t tmpfs none {apart}"]
    mounts += [
        f"mkdir {there} && mount --bind {shlex.quote(str(here))} {there}"
        for here, there in seen.items()
    ]
    mounts += [f"mount -t tmpfs -o {options} none {place}" for place in ("/tmp", "/var/tmp")]
    hidden = " && ".join(mounts)
    if (
        subprocess.run(
            ["unshare", "-m", "sh", "-c", hidden], capture_output=True, check=False
        ).returncode
        != 0
    ):
        pytest.skip("this machine lets nobody mount")
    python = apart / "environment" / Path(sys.executable).relative_to(sys.prefix)
    command = ["unshare", "-m", "sh", "-c", f'{hidden} && cd / && exec {python} -c "$0"', program]
    environment = os.environ | {"PYTHONPATH": str(apart / "sources")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "(Returned(value=7),)", done.stderr


SERVER = """
import os, signal, time
from codejudge import scratch
with scratch.folder(["seccomp", "landlock"]) as place:
    open(place.path + "/file", "w").close()
    print(place.path, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has scratch folders")
def test_a_scratch_folder_goes_where_its_server_and_its_watcher_were_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A server has an empty environment, so it uses the default folder.
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    with process(
        SERVER.replace("print(", "os.kill(place.group, signal.SIGKILL); print("),
        Path(tempfile.gettempdir()),
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
