"""Environments, rewards and comparators are found by one rule."""

from importlib.metadata import EntryPoint

import pytest

from motet.errors import ConfigError
from motet.user_code import installed
from motet.user_code.looking import looking
from motet.user_code.named_parts import find_part
from tests.fixtures.messages import facts, says

GROUPS = ("environments", "rewards", "comparators")


@pytest.fixture
def registered(monkeypatch):
    """Let only these names be registered, for the class dict, in every group."""

    def register(*names: str) -> None:
        monkeypatch.setattr(
            installed,
            "entry_points",
            lambda group: [EntryPoint(name, "builtins:dict", group) for name in names],
        )
        installed.installed.cache_clear()

    yield register
    monkeypatch.undo()
    installed.installed.cache_clear()


@pytest.mark.parametrize("group", GROUPS)
def test_a_part_has_a_registered_name_or_is_at_a_reference(registered, group, tmp_path):
    registered("chess", "go")
    (tmp_path / "own.py").write_text("class Mine:\n    pass\n")
    assert find_part(group, "chess", "key") is dict
    assert find_part(group, "collections:OrderedDict", "key").__name__ == "OrderedDict"
    assert find_part(group, "./own.py:Mine", "key", tmp_path).__name__ == "Mine"


@pytest.mark.parametrize("group", GROUPS)
def test_an_unknown_name_is_one_line_with_those_that_are_known(registered, group):
    registered("chess", "go")
    with pytest.raises(ConfigError) as refused:
        find_part(group, "ches", "part.name")
    assert says(
        refused.value,
        "part.name … 'ches' … 'chess' … chess, go, package.module:NAME … ./file.py:NAME",
    )
    registered()
    with pytest.raises(ConfigError) as refused:
        find_part(group, "ches", "part.name")
    assert says(refused.value, "part.name … 'ches' … package.module:NAME … ./file.py:NAME")
    with pytest.raises(ConfigError, match=r"^part\.name: '?no_such\.module:Mine"):
        find_part(group, "no_such.module:Mine", "part.name")


@pytest.mark.parametrize(
    ("group", "name", "package"),
    [("environments", "debate", "tasks"), ("comparators", "comlrl", "published")],
)
def test_a_name_of_a_missing_package_names_the_extra(registered, group, name, package):
    registered("chess")
    with pytest.raises(ConfigError) as refused:
        find_part(group, name, "part.name")
    assert str(refused.value) == (
        f"part.name is {name!r}: it is in motet-{package}: pip install 'motet[{package}]'; "
        "expected one of chess, package.module:NAME or ./file.py:NAME"
    )


def test_a_registered_part_may_be_looked_at_and_a_reference_may_not(registered):
    registered("chess")
    with looking():
        assert find_part("comparators", "chess", "key") is dict
        with pytest.raises(ConfigError, match=facts("collections:OrderedDict … code … not loaded")):
            find_part("comparators", "collections:OrderedDict", "key")
