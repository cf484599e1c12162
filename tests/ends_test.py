"""What a user is told ends a completion, and that an exported team stops at the same tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

import motet
import motet_serve
from motet.models.backbone import Backbone
from motet.models.completions import ends_of
from tests.fixtures.messages import says
from tests.fixtures.model_folders import EOS, make_model_folder, set_keys
from tests.fixtures.wide import widely
from tests.small_runs import run_config

BOS_ID, END_ID, EOS_ID = 2, 3, 1


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model whose only end-of-sequence token is <eos>. Turns end with <end>."""
    folder = make_model_folder(tmp_path_factory.mktemp("ends") / "base", chat_template=True)
    set_keys(folder / "generation_config.json", eos_token_id=EOS_ID)
    return folder


def config(base: Path, name: str, **more: Any) -> dict[str, Any]:
    models = {"tiny": {"path": str(base), "end_tokens": ["<bos>"]}}
    return run_config(name=name, models=models, warmup=None, **more)


TOLD = "completion … model tiny … <end> … chat template … <bos>"


def test_check_and_dry_run_say_what_ends_a_completion(base: Path) -> None:
    cost = motet.dry_run(config(base, "told"))
    assert len(cost.notes) == 1
    assert says(cost.notes[0], f"{TOLD} … end_tokens … {EOS} … limit")
    assert motet.check(config(base, "told")).notes == cost.notes


def test_a_template_without_an_end_of_a_turn_and_a_lower_model_max_length_are_said(
    base: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.jinja"
    lines.write_text("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}")
    models = {"tiny": {"path": str(base), "chat_template": str(lines)}}
    told = motet.dry_run(run_config(name="told", models=models, warmup=None))
    assert any(says(line, "tiny … no end of a turn") for line in told.warnings)
    (note,) = told.notes
    assert says(note, f"completion … model tiny … ends at {EOS} … limit")

    longer = make_model_folder(tmp_path / "longer", context=256)
    set_keys(longer / "tokenizer_config.json", model_max_length=64)
    models = {"tiny": {"path": str(longer)}}
    told = motet.dry_run(run_config(name="told", models=models, warmup=None))
    (line,) = (line for line in told.warnings if "model_max_length" in line)
    assert "says model_max_length 64, but its context is 256 tokens" in line
    assert Backbone.load(longer).context_length == 256


PARTS = (
    "{% for m in messages %}<bos>{% for part in m.content %}{{ part.text }}{% endfor %}<end>"
    "{% endfor %}"
)


def test_a_template_that_shows_no_strings_is_said(base: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts.jinja"
    for template, warned in ((PARTS, True), (PARTS.replace("part.text", "part"), False)):
        parts.write_text(template)
        models = {"tiny": {"path": str(base), "chat_template": str(parts)}}
        told = motet.check(run_config(name="told", models=models, warmup=None))
        assert any(says(line, "tiny … not show the text") for line in told.warnings) == warned


@pytest.mark.parametrize("train", widely(["full", "lora"], keep=["lora"]))
def test_an_exported_team_stops_at_the_same_tokens_everywhere(
    base: Path, tmp_path: Path, train: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = {"p": {"model": "tiny", "train": train}, "q": {"model": "tiny", "train": "frozen"}}
    options = {"train": {"steps": 1, "tasks_per_step": 1}}
    wanted = config(base, train, policies=policies, **options)
    motet.train(wanted, runs=tmp_path)
    assert says(capsys.readouterr().err, TOLD)
    every = [EOS_ID, BOS_ID, END_ID]
    run, team = tmp_path / train, tmp_path / "team"
    motet_serve.export_team(run, team)
    for folder in (run / "team" / "p", team / "policies" / "p", team / "models" / "tiny"):
        assert GenerationConfig.from_pretrained(folder).eos_token_id == every
    said = json.loads((team / "models" / "tiny" / "generation_config.json").read_text())
    assert said["eos_token_id"] == every
    assert ends_of(team / "models" / "tiny", None).ids == tuple(every)
    whole = team / ("policies/p" if train == "full" else "models/tiny")
    assert Backbone.load(whole).eos_ids == tuple(every)
    card = (team / "README.md").read_text()
    assert ("GenerationConfig.from_pretrained" in card) == (train == "lora")
    assert ("--generation-config FOLDER/policies/p" in card) == (train == "lora")
