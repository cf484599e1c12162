"""Contents of the JSON files: no name of code or of a place is used, and errors are one line."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.folder import allowed_contents
from motet.models.loading import load_config
from tests.fixtures.model_folders import make_model_folder, same_weights, set_keys
from tests.fixtures.wide import widely

NAMES: Mapping[str, Mapping[str, Any]] = {
    "config.json": {
        "attn_implementation": "stranger/kernel", "_attn_implementation": "stranger/kernel",
        "experts_implementation": "stranger/kernel", "_experts_implementation": "stranger/kernel",
        "auto_map": {"AutoModelForCausalLM": "own.Model", "AutoConfig": "own.Config"},
        "custom_generate": "stranger/code", "transformers_weights": "../evil.safetensors",
        "_name_or_path": "/etc", "base_model_tp_plan": {"layers": "colwise"}, "tp_plan": "auto",
        "kernel_config": {"a": "stranger/kernel"}, "use_kernels": True,
        "fusion_config": {"x": True}, "distributed_config": {"tp_size": 2},
        "some_new_kernel": "stranger/kernel", "gguf_file": "x.gguf",
    },
    "tokenizer_config.json": {
        "auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}, "vocab_file": "/etc/passwd",
        "merges_file": "/etc/passwd", "tokenizer_file": "/etc/passwd",
        "processor_class": "own.Processor", "name_or_path": "/etc", "init_inputs": ["/etc"],
        "_commit_hash": "x", "sp_model_kwargs": {"enable_sampling": True},
        "custom": "stranger/code",
    },
    "generation_config.json": {
        "custom_generate": "stranger/code", "cache_implementation": "x", "temperature": "hot",
    },
}  # fmt: skip


PLACES = [(file, key) for file, keys in NAMES.items() for key in keys]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    """The model of the fixture `model`, before anybody has changed its folder."""
    folder = tmp_path_factory.mktemp("whole") / "m"
    return Backbone.load(make_model_folder(folder, chat_template=True), device="cpu")


@pytest.mark.parametrize("place", widely(PLACES, keep=[*PLACES[:2], *PLACES[2::3]]), ids="-".join)
def test_a_key_that_names_code_a_kernel_or_a_place_is_not_believed(
    model: Path, whole: Backbone, place: tuple[str, str]
) -> None:
    file, key = place
    set_keys(model / file, **{key: NAMES[file][key]})
    with allowed_contents(model, "tokenizer") as view:
        assert key not in json.loads((view / file).read_text())
    found = Backbone.load(model, device="cpu")
    assert same_weights(found, whole)
    assert found.model.config._attn_implementation == whole.model.config._attn_implementation
    assert found.eos_ids == whole.eos_ids


def test_a_kernel_in_a_part_of_a_config_is_not_believed_either(model: Path) -> None:
    set_keys(
        model / "config.json",
        text_config={
            "attn_implementation": "a/b",
            "hidden_act": "gelu",
            "deeper": {"auto_map": {}},
        },
    )
    with allowed_contents(model, "tokenizer") as view:
        assert json.loads((view / "config.json").read_text())["text_config"] == {
            "hidden_act": "gelu",
            "deeper": {},
        }


VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 10**9, 2**70, -(2**70), 0.5, -0.5, 1e308, float("inf"), "", "x", "3",
    "\x1b[2J\ud800", [], [1], ["x"], [[]], {}, {"x": 1}, {"": None}, [None] * 3, "a" * 5000,
)  # fmt: skip
MORE: Mapping[str, Mapping[str, Any]] = {
    "config.json": {
        "dtype": "float99", "torch_dtype": [1], "quantization_config": [],
        "rope_scaling": {"type": "yarn"}, "to_dict": 1, "rope_parameters": {"rope_type": "dynamic"},
        "layer_types": ["full_attention"] * 9, "pad_token_id": 999, "num_labels": -1,
        "id2label": {"x": 1}, "is_encoder_decoder": True, "text_config": {}, "sliding_window": 1,
        "tokenizer_class": "Nothing", "is_decoder": False, "pruned_heads": {"0": [1]},
        "problem_type": "x", "per_layer_config": {"0": {"hidden_size": 3}},
        "chunk_size_feed_forward": 3, "__class__": 1,
    },
    "tokenizer_config.json": {
        "model_max_length": "long", "chat_template": 3, "added_tokens_decoder": {"x": {}},
        "extra_special_tokens": {"x": 1}, "additional_special_tokens": [1],
        "tokenizer_class": "os.system", "pad_token": {"content": 3}, "unk_token": {},
        "padding_side": "up", "truncation_side": 3, "model_input_names": [3],
        "add_prefix_space": "yes", "clean_up_tokenization_spaces": 3, "split_special_tokens": "x",
        "backend": "sentencepiece",
    },
    "generation_config.json": {
        "eos_token_id": "x", "pad_token_id": [None], "bos_token_id": -1, "temperature": "x",
    },
    "special_tokens_map.json": {"pad_token": 3, "extra_special_tokens": "x", "eos_token": []},
    "added_tokens.json": {"x": "y", "z": -1},
}  # fmt: skip


def _cases(model: Path) -> list[tuple[str, str, Any]]:
    cases: list[tuple[str, str, Any]] = []
    for file, more in MORE.items():
        known = json.loads((model / file).read_text()) if (model / file).is_file() else {}
        cases += [
            (file, key, value)
            for key in {**known, **more}
            for value in (*VALUES, *([more[key]] if key in more else []))
        ]
    return cases


@pytest.mark.slow
def test_any_value_of_any_key_loads_or_is_refused_in_one_line(
    model: Path, loaded: Callable[[Path], str]
) -> None:
    endings: dict[str, int] = {"loaded": 0, "refused": 0}
    failed: list[str] = []
    cases = _cases(model)
    for file, key, value in cases:
        kept = (model / file).read_bytes() if (model / file).is_file() else None
        set_keys(model / file, **{key: value})
        try:
            endings[loaded(model)] += 1
        except Exception as error:  # noqa: BLE001 - all failures are shown together
            failed.append(f"{file}: {key} = {value!r:.80}: {type(error).__name__}: {error!s:.300}")
        finally:
            (model / file).write_bytes(kept) if kept is not None else (model / file).unlink()
    assert not failed, "\n".join(failed)
    assert sum(endings.values()) == len(cases) > 1000
    assert min(endings.values()) > 100


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("gpt_neo", "attention_types", [[["global", "local"], 2**31 - 1]]),
        ("cohere2_moe", "first_k_dense_replace", 2**31 - 1),
        ("llama", "rope_parameters", [{"layers": 2**31 - 1}]),
    ],
)
def test_a_number_of_layers_is_bounded_wherever_it_stands(
    model: Path, kind: str, key: str, value: Any
) -> None:
    (model / "config.json").write_text(json.dumps({"model_type": kind, key: value}))
    with pytest.raises(
        ConfigError, match=rf"config\.json: {key}.*: got 2147483647, expected at most 1,000"
    ):
        load_config(model)
