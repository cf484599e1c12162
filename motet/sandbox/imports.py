"""What modules a program's text names in import statements: they are imported before the program runs, because later none can be.

A generous reading of text, not a parse: a word too many costs a needless import, and texts that do not parse are read as well.
The host reads; it never imports.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

_IMPORT = re.compile(r"\bimport[ \t]+([\w., \t]+)")
_FROM_IMPORT = re.compile(r"\bfrom[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(([^)]{,2000})|([\w, \t]+))")
_MOST = 200
"""A program must not be able to use up its time before it begins: that would look like a fault of ours."""


def named(sources: Sequence[str]) -> list[str]:
    """Every name after `import` or `from`, and what a `from` may mean by a name: a module inside a package."""
    return list(dict.fromkeys(name for name, _ in known(sources)))


def known(sources: Sequence[str]) -> list[tuple[str, str]]:
    """Every name as `named` has it, with each word by which the text may know it: its last part, or what stands after `as`."""
    pairs = (pair for source in sources if "import" in source for pair in _known(source))
    return list(itertools.islice(dict.fromkeys(pairs), _MOST))


def _known(source: str) -> Iterator[tuple[str, str]]:
    for match in _IMPORT.finditer(source):
        for name, word in _entries(match[1]):
            yield name, word
    for match in _FROM_IMPORT.finditer(source):
        yield match[1], match[1].rpartition(".")[2]
        for member, word in _entries(match[2] or match[3] or ""):
            yield f"{match[1]}.{member}", word


def _entries(listing: str) -> Iterator[tuple[str, str]]:
    for entry in listing.split(","):
        match entry.split():
            case [name, "as", alias, *_]:
                yield name, alias
            case [name, *_]:
                yield name, name.rpartition(".")[2]
