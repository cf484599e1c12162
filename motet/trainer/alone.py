"""One process at a time in a run folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from motet.errors import ConfigError


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other process trains in the run folder `path` meanwhile.

    What is held is the kernel's lock on a file beside the folder, so it ends with the process, however that dies; a file that
    nobody holds means nothing. Raises: ConfigError where another process holds it, or no file can be made.
    """
    place = Path(os.path.realpath(path))
    made = [parent for parent in place.parents if not parent.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(place.with_name(f".{place.name}.lock"))
    except BlockingIOError as error:
        raise ConfigError(
            f"another process is at work in {path}: let it end, or stop it, and then go on with --resume"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be kept from other processes: {error.strerror}; expected a folder that can be written to"
        ) from error
    try:
        yield
    finally:
        place.with_name(f".{place.name}.lock").unlink(
            missing_ok=True
        )  # while it is held: nobody else can have begun to hold it
        os.close(lock)
        for parent in made:
            with suppress(OSError):  # there is something in it now
                parent.rmdir()


def _locked(path: Path) -> int:
    """A descriptor that holds the lock on `path`. Raises: BlockingIOError where another one does."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(lock)):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # whoever held it has just removed it
