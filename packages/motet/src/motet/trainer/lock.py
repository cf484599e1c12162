"""Allow only one process at a time in a run folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from motet.errors import ConfigError


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes from training in the run folder `path`.

    The kernel's lock on a file beside the folder is held, so it ends with the process, however that
    dies. A file that no process holds means nothing.

    Raises: ConfigError if another process holds the lock, or if the file cannot be created.
    """
    place = Path(os.path.realpath(path))
    made = [parent for parent in place.parents if not parent.exists()]
    lock = FileLock(place.with_name(f".{place.name}.lock"), blocking=False)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ConfigError(
            f"another process uses {path}: wait until it ends, or stop it, then continue with "
            "--resume"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be locked: {error.strerror}; expected a writable folder"
        ) from error
    try:
        yield
    finally:
        # Remove the file while the lock is held: no other process can hold the lock now.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        for parent in made:
            with suppress(OSError):  # the folder is not empty any more
                parent.rmdir()
