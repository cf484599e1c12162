"""An error of another package becomes a fault that names the package; Motet's own pass."""

import pytest

from motet.errors import ConfigError, EnvironmentFault, RewardFault
from motet_foreign.boundary import PackageFault, inside, needed


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (IndexError("no such pile"), False),
        (ConnectionResetError("gone"), True),
        (TimeoutError(), True),
    ],
)
def test_an_error_becomes_a_fault_with_the_name_of_the_package(error, may_pass):
    with pytest.raises(PackageFault) as told, inside("chess"):
        raise error
    name = type(error).__name__
    assert str(told.value) == f"chess raised {name}: {error}"
    assert isinstance(told.value, EnvironmentFault)
    assert (told.value.cause, told.value.may_pass) == (f"chess.{name}", may_pass)
    assert told.value.__cause__ is error


@pytest.mark.parametrize("error", [RewardFault("no score"), ConfigError("wrong key")])
def test_an_error_of_motet_stays_what_it_is(error):
    with pytest.raises(type(error)) as told, inside("chess"):
        raise error
    assert told.value is error


def test_a_package_that_is_missing_is_one_line_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "textarena", None)
    with pytest.raises(ConfigError) as told:
        needed("textarena")
    assert str(told.value).startswith("the environment textarena needs the package textarena: ")
    assert str(told.value).endswith("; pip install 'motet-foreign[textarena]'")
    assert "\n" not in str(told.value)
