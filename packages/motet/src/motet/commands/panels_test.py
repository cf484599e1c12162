"""`motet --help` groups the commands by purpose, and `motet` alone says what to type first."""

import shlex

import pytest
import typer

from motet.commands.main import main, whole_app
from motet.commands.panels import OTHERS, PANELS, panel_of
from motet.commands.starting import FIRST
from motet.user_code.installed import EXTRAS


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.argv", shlex.split(line))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return capsys.readouterr().out


def test_every_command_of_motet_has_one_group() -> None:
    listed = [name for names in PANELS.values() for name in names]
    assert len(listed) == len(set(listed))
    own = {one.name or one.callback.__name__ for one in whole_app().registered_commands}
    extra = {name for groups in EXTRAS.values() for name in groups.get("commands", ())}
    assert set(listed) == own | extra


def test_a_command_of_somebody_else_is_in_a_group_of_its_own() -> None:
    assert panel_of("train") == "Train"
    assert panel_of("prices") == OTHERS


def test_the_help_has_the_groups_and_their_commands_in_order(monkeypatch, capsys) -> None:
    lines = said(monkeypatch, capsys, "motet --help").splitlines()
    titles = [line.strip("╭─╮ ") for line in lines if line.startswith("╭")]
    assert titles == ["Options", *PANELS]
    words = [line.split()[1] for line in lines if line.startswith("│ ") and line[2] != " "]
    commands = [word for word in words if not word.startswith("-")]
    assert commands == [name for names in PANELS.values() for name in names]


def test_motet_alone_names_three_commands_that_exist(monkeypatch, capsys) -> None:
    found = said(monkeypatch, capsys, "motet")
    assert len(FIRST) == 3
    commands = typer.main.get_command(whole_app()).commands
    for line in FIRST:
        assert f"  {line}  " in found
        _, name, *rest = shlex.split(line)
        commands[name].make_context(name, rest)  # refuses what it does not know
    assert len(found.splitlines()) <= 8
