"""Where an exception was raised in the user's own code."""

import sysconfig
import traceback

from motet.user_code import own_packages

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib")})
_MOST = 8000
"""Maximum characters of a traceback that is recorded; its end is kept."""


def origin(error: BaseException) -> BaseException:
    """Return the exception that user code raised: the cause of Motet's own, the first of a
    group."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None and own_packages.is_ours(type(error).__module__):
            error = error.__cause__
        else:
            return error


def place_of_error(error: BaseException) -> str:
    """Return `FILE:LINE in FUNCTION: CODE`, or "" if no line is known.

    The line is the last one outside Motet and the libraries. If there is none, it is the last line
    of all, unless the error is Motet's own and explains itself.
    """
    first = origin(error)
    frames = traceback.extract_tb(first.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    if not own and (not frames or own_packages.is_ours(type(first).__module__)):
        return ""
    frame = (own or frames)[-1]
    code = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}:{frame.lineno} in {frame.name}{code}"


def trace_of(error: BaseException) -> str:
    """Return the whole traceback as text, shortened at its beginning if it is very long."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= _MOST else f"...{text[-_MOST:]}"


def _is_users(file: str) -> bool:
    inside = (
        file.startswith((*map(str, own_packages.folders()), *_LIBRARIES)) or "-packages" in file
    )
    # Tests of the package lie beside its code and play the user.
    return not file.startswith("<") and (not inside or file.endswith("_test.py"))
