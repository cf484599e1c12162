"""Reading a file that somebody named: a regular file, of no more bytes than such a file has.

A device or a pipe may have no end, or never begin, and a file without a limit may be as large as the disk.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from motet.errors import ConfigError

CONFIG = 10 << 20
"""Bytes of a config, of a card, of a manifest: what a person writes, or a program about one thing."""
ROWS = 8 << 30
"""Bytes of rows, records and metrics, which are held in memory."""
WEIGHTS = 1 << 40
"""Bytes of one file of weights, which is mapped and not read."""


def open_regular(path: Path, most: int) -> BinaryIO:
    """The file, open. Raises: ConfigError where it is no regular file or has more than `most` bytes; OSError."""
    _check(path, path.stat(), most)
    # Between the look and the opening it may have become a pipe, which would wait for somebody to write.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(handle), most)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, most: int) -> bytes:
    """All of it. Raises: as `open_regular`."""
    with open_regular(path, most) as file:
        content = file.read(most + 1)  # files of the kernel say that they have no bytes
    if len(content) > most:
        raise _too_large(path, most)
    return content


def read_text(path: Path, most: int = CONFIG) -> str:
    """The same as UTF-8. Raises: as `open_regular`, and UnicodeDecodeError."""
    return read_bytes(path, most).decode("utf-8")


def read_json(path: Path, most: int = CONFIG) -> Any:
    """Raises: as `read_text`; ConfigError for JSON that is broken or nested too deeply."""
    try:
        return json.loads(read_text(path, most))
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{path} is not JSON in UTF-8: {said}") from error


def check_regular(path: Path, most: int) -> None:
    """For a file that a library opens. Raises: as `open_regular`, also where it may not be read."""
    open_regular(path, most).close()


def _check(path: Path, found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} is {_kind(found.st_mode)}; expected a regular file")
    if found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> ConfigError:
    return ConfigError(f"{path} is larger than {_sized(most)}, the most that is read of such a file")


def _sized(count: int) -> str:
    return f"{count >> 30} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def _kind(mode: int) -> str:
    kinds = {
        "a folder": stat.S_ISDIR,
        "a pipe": stat.S_ISFIFO,
        "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
        "a socket": stat.S_ISSOCK,
    }
    return next((name for name, fits in kinds.items() if fits(mode)), "something else")
