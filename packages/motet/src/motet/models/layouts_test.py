"""Folders in the layouts of popular hub models: each is read as transformers reads it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.core import Message
from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.folder import allowed_contents
from motet.models.prompts import encode
from tests.fixtures.model_folders import TEMPLATE, make_model_folder

FILES = {
    "config": "config.json",
    "generation": "generation_config.json",
    "tokenizer": "tokenizer_config.json",
}
ADDED = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "qwen": {
        "config": {
            "torch_dtype": "bfloat16", "max_window_layers": 2, "sliding_window": 32768,
            "use_sliding_window": False, "layer_types": ["full_attention"] * 2,
            "rope_scaling": None, "attention_dropout": 0.0, "use_mrope": False,
        },
        "generation": {
            "do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8,
            "top_k": 20,
        },
        "tokenizer": {
            "add_prefix_space": False, "errors": "replace", "split_special_tokens": False,
            "unk_token": None, "additional_special_tokens": ["<end>"], "model_max_length": 131072,
            "clean_up_tokenization_spaces": False,
        },
        "beside": {
            "LICENSE": "x", "README.md": "x", ".gitattributes": "x",
            "merges.txt": "#version: 0.2\n",
        },
    },
    "phi, whose class is transformers' own too": {
        "config": {
            "auto_map": {
                "AutoConfig": "configuration_phi3.Phi3Config",
                "AutoModelForCausalLM": "modeling_phi3.Model",
            },
            "embd_pdrop": 0.0,
            "_name_or_path": "Phi-3-mini-128k-instruct",
            "resid_pdrop": 0.0,
            "sliding_window": 262144,
        },
        "beside": {
            "modeling_phi3.py": "raise SystemExit", "configuration_phi3.py": "raise SystemExit",
        },
    },
    "the first llamas": {
        "config": {
            "pad_token_id": -1, "max_sequence_length": 96, "torch_dtype": "float16",
            "pretraining_tp": 1,
        },
        "generation": {"_from_model_config": True, "pad_token_id": -1},
        "tokenizer": {
            "bos_token": {"__type": "AddedToken", "content": "<bos>"} | ADDED,
            "sp_model_kwargs": {}, "pad_token": None,
            "model_max_length": 1000000000000000019884624838656, "legacy": True,
            "use_default_system_prompt": False,
        },
        "beside": {
            "pytorch_model.bin": "x", "original/consolidated.00.pth": "x",
            "original/params.json": "{}",
        },
    },
    "sizes of a block, of an expert and of a layer's input": {
        "config": {
            "block_dim": 2048, "block_ff_dim": 12288, "shared_expert_intermediate_size": 20480,
            "block_size": 2048, "vocab_size_per_layer_input": 262144,
            "transformers.js_config": {"dtype": "q4", "x": {"model.onnx": 1}},
        },
    },
    "large and endless numbers": {
        "config": {"other_theta": 100000000000.0, "time_step_limit": [0.0, float("inf")]},
    },
    "several chat templates": {
        "tokenizer": {
            "chat_template": [
                {"name": "default", "template": TEMPLATE}, {"name": "rag", "template": "R"},
            ],
        },
    },
    "a chat template in a file": {
        "beside": {
            "chat_template.jinja": "J" + TEMPLATE, "additional_chat_templates/tool_use.jinja": "T",
        },
    },
    "an unsloth copy": {
        "config": {
            "unsloth_fixed": True, "unsloth_version": "2024.9", "_name_or_path": "unsloth/x",
        },
        "tokenizer": {"padding_side": "left"},
        "beside": {
            "special_tokens_map.json": json.dumps({"eos_token": {"content": "<eos>"} | ADDED}),
        },
    },
}  # fmt: skip


def check_as_transformers_reads_it(folder: Path) -> None:
    found = Backbone.load(folder, device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = encode(found.tokenizer, "the quick brown fox — 12345")
    assert list(ids) == tokenizer("the quick brown fox — 12345")["input_ids"]
    if tokenizer.chat_template:
        rows = [{"role": "user", "content": "the dog?"}]
        expected = tokenizer.apply_chat_template(
            rows, add_generation_prompt=True, return_dict=False
        )
        assert list(encode(found.tokenizer, (Message("user", "the dog?"),))) == expected
    with torch.no_grad():
        tokens = torch.tensor([ids])
        assert torch.equal(found.model(input_ids=tokens).logits, model(input_ids=tokens).logits)
    ends = model.generation_config.eos_token_id
    assert set(found.eos_ids) == {
        *(ends if isinstance(ends, list) else [ends]),
        tokenizer.eos_token_id,
    } - {None}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_folder_of_the_hub_is_read_as_transformers_reads_it(tmp_path: Path, name: str) -> None:
    folder = make_model_folder(
        tmp_path / "m", "llama" if "llama" in name else "qwen3", chat_template=True
    )
    for part, file in FILES.items():
        said = json.loads((folder / file).read_text()) | LAYOUTS[name].get(part, {})
        (folder / file).write_text(json.dumps(said))
    for file, content in LAYOUTS[name].get("beside", {}).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(content)
    if "chat_template" in LAYOUTS[name].get("tokenizer", {}):
        (folder / "chat_template.jinja").unlink(missing_ok=True)
    check_as_transformers_reads_it(folder)


def add_token(folder: Path, content: str, **named: str) -> None:
    """Add a token behind the vocabulary, for which the model has no embedding."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(content, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | named))


def test_an_added_token_that_the_model_cannot_read_stays_text(
    tmp_path: Path,
) -> None:
    """The small Gemma 3 models have such a token for pictures; many derived from Llama 2, for
    padding.
    """
    folder = make_model_folder(tmp_path / "m", chat_template=True)
    add_token(folder, "<picture>", image_token="<picture>")
    add_token(folder, "<padding>", pad_token="<padding>")
    check_as_transformers_reads_it(folder)
    found = Backbone.load(folder, device="cpu")
    assert found.pad_id in found.eos_ids
    for prompt in ("a <picture>", (Message("user", "a <picture>"),)):
        assert "a <picture>" in found.tokenizer.decode(encode(found.tokenizer, prompt))
    add_token(folder, "<over>", bos_token="<over>")
    with pytest.raises(
        ConfigError, match=r"tokens up to 302, but vocab_size in its config\.json is 300"
    ):
        Backbone.load(folder, device="cpu")


def test_a_checkpoint_inside_a_snapshot_of_the_hub_is_read(tmp_path: Path) -> None:
    model = make_model_folder(tmp_path / "m")
    blobs, place = (
        tmp_path / "models--a--b" / "blobs",
        tmp_path / "models--a--b" / "snapshots" / "abc" / "checkpoint-10",
    )
    place.mkdir(parents=True)
    blobs.mkdir()
    for path in model.iterdir():
        shutil.copy(path, blobs)
        (place / path.name).symlink_to(f"../../../blobs/{path.name}")
    check_as_transformers_reads_it(place)


def test_what_is_made_to_read_a_folder_is_swept_when_its_process_was_killed(tmp_path: Path) -> None:
    with allowed_contents(make_model_folder(tmp_path / "m"), "weights") as view:
        assert (view / ".temporary-owner").is_file(), "the mark of codejudge.temporary"
        assert view.name.startswith("motet-")
