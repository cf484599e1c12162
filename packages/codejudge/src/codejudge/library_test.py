import datetime
import json
import math
import types

import pytest

from codejudge.library import known_error, library_class, meaning, pure


def test_a_bare_name_means_a_module_or_what_an_exported_module_defines() -> None:
    assert meaning("json") is json
    assert meaning("dt") is datetime
    assert meaning("isclose") is math.isclose
    with pytest.raises(KeyError):
        meaning("nothing_of_this_name")


def test_only_harmless_modules_give_their_own_functions() -> None:
    assert pure("math", "sqrt") is math.sqrt
    assert pure("json", "loads") is None
    assert pure("math", "nothing_of_this_name") is None


def test_an_exception_of_the_library_is_the_judges_own_unless_it_ends_a_test_run() -> None:
    assert known_error("json.decoder", "JSONDecodeError") is json.JSONDecodeError
    assert known_error("builtins", "BaseException") is Exception
    for module, name in (
        ("builtins", "SystemExit"),
        ("unittest.case", "SkipTest"),
        ("builtins", "int"),
        ("codejudge.errors", "SandboxError"),
    ):
        assert known_error(module, name) is None


def test_an_object_of_the_library_has_the_judges_own_class() -> None:
    assert library_class("builtins", "function") is types.FunctionType
    assert library_class("types", "SimpleNamespace") is types.SimpleNamespace
    assert library_class("builtins", "int") is None, "an int is sent by value"
    assert library_class("unittest.case", "TestCase") is None
