"""Loading models of three families, and refusing what cannot work."""

import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.configuration_utils import PretrainedConfig

from motet.core import Message
from motet.errors import ConfigError, SamplerFault
from motet.models.backbone import Backbone
from motet.models.loading import UNLIMITED, context_of, load_tokenizer
from motet.models.prompts import encode
from motet.settings import Lora
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture, make_model_folder

FolderOf = Callable[..., Path]
IDS = torch.tensor([[5, 60, 200, 17, 9, 270]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_a_folder_of_any_family_is_read(
    folder_of: FolderOf, architecture: Architecture, device: str
) -> None:
    backbone = Backbone.load(folder_of(architecture), device=device)
    assert backbone.context_length == 96
    assert backbone.eos_ids == (1, 3), "the tokenizer's <eos> and the generation config's <end>"
    assert backbone.device.type == device


def test_dropout_is_off_even_in_train_mode(folder_of: FolderOf) -> None:
    plain = AutoModelForCausalLM.from_pretrained(folder_of("gpt2"))
    assert plain.config.attn_pdrop == 0.1
    backbone = Backbone.load(folder_of("gpt2"), trainable_full=True)
    still = logits(backbone.model)
    assert torch.equal(logits(backbone.model.train()), still)
    torch.testing.assert_close(logits(plain.eval()), still, atol=1e-5, rtol=0)


def test_bfloat16_keeps_float32_masters_where_they_are_trained_and_none_where_they_are_not(
    folder_of: FolderOf,
) -> None:
    trained = Backbone.load(folder_of(), dtype="bfloat16", trainable_full=True)
    assert {parameter.dtype for parameter in trained.parameters_of(None)} == {torch.float32}
    assert logits(trained.model).dtype == torch.bfloat16
    frozen = Backbone.load(folder_of(), dtype="bfloat16")
    assert {parameter.dtype for parameter in frozen.model.parameters()} == {torch.bfloat16}
    frozen.add_adapter("a", Lora(), seed=0)
    assert {parameter.dtype for parameter in frozen.parameters_of("a")} == {torch.float32}


@pytest.mark.parametrize("missing", ["no_such_folder", "a/b/c"])
def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Backbone.load(tmp_path / missing)
    with pytest.raises(ConfigError, match="does not exist"):
        Backbone.load(f"./{missing}")


def test_a_folder_without_a_tokenizer_is_refused_with_the_files_it_lacks(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ConfigError, match=facts("no tokenizer … tokenizer.json")):
        Backbone.load(folder)


def test_weights_that_are_not_safetensors_are_refused(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Backbone.load(folder)


def test_a_broken_weight_file_is_refused(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Backbone.load(folder)


def test_a_tokenizer_and_its_context_are_read_without_the_weights(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "m", "gpt2", context=64)
    (folder / "model.safetensors").unlink()
    tokenizer, context = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer("the dog")["input_ids"]) == "the dog"
    assert context == 64


class _Trap:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.sprung),)


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    sprung, folder = tmp_path / "sprung", make_model_folder(tmp_path / "m")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Trap(sprung)))
    Backbone.load(folder)  # ignored if there are safetensors
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Backbone.load(folder)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.bin").write_bytes(pickle.dumps(_Trap(sprung)))
    with pytest.raises(ConfigError, match=r"has no adapter_model\.safetensors"):
        Backbone.load(make_model_folder(tmp_path / "sound")).load_adapter("a", adapter)
    assert not sprung.exists()
    pickle.loads((adapter / "adapter_model.bin").read_bytes())
    assert sprung.exists()


@pytest.mark.parametrize("model_type", ["qwen3", "its_own"])
def test_the_code_of_a_model_folder_is_never_run(tmp_path: Path, model_type: str) -> None:
    sprung, folder = tmp_path / "sprung", make_model_folder(tmp_path / "m")
    (folder / "own.py").write_text(
        f"import os\nos.mkdir({str(sprung)!r})\n"
        "from transformers import Qwen3Config as Config, Qwen3ForCausalLM as Model\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    config |= {"model_type": model_type} if model_type == "its_own" else {}
    (folder / "config.json").write_text(json.dumps(config))
    # transformers loads a model type that it knows with its own code.
    with suppress(ConfigError):
        Backbone.load(folder)
    assert not sprung.exists()
    if model_type == "its_own":
        with pytest.raises(ConfigError, match="cannot be loaded"):
            load_tokenizer(folder)


def test_added_tokens_without_an_embedding_are_text_or_faults_of_the_texts_that_have_them(
    tmp_path: Path,
) -> None:
    """For example, the padding token that some hub models added to their tokenizer only."""
    folder = make_model_folder(tmp_path)
    rows = AutoConfig.from_pretrained(folder).vocab_size
    words = AutoTokenizer.from_pretrained(folder)
    words.add_special_tokens({"pad_token": "[PAD]"})
    words.save_pretrained(folder)
    assert words.pad_token_id == rows
    backbone = Backbone.load(folder, device="cpu")
    assert backbone.pad_id in backbone.eos_ids
    assert encode(backbone.tokenizer, "the dog")
    for prompt in ("the [PAD]dog", (Message("user", "the [PAD]dog"),)):
        read = encode(backbone.tokenizer, prompt)
        assert "[PAD]" in backbone.tokenizer.decode(read), "it is text"
        assert max(read) < rows
    backbone.tokenizer.add_tokens(["[OWN]"])
    with pytest.raises(SamplerFault, match=facts("'[OWN]' … token … without an embedding")):
        encode(backbone.tokenizer, "the [OWN]dog")


# ------------------------------------------------------------------------------------- model config


LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0], "long_factor": [2.0],
    "original_max_position_embeddings": 24,
}  # fmt: skip


def test_the_context_is_the_number_of_positions_or_the_short_regime_of_longrope() -> None:
    assert context_of("m", LlamaConfig(max_position_embeddings=96)) == 96
    assert context_of("m", LlamaConfig(max_position_embeddings=96, rope_parameters=LONGROPE)) == 24
    assert context_of("m", PretrainedConfig()) == UNLIMITED


@pytest.mark.parametrize("value", [0, -1, 0.5, "96"])
def test_a_number_of_positions_that_is_none_is_refused(value: object) -> None:
    config = PretrainedConfig()
    config.max_position_embeddings = value
    with pytest.raises(
        ConfigError,
        match=facts("model 'm' … cannot be loaded … max_position_embeddings … at least 1"),
    ):
        context_of("m", config)
