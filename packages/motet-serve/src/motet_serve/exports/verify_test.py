"""A merged policy is the policy of the run, and an export that is another model is not written."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.chat_template import tokenizer_with
from motet.settings import Lora
from motet_serve.exports import weights
from motet_serve.exports.verify import verify
from motet_serve.exports.weights import (
    PolicyFolder,
    copy_adapter,
    copy_model,
    merge,
    write_tokenizer,
)
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder
from tests.fixtures.wide import widely

TIED = "qwen3"
TARGETS = (
    ["q_proj"],
    ["q_proj", "lm_head"],
    ["q_proj", "embed_tokens"],
    ["embed_tokens", "lm_head"],
)


def trained(place: Path, targets: list[str]) -> tuple[Path, Path]:
    """Return a base with tied embeddings, and an adapter on it that moves its answers."""
    base = make_model_folder(place / "base", TIED)
    backbone = Backbone.load(base, device="cpu")
    backbone.add_adapter("p", Lora(rank=4, targets=tuple(targets)), seed=0)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in backbone.parameters_of("p"):
            weight.normal_(std=0.2)
    backbone.save_policy("p", place / "p")
    return base, place / "p"


def config_of(base: Path, dtype: str = "float32", train: str = "lora") -> RunConfig:
    return make_config(
        {
            "name": "x", "environment": {"name": "maths"},
            "models": {"m": {"path": str(base), "dtype": dtype}},
            "policies": {"p": {"model": "m", "train": train}}, "team": {"a": "p", "b": "p"},
            "rollout": {"samples": [2]}, "algorithm": {"name": "marloo"}, "train": {"steps": 1},
        }
    )  # fmt: skip


def checked(out: Path, one: PolicyFolder, base: Path, source: Path, dtype: str = "float32") -> None:
    train = "lora" if one.adapter or one.merged else "full"
    verify(out, config_of(base, dtype, train), [one], {"m": base}, {"p": source})


@pytest.mark.parametrize(
    ("targets", "dtype"),
    [
        (TARGETS[3], "float32"),
        *(pytest.param(one, "float32", marks=pytest.mark.wide) for one in TARGETS[:3]),
        pytest.param(TARGETS[1], "bfloat16", marks=pytest.mark.wide),
    ],
)
def test_a_merged_policy_is_the_policy_also_where_the_embeddings_are_tied(
    tmp_path: Path, targets: list[str], dtype: str
) -> None:
    base, adapter = trained(tmp_path, targets)
    merge(base, adapter, tmp_path / "out/policies/p", dtype)
    checked(
        tmp_path / "out", PolicyFolder(name="p", adapter=False, merged=True), base, adapter, dtype
    )
    if dtype == "float32":
        tokens = torch.tensor([[5, 9, 30, 77, 120, 41]])
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out/policies/p")
        policy = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
        with torch.no_grad():
            merged, own = (
                one.eval()(input_ids=tokens).logits.log_softmax(-1) for one in (plain, policy)
            )
        assert (merged - own).abs().max() <= 1e-4
        ends = {"lm_head", "embed_tokens"} & set(targets)
        assert plain.config.tie_word_embeddings == (not ends), "untied only where it must be"


@pytest.mark.parametrize("dtype", widely(["float32", "bfloat16"], keep=["float32"]))
def test_a_merge_that_is_another_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    base, adapter = trained(tmp_path, ["q_proj", "lm_head"])
    monkeypatch.setattr(weights, "_untie", lambda adapted: None)
    merge(base, adapter, tmp_path / "out/policies/p", dtype)
    with pytest.raises(
        ConfigError, match=facts("policy p … differ … nats … expected at most … without --merge")
    ):
        checked(
            tmp_path / "out",
            PolicyFolder(name="p", adapter=False, merged=True),
            base,
            adapter,
            dtype,
        )


def scaled(file: Path) -> None:
    tensors = load_file(file)
    file.unlink()  # it is a link to the file of the run
    save_file({name: one * 1.01 for name, one in tensors.items()}, file)


@pytest.mark.wide
def test_a_copied_policy_is_compared_in_float32_whatever_its_dtype(tmp_path: Path) -> None:
    dtype = "bfloat16"
    base, adapter = trained(tmp_path, ["q_proj"])
    place = tmp_path / "out/policies/p"
    copy_adapter(adapter, place, "models/m")
    write_tokenizer(tokenizer_with(base, None)[0], place)
    copy_model(base, tmp_path / "out/models/m")
    one = PolicyFolder(name="p", adapter=True, base="models/m")
    checked(tmp_path / "out", one, base, adapter, dtype)
    scaled(place / "adapter_model.safetensors")
    with pytest.raises(
        ConfigError, match=facts("policy p … differ … nats … expected at most … PEFT")
    ):
        checked(tmp_path / "out", one, base, adapter, dtype)
    full = PolicyFolder(name="p", adapter=False)
    copy_model(base, tmp_path / "full/policies/p")
    checked(tmp_path / "full", full, base, base, dtype)
    scaled(tmp_path / "full/policies/p/model.safetensors")
    with pytest.raises(
        ConfigError, match=facts("policy p … differ … nats … expected at most … PEFT")
    ):
        checked(tmp_path / "full", full, base, base, dtype)


def test_a_tokenizer_with_another_chat_template_is_refused(tmp_path: Path) -> None:
    base, adapter = trained(tmp_path, ["q_proj"])
    merge(base, adapter, tmp_path / "out/policies/p", "float32")
    (tmp_path / "out/policies/p/chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(ConfigError, match=facts("policy p … another chat template … transformers")):
        checked(tmp_path / "out", PolicyFolder(name="p", adapter=False, merged=True), base, adapter)
