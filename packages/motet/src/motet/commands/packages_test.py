"""Commands and configs of other people's packages."""

from importlib.metadata import EntryPoint

import pytest
import typer

from motet.commands import main
from motet.config import paths
from motet.config.load import load_target
from motet.errors import ConfigError
from motet.user_code import installed
from tests.fixtures.messages import facts, says


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch):
    """Return a function that registers entry points in a group: (group, name -> where)."""

    def register(group: str, points: list[tuple[str, str]]) -> None:
        found = [EntryPoint(name, value, f"motet.{group}") for name, value in points]
        monkeypatch.setattr(
            installed, "entry_points", lambda group: found if group == found[0].group else []
        )
        installed.installed.cache_clear()

    monkeypatch.setattr(main, "whole_app", main.whole_app.__wrapped__)
    monkeypatch.setattr(main, "app", typer.Typer())
    main.app.command("train")(lambda: None)
    yield register
    monkeypatch.undo()
    installed.installed.cache_clear()


def test_a_command_of_motet_is_not_replaced(registered):
    registered("commands", [("train", "somebody.module:train")])
    with pytest.raises(ConfigError, match="registers the command 'train', which Motet has itself"):
        main.whole_app()


def test_two_packages_with_one_command_are_one_line(registered, monkeypatch, capsys):
    registered("commands", [("judge", "one.module:judge"), ("judge", "two.module:judge")])
    monkeypatch.setattr("sys.argv", ["motet", "--help"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "both register 'judge'" in " ".join(said.split())
    assert "Traceback" not in said


def test_a_command_that_cannot_be_imported_says_so_when_it_is_used(registered):
    registered("commands", [("judge", "no_such_module:judge")])
    app = main.whole_app()
    with pytest.raises(ConfigError, match="cannot be loaded") as refused:
        app(["judge", "--any", "thing"], standalone_mode=False)
    assert "not installed" not in str(refused.value)


def test_a_config_of_two_packages_is_refused(registered, monkeypatch, tmp_path):
    for name in ("one_package_of_configs", "two_package_of_configs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.yaml").write_text("name: same\n")
    monkeypatch.syspath_prepend(tmp_path)
    registered("configs", [("one", "one_package_of_configs"), ("two", "two_package_of_configs")])
    with pytest.raises(ConfigError, match=facts("two packages … config 'same'")):
        paths.named_configs()


def test_a_config_of_a_package_that_is_missing_names_what_to_install(
    registered, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    registered("configs", [("motet", "motet.configs")])
    said = "it is in motet-tasks: pip install 'motet[tasks]'"
    with pytest.raises(ConfigError) as refused:
        load_target("bugfix_tiny")
    assert says(
        refused.value,
        f"bugfix_tiny does not exist … {said} … config file … motet configs … run folder",
    )
    (tmp_path / "mine.yaml").write_text("extends: bugfix_tiny\n")
    with pytest.raises(ConfigError) as refused:
        load_target("mine.yaml")
    assert str(refused.value) == (
        f"mine.yaml:1: extends: bugfix_tiny does not exist: {said}; expected a YAML file"
    )
    with pytest.raises(ConfigError) as refused:
        main.configs("bugfix_tiny")
    assert str(refused.value) == (
        f"'bugfix_tiny' is no installed config: {said}; motet configs lists them"
    )
    with pytest.raises(ConfigError, match=r"motet-verifier: pip install 'motet\[verifier\]'"):
        load_target("debate_verifier")
    with pytest.raises(ConfigError, match=r"debat does not exist \(did you mean debate\?\)"):
        load_target("debat")
