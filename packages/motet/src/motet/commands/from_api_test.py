"""Options are those of the API, also where its source is read and not imported."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from motet.commands.from_api import ApiCall, of_api, parameters_of
from motet.commands.main import whole_app
from motet.errors import ConfigError

FUNCTIONS = [
    "motet.api.training:train", "motet.api.training:warmup", "motet.api.evaluation:evaluate",
    "motet.api.evaluation:play", "motet_cluster.planning:plan", "motet_serve.exporting:export_team",
    "motet.api.dry_runs:check", "motet_view.recorded:episodes",
    "motet_compare.api:compare_messages", "motet_compare.api_replay:replay",
    "motet_verifier.api_answers:sample_answers", "motet_verifier.api_answers:balance_answers",
    "motet_verifier.api:train_verifier", "motet_verifier.api:serve_verifier",
    "motet_serve.api:serve",
]  # fmt: skip


@pytest.mark.parametrize("reference", FUNCTIONS)
def test_what_is_read_is_the_signature(reference):
    module, _, name = reference.partition(":")
    real = inspect.signature(getattr(import_module(module), name)).parameters.values()
    read = {one.name: (one.default, one.is_option) for one in parameters_of(reference)}
    assert read == {
        one.name: (one.default, one.kind is one.KEYWORD_ONLY or one.name == "into")
        for one in real
        if one.kind is not one.VAR_KEYWORD
    }


def test_only_what_a_command_line_cannot_give_is_left_out():
    every = [one for reference in FUNCTIONS for one in parameters_of(reference)]
    left_out = {one.name for one in every if one.typed_as() is None}
    assert left_out == {"callbacks", "report", "say", "settings", "show"}


def test_every_argument_and_option_has_a_help():
    commands = {"": typer.main.get_command(whole_app())}
    found = []
    while commands:
        name, command = commands.popitem()
        commands |= {
            f"{name} {inner}": one for inner, one in getattr(command, "commands", {}).items()
        }
        hidden = getattr(command, "hidden", False)
        found += [] if hidden else [(name, one.name, one.help) for one in command.params]
    assert len(found) > 120
    assert [(name, one) for name, one, said in found if not said and one != "help"] == []


@pytest.fixture
def called(tmp_path, monkeypatch):
    """`called("answers.jsonl", "--each", "3", ...)` gives the call that a command line makes."""
    calls: list[ApiCall] = []

    @of_api("motet_verifier.api_answers:balance_answers", leave_out=["tries"])
    def command(call: ApiCall, loud: bool = False) -> None:
        calls.append(call)

    @of_api("motet_verifier.api_answers:sample_answers")
    def sample(call: ApiCall) -> None:
        calls.append(call)

    monkeypatch.chdir(tmp_path)

    def run(*line):
        app = typer.Typer()
        app.command()(command)
        app.command()(sample)
        result = CliRunner().invoke(app, line)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return calls[-1]

    return run


def test_values_are_those_of_the_api_and_words_those_that_were_typed(called):
    call = called("command", "a.jsonl", "quickstart", "seed=3", "--each", "3", "--split", "eval")
    assert call.values == {
        "answers": Path("a.jsonl"), "target": Path("quickstart"), "overrides": ["seed=3"],
        "into": Path("balanced.jsonl"), "each": 3, "writer": None, "temperature": 1.0,
        "split": "eval",
    }  # fmt: skip
    assert call.typed == {"--each": ["--each 3"], "--split": ["--split eval"]}
    assert call.words(but=["--each"]) == ["--split eval"]


def test_a_list_has_commas(called):
    call = called("sample", "quickstart", "--temperatures", "1, 0.5", "--agents", "aux")
    assert (call.values["temperatures"], call.values["agents"]) == ((1.0, 0.5), ("aux",))
    assert call.typed == {"--temperatures": ["--temperatures 1, 0.5"], "--agents": ["--agents aux"]}
    plain = called("sample", "quickstart")
    assert (plain.values["temperatures"], plain.typed) == ((0.7, 1.0, 1.3), {})


@pytest.mark.parametrize("text", ["1,x", "1,,2", "1,1", ""])
def test_a_wrong_list_says_what_was_expected(called, text):
    with pytest.raises(ConfigError, match=f"--temperatures is '{text}'; expected .*0.7,1.0"):
        called("sample", "quickstart", "--temperatures", text)


def test_a_wrong_config_is_refused_before_the_command_runs(called):
    with pytest.raises(ConfigError, match="stepz: unknown key"):
        called("sample", "quickstart", "train.stepz=3")
