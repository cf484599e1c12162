"""A run keeps the date that its chat template reads, and the variables of its template."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

import motet
import motet_compare
import motet_serve
from motet.api import training
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import TEMPLATE, make_model_folder, make_tokenizer
from tests.small_runs import LORA, run_config

DATED = "{{ '<bos>system\nToday: ' + strftime_now('%d %b %Y %H:%M') + '<end>' }}" + TEMPLATE
BEGUN = datetime(2026, 11, 25, 13, 42, 13)
FUNCTIONS = """
def ask(row):
    return row["q"]


def reward(row, texts):
    return float(len(set(texts["a"])))
"""


class At(datetime):
    """The clock of the trainer, days after the start."""

    days = 0

    @classmethod
    def now(cls, tz=None):
        return BEGUN + timedelta(days=cls.days)


@pytest.fixture
def config(tmp_path, monkeypatch):
    folder = make_model_folder(tmp_path / "model", chat_template=True, context=160)
    tokenizer = make_tokenizer("qwen3", True, 160, 300)
    tokenizer.chat_template = DATED + "{% if mood is defined %}{{ mood }}{% endif %}"
    tokenizer.save_pretrained(folder)
    (tmp_path / "own.py").write_text(FUNCTIONS)
    (tmp_path / "rows.jsonl").write_text('{"q": "hi"}\n{"q": "ho"}\n')
    own = f"{tmp_path}/own.py"
    rows = {"path": str(tmp_path / "rows.jsonl")}
    monkeypatch.setattr(training, "datetime", At)
    monkeypatch.setattr(At, "days", 0)
    return run_config(
        environment={"name": "functions", "agents": {"a": f"{own}:ask"}, "reward": f"{own}:reward"},
        data={"train": rows, "eval": rows},
        models={"tiny": {"path": str(folder), "device": "cpu", "template_options": {"mood": "!"}}},
        policies={"p": LORA["p"]}, team={"a": "p"}, train={"steps": 1, "tasks_per_step": 1},
        optimizer={"learning_rate": 1e-2, "schedule": "constant"}, decode={"max_new_tokens": 4},
    )  # fmt: skip


def prompt(run: Path, step: int) -> str:
    tokens = next(motet.load_run(run).episodes("train", step=step)).root.prompt_tokens["a"]
    return AutoTokenizer.from_pretrained(run / "team" / "p").decode(tokens)


def test_a_run_is_resumed_replayed_evaluated_and_exported_with_the_date_of_its_start(
    config, tmp_path, monkeypatch
):
    summary = motet.train(config, runs=tmp_path / "runs", show="silent")
    assert any("the run keeps 2026-11-25 13:42:13" in line for line in summary.warnings)
    run = tmp_path / "runs" / "run"
    assert "Today: 25 Nov 2026 13:42<end>" in prompt(run, 1)
    assert prompt(run, 1).endswith("assistant\n!")
    saved = AutoTokenizer.from_pretrained(run / "team" / "p").chat_template
    assert saved.startswith(f'{{% set mood = "!" %}}{DATED}')
    monkeypatch.setattr(At, "days", 1)
    longer = {**config, "train": {**config["train"], "steps": 2}}
    motet.train(longer, resume=True, runs=tmp_path / "runs", show="silent")
    assert "Today: 25 Nov 2026 13:42<end>" in prompt(run, 2)
    again = motet_compare.replay(run, step=2, show="silent")
    assert again.same
    own = motet.evaluate(run, show="silent")
    motet_serve.export_team(run, tmp_path / "out")
    team = yaml.safe_load((tmp_path / "out" / "team.yaml").read_text())
    assert str(team["models"]["tiny"]["template_date"]) == "2026-11-25 13:42:13"
    assert motet.evaluate(tmp_path / "out", show="silent").reward == own.reward


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"template_date": "soon"}, "template_date … soon … date and a time"),
        (
            {"template_date": "2026-11-25T10:00:00+02:00"},
            "template_date … '2026-11-25T10:00:00+02:00' … date and a time",
        ),
        ({"template_options": {"mod": 1}}, "'mod' … chat template … not read"),
    ],
)
def test_a_date_that_is_none_and_an_option_that_no_template_reads_are_refused(
    config, tmp_path, keys, message
):
    config["models"]["tiny"] |= keys
    with pytest.raises(motet.ConfigError, match=facts(message)):
        motet.train(config, runs=tmp_path / "runs", show="silent")
    assert not (tmp_path / "runs" / "run").exists()
