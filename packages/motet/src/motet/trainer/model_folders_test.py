import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from motet.trainer.model_folders import whole_folder
from tests.fork_server import ForkedProcess

WRITER = """
import sys, time
from pathlib import Path
from motet.trainer.model_folders import whole_folder
from tests.fork_server import ForkedProcess
with whole_folder(Path(sys.argv[1])) as folder:
    (folder / "weights").write_text("half")
    print("begun", flush=True)
    time.sleep(600)
"""


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "runs" / "team"
    for text in ("old", "new"):
        with whole_folder(final) as folder:
            (folder / "weights").write_text(text)
        assert [path.name for path in final.parent.iterdir()] == ["team"]
        assert {path.name: path.read_text() for path in final.iterdir()} == {"weights": text}
    with contextlib.suppress(ZeroDivisionError), whole_folder(final) as folder:
        (folder / "weights").write_text("half")
        raise ZeroDivisionError
    assert [path.name for path in final.parent.iterdir()] == ["team"]
    assert (final / "weights").read_text() == "new"


def test_what_a_killed_process_left_beside_a_folder_goes_with_the_next_one(tmp_path: Path) -> None:
    final = tmp_path / "team"
    (tmp_path / ".team.mine.writing").mkdir()  # a folder of the user
    command = [sys.executable, "-c", WRITER, str(final)]
    with ForkedProcess(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[5]
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        (left,) = (path for path in tmp_path.iterdir() if path.name != ".team.mine.writing")
        with whole_folder(final) as folder:
            assert left.exists(), "its process lives"
            (folder / "weights").write_text("whole")
        writer.kill()
    assert left.exists()
    with whole_folder(final) as folder:
        (folder / "weights").write_text("again")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".team.mine.writing", "team"]


def test_a_full_disk_is_reported_with_the_folder_that_could_not_be_written(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a failed write raises it
    with pytest.raises(OSError, match="No space left") as failed, whole_folder(tmp_path / "team"):
        raise full
    assert failed.value.filename == str(tmp_path / "team")
    assert list(tmp_path.iterdir()) == []
