"""`motet doctor`: the table, the JSON, and the exit code."""

import json

import pytest
import typer

from motet import api
from motet.commands.main import whole_app
from motet.doctor import Finding

FOUND = [
    Finding("packages", "ok", "Python 3.11.7, torch 2.13.0"),
    Finding(
        "motet-cluster", "costs", "not installed", "no cluster", 'pip install "motet[cluster]"'
    ),
    Finding("vllm", "costs", "not installed", "slow", 'pip install "motet[cluster]"'),
]
BROKEN = Finding("packages", "broken", "peft is 0.1", "needed", 'pip install "peft>=0.19"')


def run(found: list[Finding], monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(api, "doctor", lambda **asked: found)
    try:
        code = whole_app()(["doctor", *options], standalone_mode=False)
    except typer.Exit as left:
        return left.exit_code
    return code or 0


def test_missing_things_cost_and_their_commands_come_last_and_once(monkeypatch, capsys):
    assert run(FOUND, monkeypatch) == 0
    shown = capsys.readouterr().out
    before, after = shown.split("to have it, where you need it")
    assert "no cluster" in before
    assert after.split("\n") == ["", '  pip install "motet[cluster]"', ""]


def test_something_broken_is_mended_first_and_gives_exit_code_1(monkeypatch, capsys):
    assert run([*FOUND, BROKEN], monkeypatch) == 1
    mends = capsys.readouterr().out.split("to have it, where you need it\n")[1].splitlines()
    assert mends == ['  pip install "peft>=0.19"', '  pip install "motet[cluster]"']


def test_json_has_every_finding(monkeypatch, capsys):
    assert run([*FOUND, BROKEN], monkeypatch, "--json") == 1
    plain = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in plain] == ["ok", "costs", "costs", "broken"]
    assert plain[1]["mend"] == 'pip install "motet[cluster]"'


def test_this_machine_can_run_motet():
    found = api.doctor(ask_hub=False)
    assert {one.part for one in found} >= {"packages", "GPU", "motet-cluster", "vllm", "sandbox"}
    assert not [one for one in found if one.status == "broken" and one.part == "packages"]
