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
    names = (name for source in sources if "import" in source for name in _named(source))
    return list(itertools.islice(dict.fromkeys(names), _MOST))


def _named(source: str) -> Iterator[str]:
    for match in _IMPORT.finditer(source):
        yield from _first_words(match[1])
    for match in _FROM_IMPORT.finditer(source):
        yield match[1]
        for member in _first_words(match[2] or match[3] or ""):
            yield f"{match[1]}.{member}"


def _first_words(listing: str) -> Iterator[str]:
    for entry in listing.split(","):
        yield from entry.split()[:1]
