"""Values, texts and changes that no author of a config, a row or an answer would write.

Also a time limit for tests.
"""

import copy
import faulthandler
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import process_time
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

ODD_TEXTS = (
    "", " ", "\0", "\ud800", "\udfff\ud800", "\u202e}{dexob\\", "\ufeff", "\x1b[31m", "é中🎵",
    "\r\n", "null", "~", "no", "1e999", "-0", "0x" + "f" * 5000, "9" * 10_000, "a" * 5000,
    "/" * 300, "../" * 40, "/dev/zero", "~root/x", "file:///etc/passwd", "http://[",
    "{}", "{0.__class__}", "%s%n", "${HOME}", "$(id)", "`id`", "train[:9" + "9" * 5000 + "]",
    "train[::]", "test[-5%:101%]", "a:b", ":", "..:x", "./nothing.py:X", "os:system", "\0:x",
    "&a [*a]", "!!python/object/apply:os.system [id]", "- - - -", "?", "%YAML 9.9",
)  # fmt: skip
ODD_NUMBERS = (
    0, -1, 1, 2, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.0, -0.0, 1e-320, 1e308, float("inf"),
    float("-inf"), float("nan"),
)  # fmt: skip
ODD_VALUES = (
    None, True, False, [], {}, [[]], [None], {"": None}, {"name": None}, [{}],
    {"a": {"b": {"c": []}}}, [0, "0", 0.0], ["a", "a"],
)  # fmt: skip


def one_of(things: Sequence[Any]) -> SearchStrategy[Any]:
    """Like `sampled_from`. That strategy would print all items, repeatedly, in its name."""
    return st.integers(0, len(things) - 1).map(lambda place: things[place])


def texts() -> SearchStrategy[str]:
    """Draw short strings of any characters, surrogates included, and odd strings known to cause
    errors."""
    return one_of(ODD_TEXTS) | st.text(st.characters(), max_size=12)


def values() -> SearchStrategy[Any]:
    """Draw any value of JSON or YAML; some are very large or very deep."""
    plain = one_of((*ODD_NUMBERS, *ODD_VALUES)) | texts() | st.integers() | st.floats()
    nested = st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
    )
    return plain | nested | one_of((60, 200)).map(_deep)


def _deep(depth: int) -> Any:
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


Path = tuple[str | int, ...]


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every key of a nested value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


@st.composite
def changed(draw: DrawFn, sound: Any, others: SearchStrategy[Any]) -> Any:
    """Draw `sound` with one to four keys dropped, renamed, moved, or set to another value."""
    value = copy.deepcopy(sound)
    for _ in range(draw(st.integers(1, 4))):
        known = list(places(value))
        if not known:
            return value
        *above, key = draw(one_of(known))
        inside: Any = value
        for step in above:
            inside = inside[step]
        match draw(
            one_of(("replace", "replace", "replace", "drop", "rename", "wrap", "repeat", "move"))
        ):
            case "replace":
                inside[key] = copy.deepcopy(draw(others))
            case "drop":
                del inside[key]
            case "rename" if isinstance(inside, dict):
                inside[draw(texts() | st.just(f"{key}s") | st.just(str(key)[1:]))] = inside.pop(key)
            case "wrap":
                inside[key] = draw(
                    one_of(([inside[key]], {str(key): inside[key]}, str(inside[key])))
                )
            case "repeat" if isinstance(inside[key], list | str) and len(inside[key]) < 500:
                inside[key] = inside[key] * draw(one_of((2, 5, 200)))
            case "move":
                value[draw(one_of(list(value)))] = copy.deepcopy(inside[key])
    return value


def repeatable(cases: int) -> Callable[..., Any]:
    """Run this number of cases, the same in every run. hypothesis prints a failing case, shrunk."""
    slow = [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ]
    return settings(
        max_examples=cases,
        phases=(Phase.generate, Phase.shrink),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=slow,
        print_blob=False,
        report_multiple_bugs=False,
    )


def check_lines(text: str, most: int = 2000) -> None:
    """Check that lines are short. A line that repeats a whole long value is not readable."""
    longest = max(text.splitlines(), key=len)
    assert len(longest) < most, f"a line of {len(longest)} characters: {longest[:300]}"


class _TooLong(BaseException):
    """Not an Exception, so that the code under test does not handle it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the CPU time of the context, and its wall time to twelve times as much.

    Tests share their machine, so a limit of wall time alone would fail a case because of other
    processes. If the code cannot be interrupted, the process ends and prints its stack.
    Raises: AssertionError if the limit is exceeded.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = [signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)]
    begun = process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 12 * seconds)
    faulthandler.dump_traceback_later(20 * seconds + 60, exit=True, file=sys.__stderr__)
    try:
        yield
    except _TooLong as rung:
        raise AssertionError(f"this takes more than {seconds:g} s") from rung
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
    taken = process_time() - begun
    assert taken <= seconds, (
        f"this took {taken:.1f} s, and no signal could end it: expected {seconds:g} s at most"
    )


class Endings:
    """Counts how cases ended, for the table.

    A case that hypothesis repeats while it shrinks a failure counts again.
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def columns(self) -> dict[str, str]:
        return {
            "cases": str(self.count.total()),
            "endings": ", ".join(f"{n} {how}" for how, n in self.count.most_common()),
        }
