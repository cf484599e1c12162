"""Model folders from untrusted sources: no pickle is opened, no code runs, errors are one line."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from motet.errors import ConfigError
from motet.models import folder as folders
from motet.models import loading
from motet.models.backbone import Backbone
from motet.models.folder import allowed_contents
from motet.models.loading import load_config, load_tokenizer
from tests.fixtures.model_folders import make_model_folder


class _Trap:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.sprung),)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model_folder(tmp_path / "m", chat_template=True)


def say(path: Path, **keys: Any) -> None:
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(before | keys))


def split(model: Path) -> dict[str, str]:
    """Split the weights into two files with an index; return the index's map."""
    weights = load_file(model / "model.safetensors")
    names = sorted(weights)
    places = {
        name: f"model-0000{1 + (number % 2)}-of-00002.safetensors"
        for number, name in enumerate(names)
    }
    for place in set(places.values()):
        save_file(
            {name: weights[name] for name in names if places[name] == place},
            model / place,
            {"format": "pt"},
        )
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": places})
    )
    return places


def same(one: Backbone, other: Backbone) -> bool:
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


# ------------------------------------------------------------------------------------------ weights


def test_weights_in_several_files_are_read(model: Path) -> None:
    whole = Backbone.load(model, device="cpu")
    split(model)
    assert same(Backbone.load(model, device="cpu"), whole)


@pytest.mark.parametrize(
    "name",
    ["evil.bin", "../elsewhere.safetensors", "/{}/elsewhere.safetensors", "", ".safetensors", 3],
)
def test_an_index_names_safetensors_of_its_own_folder_only(model: Path, name: Any) -> None:
    places, sprung = split(model), model.parent / "sprung"
    (model / "evil.bin").write_bytes(pickle.dumps(_Trap(sprung)))
    shutil.copy(model / "model-00001-of-00002.safetensors", model.parent / "elsewhere.safetensors")
    first = next(key for key, place in places.items() if "00001" in place)
    name = name.format(model.parent) if isinstance(name, str) else name
    moved = {key: name if place == places[first] else place for key, place in places.items()}
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": moved})
    )
    with pytest.raises(ConfigError, match="expected the name of a safetensors file in this folder"):
        Backbone.load(model, device="cpu")
    assert not sprung.exists()


def test_no_pickle_is_opened_wherever_it_lies(model: Path) -> None:
    sprung = model.parent / "sprung"
    trap, adapter = pickle.dumps(_Trap(sprung)), model.parent / "adapter"
    _save_adapter(model, adapter)
    names = (
        "pytorch_model.bin", "model.bin", "adapter_model.bin", "training_args.bin", "vocab.pkl",
        "tokenizer.pkl", "flax_model.msgpack", "tf_model.h5", "consolidated.00.pth",
        "rust_model.ot", "optimizer.pt", "generation.pkl",
    )  # fmt: skip
    for name in names:
        (model / name).write_bytes(trap)
    say(model / "adapter_config.json", base_model_name_or_path=str(model), peft_type="LORA")
    say(model / "config.json", transformers_weights="adapter_model.bin")
    say(
        model / "tokenizer_config.json",
        vocab_file=str(model / "vocab.pkl"),
        tokenizer_file=str(model / "tokenizer.pkl"),
    )
    Backbone.load(model, device="cpu")
    for name in names:
        (adapter / name).write_bytes(trap)
    Backbone.load(model, device="cpu").load_adapter("a", adapter)
    for name in ("model.safetensors", "tokenizer.json"):
        kept = (model / name).read_bytes()
        (model / name).write_bytes(trap)
        with pytest.raises(ConfigError):
            Backbone.load(model, device="cpu")
        (model / name).write_bytes(kept)
    assert not sprung.exists()
    pickle.loads(trap)
    assert sprung.exists(), "the trap works"


