"""The user's own line in an exception."""

import json

import pytest

from motet.errors import EnvironmentFault, RewardFault
from motet.user_code.own_code import origin, place_of_error, trace_of


def broken() -> float:
    return 1 / 0


def raised(action) -> Exception:
    with pytest.raises(Exception) as caught:
        action()
    return caught.value


def from_motet():
    try:
        broken()
    except ZeroDivisionError as error:
        raise RewardFault("reward score failed") from error


def test_the_place_is_file_line_function_and_code():
    line = broken.__code__.co_firstlineno + 1
    assert place_of_error(raised(broken)) == f"{__file__}:{line} in broken: return 1 / 0"


def test_frames_of_libraries_are_not_the_users():
    place = place_of_error(raised(lambda: json.loads("{")))
    assert place.startswith(f"{__file__}:")
    assert "json.loads" in place


def test_the_cause_of_motets_own_error_counts():
    error = raised(from_motet)
    assert type(origin(error)) is ZeroDivisionError
    assert "in broken: return 1 / 0" in place_of_error(error)
    assert "The above exception was the direct cause" in trace_of(error)


def test_an_exception_group_counts_as_its_first():
    group = ExceptionGroup("tasks", [raised(broken), ValueError("x")])
    assert "in broken" in place_of_error(group)


def test_an_error_that_was_never_raised_has_no_place():
    assert place_of_error(EnvironmentFault("made by hand")) == ""
