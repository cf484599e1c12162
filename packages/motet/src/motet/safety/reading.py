"""Safe reading of files whose path comes from a user.

Only regular files up to a size limit are read. A device or a pipe may be endless or may block, and
a file may be as large as the disk.
"""

import json
import os
import stat
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from motet.errors import ConfigError

CONFIG = 10 << 20
"""Size limit in bytes of configs, dataset cards, manifests and other small files."""
ROWS = 8 << 30
"""Size limit in bytes of rows, records and metrics, which are loaded into memory."""
WEIGHTS = 1 << 40
"""Size limit in bytes of one weight file, which is memory-mapped."""
LINE = 256 << 20
"""Size limit in bytes of one line of rows, records and metrics."""
_PART = 1 << 20
"""Bytes that are read at once from a file that is longer than it reports."""


def open_regular(path: Path, most: int) -> BinaryIO:
    """Open a regular file. Raises: ConfigError if it is not a regular file or has more than `most`
    bytes; OSError."""
    _check(path, path.stat(), most)
    # The file may have been replaced by a pipe since the check. O_NONBLOCK avoids waiting for a
    # writer.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(handle), most)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, most: int) -> bytes:
    """Return the content of a file. Raises: as `open_regular`."""
    with open_regular(path, most) as file:
        content = read_up_to(file, most + 1)
    if len(content) > most:
        raise _too_large(path, most)
    return content


def read_up_to(file: BinaryIO, most: int) -> bytes:
    """Return the rest of a regular file, or its first `most` bytes.

    `file.read(most)` would allocate `most` bytes before it reads, whatever the size of the file. A
    process may have less address space than that (`ulimit -v`).
    """
    left = max(0, os.fstat(file.fileno()).st_size - file.tell())
    content = file.read(min(left, most))
    parts = [content] if content else []
    missing = most - len(content)
    # The file may have grown, and files in /proc report a size of 0.
    while missing > 0 and (part := file.read(min(_PART, missing))):
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_lines(path: Path, most: int) -> Iterator[bytes]:
    """Yield the lines of a file with their ends. Only line feeds end a line.

    A file may be large and have no line, such as a sparse one. It is not read whole.

    Raises: as `open_regular`; ConfigError that names a line with more than `LINE` bytes.
    """
    with open_regular(path, most) as file:
        number = 1
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                raise ConfigError(
                    f"{path}, line {number} is longer than {_sized(LINE)}; expected shorter lines"
                )
            yield line
            number += 1


def read_text(path: Path, most: int = CONFIG) -> str:
    """Return the content of a UTF-8 file as a string. Raises: as `open_regular`;
    UnicodeDecodeError."""
    return read_bytes(path, most).decode("utf-8")


def read_json(path: Path, most: int = CONFIG) -> Any:
    """Parse a JSON file. Raises: as `open_regular`; ConfigError for invalid or too deeply nested
    JSON."""
    return parse_json(path, read_bytes(path, most))


def parse_json(path: Path, content: bytes) -> Any:
    """Parse the content of a JSON file. Raises: ConfigError that names the file for invalid or too
    deeply nested JSON."""
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{path} is not JSON in UTF-8: {said}") from error


def check_regular(path: Path, most: int) -> None:
    """Check a file that a library will open. Raises: as `open_regular`, also if there is no read
    permission."""
    open_regular(path, most).close()


def _check(path: Path, found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} is {_kind(found.st_mode)}; expected a regular file")
    if found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> ConfigError:
    return ConfigError(f"{path} is larger than {_sized(most)}; expected at most this size")


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


def keep_odd_bytes(stream: TextIO | None) -> None:
    """Let reading a stream go on where its bytes are no text: they become lone surrogates.

    So a line in another encoding is refused by whoever reads its text, and not with an exception
    of Python.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="surrogateescape")
