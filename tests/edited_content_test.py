"""A chat template or an adapter that is edited between runs: it is recorded, and said."""

from pathlib import Path

import pytest

import motet
from motet.api.code_record import changed_code, record_code
from motet.config.load import make_config
from motet.trainer.run_folder import RunFolder
from tests.fixtures.messages import says


def test_an_edited_template_and_an_edited_adapter_are_said_for_their_keys(tmp_path: Path) -> None:
    template, adapter = tmp_path / "t.jinja", tmp_path / "adapter"
    adapter.mkdir()
    template.write_text("{{ messages }}")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / file).write_text("{}")
    models = {"m.1": {"path": str(tmp_path), "chat_template": str(template)}}
    config = make_config(
        {
            "name": "x", "environment": {"name": "maths"}, "models": models,
            "policies": {"p": {"model": "m.1", "train": "lora", "adapter": str(adapter)}},
            "team": {"a": "p", "b": "p"}, "rollout": {"samples": [2]}, "train": {"steps": 1},
        }
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    run = RunFolder(tmp_path / "run")
    record_code(run, config, 0)
    assert changed_code(run, config) == []
    (adapter / "adapter_model.safetensors").write_text("other")
    template.write_text("{{ messages[0] }}")
    first, second = changed_code(run, config)
    assert says(first, "models.m.1.chat_template … content … changed since the run")
    assert says(
        second,
        "policies.p.adapter … content … changed since the run … "
        f"{adapter}/adapter_model.safetensors",
    )
    template.unlink()
    template.symlink_to("/dev/zero")
    with pytest.raises(motet.ConfigError, match="expected a regular file"):
        changed_code(run, config)
