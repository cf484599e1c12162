"""Model folders from untrusted sources: no pickle is opened, no code runs, errors are one line."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from motet.errors import ConfigError
from motet.models import folder as folders
from motet.models import loading
from motet.models.backbone import Backbone
from motet.models.loading import load_tokenizer
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder, same_weights, set_keys


class _Trap:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.sprung),)


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


def test_weights_in_several_files_are_read(model: Path) -> None:
    whole = Backbone.load(model, device="cpu")
    split(model)
    assert same_weights(Backbone.load(model, device="cpu"), whole)


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
    with pytest.raises(ConfigError, match=facts("name … safetensors file … this folder")):
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
    set_keys(model / "adapter_config.json", base_model_name_or_path=str(model), peft_type="LORA")
    set_keys(model / "config.json", transformers_weights="adapter_model.bin")
    set_keys(
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
    assert same_weights(Backbone.load(snapshot, device="cpu"), plain)
    (tmp_path / "link").symlink_to(model)
    assert same_weights(Backbone.load(tmp_path / "link", device="cpu"), plain)
    for name in ("config.json", "tokenizer.json", "model.safetensors", "generation_config.json"):
        kept = (model / name).rename(tmp_path / "kept")
        (model / name).symlink_to(kept)
        with pytest.raises(ConfigError, match=facts(f"{name} … link … file in the folder")):
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
    with pytest.raises(ConfigError, match=r"tokenizer .* up to 3"):
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
        with pytest.raises(ConfigError, match=facts(f"{name} … MiB … at most")):
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


def test_a_folder_of_nobody_and_a_file_name_that_is_too_long_are_one_line(model: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_tokenizer("~nobody-of-that-name/m")
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("a" * 300)
    with pytest.raises(ConfigError, match=facts("config.json … File name too long")):
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
        match=r"\A[^\n]+ Permission denied; [^\n]+\Z",
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


def nested(levels: int) -> dict[str, Any]:
    return {"a": nested(levels - 1)} if levels else {"a": "é"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (nested(folders.DEEPEST), None),
        (nested(folders.DEEPEST + 1), "nested too deeply … at most 20"),
        ({"a": [{"b": ["x", "y\ud800"]}]}, "'y\\ud800' … lone surrogate"),
        ({"a": {"\udfff": 1}}, "'\\udfff' … lone surrogate"),
        ({"a": ["\ud83d", "\ude00"]}, "'\\ud83d' … lone surrogate"),
        ({"a": [1, [2.0, float("nan")]]}, "got nan … numbers"),
    ],
)
def test_values_are_checked_at_every_depth(said: dict[str, Any], why: str | None, tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(said))
    if why is None:
        assert folders.read_object(file) == said
        return
    with pytest.raises(ConfigError, match=facts(why)):
        folders.read_object(file)


def test_the_same_tokenizer_is_checked_once_and_another_one_again(model: Path, monkeypatch: Any):
    file = model / "tokenizer.json"
    folders.check_tokenizer(file)
    with monkeypatch.context() as changed:
        changed.setattr(folders, "parse_json", None)  # whatever is checked again would call it
        folders.check_tokenizer(file)
    said = json.loads(file.read_text())
    file.write_text(json.dumps({**said, "decoder": {"Regex": "a"}}))
    for _ in range(2):  # what is refused stays refused
        with pytest.raises(ConfigError, match=facts("decoder: got a pattern")):
            folders.check_tokenizer(file)


def test_the_name_of_an_installed_package_is_not_that_of_a_model(monkeypatch: Any) -> None:
    held = {"llm-tiny": [Path("llm_tiny/tiny.gguf")], "gpt2": [Path("gpt2/__init__.py")]}
    monkeypatch.setattr(folders.metadata, "files", held.get)
    assert [folders._is_package(name) for name in ("llm-tiny", "gpt2")] == [True, False]
    said = facts("'llm-tiny' is an installed package … pip:llm-tiny")
    with pytest.raises(ConfigError, match=said), folders.allowed_contents("llm-tiny", "config"):
        pass
