"""A checkpoint whose weights are shards is exported and evaluated like one that has them whole."""

import shutil
from dataclasses import replace

import pytest
import torch

import motet
import motet_serve
from motet.models.loading import load_model, load_tokenizer
from motet.trainer.checkpoint import SHARDS, Retention, read_checkpoint, save
from motet_cluster.shards import write_shards
from tests.small_runs import LORA, recorded, run_config

NAME = "step-000002"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with a full policy and an adapter, and a copy whose checkpoint has only shards."""
    runs = tmp_path_factory.mktemp("runs")
    policies = {"p": {"model": "tiny"}, "q": LORA["q"]}
    motet.train(run_config(name="whole", policies=policies), runs=runs, show="silent")
    copy = shutil.copytree(runs / "whole", runs / "shards")
    saved = read_checkpoint(copy / "checkpoints" / NAME)
    shutil.rmtree(copy / "checkpoints")
    shutil.rmtree(copy / "team")

    def shards(folder):
        place = folder / SHARDS.format(1)
        place.mkdir()
        write_shards(saved.tensors, place)

    divided = replace(saved, tensors={}, write_shards=shards)
    save(copy / "checkpoints", divided, Retention(1))
    return runs


def log_probs(folder, base=None):
    from peft import PeftModel

    model = load_model(base or folder, torch.float32, torch.device("cpu"))
    if base:
        model = PeftModel.from_pretrained(model, str(folder))
    tokens = load_tokenizer(base or folder)[0]("a1 : 5 and b", return_tensors="pt").input_ids
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits.log_softmax(-1)


def test_a_checkpoint_of_shards_is_exported_with_the_same_log_probs(runs, tmp_path):
    found = motet_serve.export_team(runs / "shards" / "checkpoints" / NAME, tmp_path / "out")
    assert found.steps == 2
    for name, base in (("p", None), ("q", tmp_path / "out" / "models" / "tiny")):
        own = base and runs / "whole" / "models" / "tiny"
        expected = log_probs(runs / "whole" / "team" / name, own)
        exported = log_probs(tmp_path / "out" / "policies" / name, base)
        assert torch.allclose(exported, expected, atol=1e-5, rtol=0)
        start = log_probs(runs / "whole" / "models" / "tiny")
        assert not torch.allclose(expected, start, atol=1e-4, rtol=0), "it has learned something"


def test_a_checkpoint_of_shards_is_evaluated_like_the_run(runs):
    one, other = (
        motet.evaluate(runs / name / "checkpoints" / NAME, show="silent")
        for name in ("whole", "shards")
    )
    assert recorded(one) == recorded(other)


def test_shards_of_another_shape_or_policy_are_refused(runs, tmp_path):
    for change in ("policies.q.lora.rank=3", "policies.q.train=full"):
        with pytest.raises(motet.ConfigError, match=r"no weights .*shape .*(policy q|weights\.q)"):
            motet_serve.export_team(
                runs / "shards" / "checkpoints" / NAME, tmp_path / "out", [change]
            )
    assert not (tmp_path / "out").exists()