def test_a_link_out_of_the_folder_is_refused_and_a_snapshot_of_the_hub_is_read(
    tmp_path: Path, model: Path
) -> None:
    plain = Backbone.load(model, device="cpu")
    repository = tmp_path / "models--a--b"
    snapshot, blobs = repository / "snapshots" / "abc", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(model.iterdir())):
        shutil.copy(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert same(Backbone.load(snapshot, device="cpu"), plain)
    (tmp_path / "link").symlink_to(model)
    assert same(Backbone.load(tmp_path / "link", device="cpu"), plain)
    for name in ("config.json", "tokenizer.json", "model.safetensors", "generation_config.json"):
        kept = (model / name).rename(tmp_path / "kept")
        (model / name).symlink_to(kept)
        with pytest.raises(ConfigError, match="expected a file in the folder"):
            Backbone.load(model, device="cpu")
        (model / name).unlink()
        kept.rename(model / name)


def test_a_name_of_the_hub_is_the_same_and_only_files_of_the_list_are_asked_for(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[tuple[str, ...]] = []
    snapshot = model.rename(model.parent / "abc")
    places = split(snapshot)

    def download(name: str, allow_patterns: list[str], revision: str | None) -> str:
        asked.append((name, revision or "", *allow_patterns))
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert Backbone.load("org/model", device="cpu").model.config.name_or_path == "org/model"
    assert {name for name, *_ in asked} == {"org/model"}
    assert asked[-1] == ("org/model", "abc", *sorted(set(places.values())))
    assert not [
        one
        for call in asked
        for one in call[2:]
        if one.endswith((".bin", ".py", ".pt")) or "*" in one
    ]


# ------------------------------------------------------------------------------------- what is said

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


@pytest.mark.parametrize(
    ("file", "key"), [(file, key) for file, keys in NAMES.items() for key in keys]
)
def test_a_key_that_names_code_a_kernel_or_a_place_is_not_believed(
    model: Path, file: str, key: str
) -> None:
    whole = Backbone.load(model, device="cpu")
    say(model / file, **{key: NAMES[file][key]})
    with allowed_contents(model, "tokenizer") as view:
        assert key not in json.loads((view / file).read_text())
    found = Backbone.load(model, device="cpu")
    assert same(found, whole)
    assert found.model.config._attn_implementation == whole.model.config._attn_implementation
    assert found.eos_ids == whole.eos_ids


def test_a_kernel_in_a_part_of_a_config_is_not_believed_either(model: Path) -> None:
    say(
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


# ------------------------------------------------------------------------------------ whole weights


def test_a_weight_that_is_missing_is_not_made_up(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    gone = next(name for name in weights if "layers.1" in name)
    save_file(
        {name: weight for name, weight in weights.items() if name != gone},
        model / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ConfigError, match=rf"its weight files lack {gone}"):
        Backbone.load(model, device="cpu")


def test_a_weight_of_another_shape_is_refused(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    name = next(name for name in weights if "layers.0" in name and weights[name].ndim == 2)
    weights[name] = weights[name][:-1].contiguous()
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match=rf"have another shape of {name}"):
        Backbone.load(model, device="cpu")


def test_a_tokenizer_of_another_model_is_refused(model: Path) -> None:
    other = make_model_folder(model.parent / "larger", vocabulary=320)
    shutil.copy(other / "tokenizer.json", model)
    with pytest.raises(ConfigError, match="its tokenizer has tokens up to 3"):
        Backbone.load(model, device="cpu")


def test_a_config_that_describes_a_model_without_end_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "model_type": "gemma3n_text", "altup_num_inputs": 10**5, "num_hidden_layers": 2,
        "num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"],
        "intermediate_size": [64, 64], "vocab_size": 300, "activation_sparsity_pattern": [0.0, 0.0],
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(said))
    monkeypatch.setattr(loading, "MOST_TENSORS", 1000)
    with pytest.raises(ConfigError, match=r"config\.json describes more than 1,000 tensors"):
        Backbone.load(model, device="cpu")


def _save_adapter(model: Path, into: Path, **more: Any) -> None:
    plain = AutoModelForCausalLM.from_pretrained(model)
    get_peft_model(
        plain, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], **more)
    ).save_pretrained(into)


# ---------------------------------------------------------------------------------------- malformed

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


@pytest.fixture
def loaded() -> Callable[[Path], str]:
    def load(model: Path) -> str:
        """Return "loaded" or "refused"."""
        try:
            backbone = Backbone.load(model, device="cpu")
            tokens = torch.tensor([backbone.tokenizer("the dog")["input_ids"] or [0]])
            backbone.model(input_ids=tokens)
            backbone.save_policy(None, model.parent / "saved")
        except ConfigError as error:
            said = str(error)
            assert said
            assert "\n" not in said, said
            assert len(said) < 2000
            return "refused"
        return "loaded"

    return load


