"""Read the new lines of a file that another process may be writing.

A position is remembered. So a file that grows is never read twice, and one line is in memory at a
time.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from motet.safety.reading import LINE, WEIGHTS, open_regular, read_up_to

LONGEST = LINE
"""Longest line in bytes. With a longer one the rest of the file counts as one broken line: the file
may be sparse and as large as a disk, and nobody should wait for its end."""
_TAIL = 64
"""Number of bytes before the position that must still be the same, or the file was rewritten."""


@dataclass(frozen=True)
class ReadPosition:
    """How far a file has been read."""

    inode: int = 0
    size: int = 0
    changed_ns: int = 0
    offset: int = 0
    """The end of the last whole line, in bytes."""
    tail: bytes = b""
    """The last bytes before `offset`."""


@dataclass(frozen=True)
class Line:
    """One whole line. `text` is None if it is longer than LONGEST."""

    offset: int
    length: int
    text: bytes | None


def is_unchanged(path: Path, before: ReadPosition) -> bool:
    """Return whether the file has not been written since `before`. Raises: OSError."""
    now = path.stat()
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (
        before.inode,
        before.size,
        before.changed_ns,
    )


def continued(path: Path, before: ReadPosition) -> ReadPosition:
    """Return where to go on reading, with the file's present state.

    `offset` is 0 if the file was replaced or rewritten. Raises: OSError, ConfigError.
    """
    now = path.stat()
    offset, tail = 0, b""
    if before.inode == now.st_ino and before.offset <= now.st_size:
        with open_regular(path, WEIGHTS) as file:
            file.seek(before.offset - len(before.tail))
            if file.read(len(before.tail)) == before.tail:
                offset, tail = before.offset, before.tail
    return ReadPosition(now.st_ino, now.st_size, now.st_mtime_ns, offset, tail)


def lines_from(path: Path, offset: int) -> Iterator[Line]:
    """Yield the whole lines from a position. A last line without its end is left for later. The
    rest of the file is skipped with a line that is longer than LONGEST.

    Raises: OSError, ConfigError.
    """
    with open_regular(path, WEIGHTS) as file:
        file.seek(offset)
        while True:
            text = file.readline(LONGEST)
            length, whole = len(text), text.endswith(b"\n")
            if not whole and length >= LONGEST:
                yield Line(offset, os.fstat(file.fileno()).st_size - offset, None)
                return
            if not whole:
                return
            yield Line(offset, length, text)
            offset += length


def after(position: ReadPosition, line: Line) -> ReadPosition:
    """Return the position behind a line."""
    tail = position.tail if line.text is None else line.text[-_TAIL:]
    return ReadPosition(
        position.inode,
        position.size,
        position.changed_ns,
        line.offset + line.length,
        b"" if line.text is None else tail,
    )


def line_at(path: Path, offset: int, length: int) -> bytes:
    """Return one line by its place. Raises: OSError, ConfigError."""
    with open_regular(path, WEIGHTS) as file:
        file.seek(offset)
        return read_up_to(file, length)
