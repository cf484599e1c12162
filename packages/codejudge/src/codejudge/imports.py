"""Find the modules that a program's import statements name.

The child imports them before the program runs, because afterwards no import is possible.

We search the source with regular expressions and do not parse it. So this also works for sources
with syntax errors. A false match only costs a needless import. This runs on the host, which never
imports the modules.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

_IMPORT = re.compile(r"\bimport[ \t]+([\w., \t]+)")
_FROM_IMPORT = re.compile(r"\bfrom[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(([^)]{,2000})|([\w, \t]+))")
_MOST = 200
"""Maximum number of names.

Otherwise a program could use up the set-up time with imports before it starts, and that would look
like a fault of the sandbox.
"""


def named(sources: Sequence[str]) -> list[str]:
    """Return every module name after `import` or `from`.

    `from a import b` also gives `a.b`, because `b` may be a module in the package `a`.
    """
    return list(dict.fromkeys(name for name, _ in known(sources)))


def known(sources: Sequence[str]) -> list[tuple[str, str]]:
    """Return every name of `named`, paired with each local name of it in the source.

    The local name is the last part of the name, or the name after `as`.
    """
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