@pytest.mark.slow
def test_any_value_of_any_key_loads_or_is_refused_in_one_line(
    model: Path, loaded: Callable[[Path], str]
) -> None:
    endings: dict[str, int] = {"loaded": 0, "refused": 0}
    failed: list[str] = []
    cases = _cases(model)
    for file, key, value in cases:
        kept = (model / file).read_bytes() if (model / file).is_file() else None
        say(model / file, **{key: value})
        try:
            endings[loaded(model)] += 1
        except Exception as error:  # noqa: BLE001 - all failures are shown together
            failed.append(f"{file}: {key} = {value!r:.80}: {type(error).__name__}: {error!s:.300}")
        finally:
            (model / file).write_bytes(kept) if kept is not None else (model / file).unlink()
    assert not failed, "\n".join(failed)
    assert sum(endings.values()) == len(cases) > 1000
    assert min(endings.values()) > 100


HARMED: Mapping[str, bytes] = {
    "empty": b"", "no text": b"\xff\xfe", "cut": b'{"a": ', "a list": b"[]", "a number": b"1",
    "deep": b'{"a":' * 2000 + b"1" + b"}" * 2000, "very deep": b"[" * 100_000,
    "not finite": b'{"hidden_size": NaN}', "null": b"null", "nothing": b"{}",
    "a huge header": (10**15).to_bytes(8, "little") + b"{",
    "a header past its end": (500).to_bytes(8, "little") + b"{}",
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMED)
def test_a_file_of_something_else_is_refused_in_one_line(
    model: Path, loaded: Callable[[Path], str], harm: str
) -> None:
    split_too = make_model_folder(model.parent / "two")
    split(split_too)
    for place, names in (
        (
            model,
            (
                "config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "generation_config.json",
                "model.safetensors",
            ),
        ),
        (split_too, ("model.safetensors.index.json", "model-00001-of-00002.safetensors")),
    ):
        for name in names:
            kept = (place / name).read_bytes()
            (place / name).write_bytes(HARMED[harm])
            ending = loaded(place)
            may_load = harm == "nothing" and name in (
                "tokenizer_config.json",
                "generation_config.json",
            )
            assert ending == "refused" or may_load, name
            (place / name).write_bytes(kept)


def test_huge_files_and_hundreds_of_thousands_of_tokens_are_refused_before_they_are_read(
    model: Path,
) -> None:
    for name, most in (("config.json", folders.CONFIG), ("tokenizer.json", folders.VOCABULARY)):
        kept = (model / name).rename(model.parent / "kept")
        with (model / name).open("wb") as file:
            file.truncate(most + 1)
        with pytest.raises(ConfigError, match="MiB; expected at most this size"):
            load_tokenizer(model)
        kept.replace(model / name)
    said = json.loads((model / "tokenizer.json").read_text())
    said["added_tokens"] = [
        said["added_tokens"][0] | {"id": 400 + n, "content": f"t{n}"} for n in range(200_000)
    ]
    (model / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(
        ConfigError, match="added_tokens: got 200,000 tokens, expected at most 50,000"
    ):
        load_tokenizer(model)


def test_a_decoder_with_a_pattern_is_refused(model: Path) -> None:
    said = json.loads((model / "tokenizer.json").read_text())
    said["decoder"] = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
    (model / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match="decoder: got a pattern"):
        load_tokenizer(model)


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


def harm_tokenizer(model: Path, normalizer: dict[str, Any], added: str) -> None:
    said = json.loads((model / "tokenizer.json").read_text())
    token = {
        **said["added_tokens"][0],
        "id": 300,
        "content": added,
        "normalized": True,
        "special": False,
    }
    (model / "tokenizer.json").write_text(
        json.dumps(
            {**said, "normalizer": normalizer, "added_tokens": [*said["added_tokens"], token]}
        )
    )


def test_a_normalizer_that_makes_texts_grow_without_end_is_refused(model: Path) -> None:
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    harm_tokenizer(model, {"type": "Sequence", "normalizers": [double] * 40}, "a")
    with pytest.raises(
        ConfigError,
        match=r"tokenizer\.json: normalizer: makes texts more than 10,000 times longer",
    ):
        load_tokenizer(model)


def replaced(old: str, new: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


QUOTES = [replaced("``", '"'), replaced("''", '"')]
NORMALIZERS: Mapping[str, list[dict[str, Any]]] = {
    "bert": [
        {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "lowercase": True,
        },
    ],
    "llama": [{"type": "Prepend", "prepend": "▁"}, replaced(" ", "▁")],
    "gemma": [replaced(" ", "▁")],
    "whisper and marian, with NFC": [{"type": "NFC"}],
    "clip": [{"type": "NFC"}, replaced(r"\s+", " ", "Regex"), {"type": "Lowercase"}],
    "t5": [
        {"type": "Strip", "strip_left": False, "strip_right": True},
        replaced(" {2,}", "▁", "Regex"),
    ],
    "albert": [
        *QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
        replaced(" {2,}", " ", "Regex"),
    ],
    "nllb, with a sentinel": [
        {"type": "Nmt"}, {"type": "NFKC"}, replaced("^ $", "\ue000", "Regex"),
        {"type": "Strip", "strip_left": True, "strip_right": True}, replaced("\ue000", " "),
    ],
    "thirty letters for others": [
        replaced(f"[{chr(n)}{chr(n + 1)}]", "x", "Regex")
        for n in range(0x620, 0x63E)
    ],
    "signs that are spelt": [replaced(sign, f"<sign {ord(sign)}>") for sign in "\n\t…½€™✓№"],
    "signs with spaces around them": [replaced(sign, f" {sign} ") for sign in ".,;:!?()[]{}"],
    "one sign after the other": [
        replaced("…", "..."), replaced("...", " . . . "), replaced("  ", " "),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_as_tokenizers_have_them_are_far_from_the_limit(model: Path, name: str) -> None:
    harm_tokenizer(model, {"type": "Sequence", "normalizers": NORMALIZERS[name]}, "zzz")
    load_tokenizer(model)
    assert folders._growth({"type": "Sequence", "normalizers": NORMALIZERS[name]}) < 100


def test_growth_is_that_of_the_longest_way_of_a_character_through_the_steps() -> None:
    a_to_bbb, b_to_cc, c_to_dddd = replaced("a", "bbb"), replaced("b", "cc"), replaced("c", "dddd")
    assert folders._growth([a_to_bbb, b_to_cc, c_to_dddd]) == 3 * 2 * 4
    assert folders._growth([c_to_dddd, {"normalizers": [b_to_cc]}, a_to_bbb]) == 4
    assert folders._growth([replaced("ab", "aaaab"), replaced("ab", "b")]) == 2.5
    assert folders._growth([a_to_bbb, replaced("b+", "dd", "Regex")]) == 3 * 2
    assert folders._growth([replaced("a", ""), None, {"type": "NFC"}]) == folders._growth(None) == 1


def test_what_rust_panics_at_is_one_line(model: Path) -> None:
    harm_tokenizer(
        model, {"type": "Replace", "pattern": {"Regex": "^(a+)+$"}, "content": "b"}, "a" * 60 + "!"
    )
    with pytest.raises(ConfigError, match=r"\Amodel [^\n]+ cannot be loaded: [^\n]+\Z"):
        load_tokenizer(model)


def test_a_folder_of_nobody_and_a_file_name_that_is_too_long_are_one_line(model: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_tokenizer("~nobody-of-that-name/m")
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("a" * 300)
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        load_tokenizer(model)


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return a function that makes a file unreadable or a folder unsearchable, also for root."""

    def closed(path: Path) -> None:
        def refusing(ask: Callable[..., Any], inside: bool) -> Callable[..., Any]:
            def asked(at: Any, *rest: Any, **how: Any) -> Any:
                if (path in Path(at).parents) if inside else Path(at) == path:
                    raise PermissionError(13, "Permission denied", str(at))
                return ask(at, *rest, **how)

            return asked

        if path.is_dir():
            monkeypatch.setattr(Path, "stat", refusing(Path.stat, inside=True))
        else:
            monkeypatch.setattr(os, "open", refusing(os.open, inside=False))

    return closed


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "model.safetensors",
        "",
    ],
)
def test_what_may_not_be_read_of_a_model_is_one_line(
    model: Path, close: Callable[[Path], None], name: str
) -> None:
    close(model / name)
    with pytest.raises(
        ConfigError,
        match=r"\A[^\n]+ cannot be read: Permission denied; expected a readable [^\n]+\Z",
    ):
        Backbone.load(model, device="cpu")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", ""])
def test_what_may_not_be_read_of_an_adapter_is_one_line(
    model: Path, tmp_path: Path, close: Callable[[Path], None], name: str
) -> None:
    _save_adapter(model, tmp_path / "adapter")
    backbone = Backbone.load(model, device="cpu")
    close(tmp_path / "adapter" / name)
    with pytest.raises(
        ConfigError,
        match=r"\A[^\n]+ cannot be (read|accessed): Permission denied; expected [^\n]+\Z",
    ):
        backbone.load_adapter("a", tmp_path / "adapter")
