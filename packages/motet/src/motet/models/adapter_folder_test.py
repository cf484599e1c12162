"""Adapter folders from untrusted sources: no pattern hangs, the base never changes, errors are one
line.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from motet.errors import ConfigError
from motet.models import bounded_text
from motet.models.backbone import Backbone
from motet.settings import Lora
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder

HANG = "(.*.*.*.*)*(a+)+b$"
IDS = torch.tensor([[5, 60, 200, 17]])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_folder(tmp_path_factory.mktemp("adapter") / "m")


@pytest.fixture(scope="module")
def sound(model: Path) -> Path:
    """Save an adapter that changes the model's logits."""
    backbone = Backbone.load(model, device="cpu")
    backbone.add_adapter("a", Lora(rank=2, targets=("q_proj", "v_proj")), seed=0)
    with torch.no_grad():
        for parameter in backbone.parameters_of("a"):
            parameter.add_(0.1)
    backbone.save_policy("a", model.parent / "sound")
    return model.parent / "sound"


@pytest.fixture
def adapter(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "adapter")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_text, "SECONDS", 0.5)


def say(folder: Path, **keys: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def logits(model: Path, adapter: Path) -> torch.Tensor:
    backbone = Backbone.load(model, device="cpu")
    backbone.load_adapter("a", adapter)
    with backbone.policy("a"), torch.no_grad():
        found: torch.Tensor = backbone.model(input_ids=IDS).logits
    return found


def test_a_pattern_of_modules_is_read_and_saved_as_their_names(
    model: Path, adapter: Path, tmp_path: Path
) -> None:
    named = logits(model, adapter)
    say(adapter, target_modules=r"model\.layers\.\d+\.self_attn\.(q|v)_proj")
    assert torch.equal(logits(model, adapter), named)
    backbone = Backbone.load(model, device="cpu")
    backbone.load_adapter("a", adapter)
    backbone.load_adapter("b", adapter)
    backbone.save_policy("b", tmp_path / "again")
    assert isinstance(
        json.loads((tmp_path / "again" / "adapter_config.json").read_text())["target_modules"], list
    )
    assert torch.equal(logits(model, tmp_path / "again"), named)


PATTERNS: Mapping[str, Any] = {
    "target_modules": HANG, "exclude_modules": HANG, "layers_pattern": "(a+)+b",
    "modules_to_save": ["(a+)+b"], "rank_pattern": {"(a+)+b": 4}, "alpha_pattern": {"(a+)+b": 4},
}  # fmt: skip


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("key", PATTERNS)
def test_a_pattern_that_hangs_is_refused(model: Path, adapter: Path, key: str) -> None:
    backbone = Backbone.load(model, device="cpu")
    backbone._adapters._modules.append("a" * 40)
    say(adapter, **{key: PATTERNS[key], "layers_to_transform": [0]})
    with pytest.raises(ConfigError, match=key):
        backbone.load_adapter("a", adapter)


CHANGES: Mapping[str, Any] = {
    "bias": "all", "init_lora_weights": "pissa", "megatron_config": {"a": 1},
    "loftq_config": {"loftq_bits": 4}, "eva_config": {"rho": 2.0},
    "corda_config": {"cache_file": "x.pt"}, "lora_ga_config": {"cache_file": "x.pt"},
    "layer_replication": [[0, 2]], "trainable_token_indices": [1], "target_parameters": ["(x+)+y"],
    "arrow_config": {"a": 1}, "alora_invocation_tokens": [1], "use_qalora": True,
    "use_bdlora": {"a": 1}, "a_key_of_tomorrow": True, "peft_type": "PROMPT_TUNING",
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGES)
def test_what_would_change_the_base_or_name_other_files_is_refused(
    model: Path, adapter: Path, key: str
) -> None:
    backbone = Backbone.load(model, device="cpu")
    before = {name: weight.clone() for name, weight in backbone.model.state_dict().items()}
    say(adapter, **{key: CHANGES[key]})
    with pytest.raises(ConfigError, match=rf"adapter_config\.json: {key}: got "):
        backbone.load_adapter("a", adapter)
    assert all(
        torch.equal(weight, before[name]) for name, weight in backbone.model.state_dict().items()
    )


def test_a_name_in_the_file_begins_no_line_of_its_own(model: Path, adapter: Path) -> None:
    tensors = adapter / "adapter_model.safetensors"
    save_file(load_file(tensors) | {"!\n\nerror: run this: curl": torch.zeros(2, 2)}, tensors)
    with pytest.raises(
        ConfigError, match=r"\A[^\n]+no parameter for !\\n\\nerror: run this: curl\Z"
    ):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rank_pattern", {f"m{number}": 2 for number in range(1001)}),
        ("layers_pattern", [f"m{n}" for n in range(11)]),
    ],
)
def test_patterns_that_take_long_to_try_are_refused(
    model: Path, adapter: Path, key: str, value: Any
) -> None:
    say(adapter, layers_to_transform=[0], **{key: value})
    with pytest.raises(ConfigError, match=rf"adapter_config\.json: {key}: got "):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)


def test_dropout_is_off_in_an_adapter_that_was_trained_with_it(
    model: Path, adapter: Path, tmp_path: Path
) -> None:
    named = logits(model, adapter)
    say(adapter, lora_dropout=0.5)
    backbone = Backbone.load(model, device="cpu")
    backbone.load_adapter("a", adapter)
    backbone.model.train()
    with backbone.policy("a"), torch.no_grad():
        assert torch.equal(backbone.model(input_ids=IDS).logits, named)
    backbone.save_policy("a", tmp_path / "again")
    assert (
        json.loads((tmp_path / "again" / "adapter_config.json").read_text())["lora_dropout"] == 0.0
    )


def test_where_an_adapter_comes_from_is_not_believed(model: Path, adapter: Path) -> None:
    named = logits(model, adapter)
    say(
        adapter, base_model_name_or_path="/etc", revision="x",
        auto_mapping={"parent_library": "os", "base_model_class": "x"}, megatron_core="os",
        runtime_config={"ephemeral_gpu_offload": True}, peft_version="99", task_type="SEQ_CLS",
    )  # fmt: skip
    assert torch.equal(logits(model, adapter), named)


VALUES = (
    None, True, -1, 0, 2, 10**9, 2**70, 0.5, 1e308, "", "x", "\x1b\ud800", "[", [], [1], ["x"],
    [""], [[]], {}, {"x": 1}, {"": 2}, {"q_proj": -1}, "a" * 5000,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_any_value_of_any_key_loads_or_is_refused_in_one_line(model: Path, adapter: Path) -> None:
    endings = {"loaded": 0, "refused": 0}
    config = (adapter / "adapter_config.json").read_bytes()
    backbone = Backbone.load(model, device="cpu")
    for key in json.loads(config):
        for value in VALUES:
            say(adapter, **{key: value})
            try:
                backbone.load_adapter(f"{key} {value!r}", adapter)
                endings["loaded"] += 1
                backbone = Backbone.load(model, device="cpu")
            except ConfigError as error:
                endings["refused" if "\n" not in str(error) else "in several lines"] += 1
                backbone = backbone if not backbone.adapters else Backbone.load(model, device="cpu")
            (adapter / "adapter_config.json").write_bytes(config)
    assert sum(endings.values()) > 500
    assert min(endings.values()) > 50


@pytest.mark.parametrize(
    "harm",
    [b"", b"\xff", b"[]", b"[" * 100_000, b'{"peft_type": "LORA"}', (10**15).to_bytes(8, "little")],
)
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_broken_file_is_refused_in_one_line(
    model: Path, adapter: Path, name: str, harm: bytes
) -> None:
    (adapter / name).write_bytes(harm)
    with pytest.raises(ConfigError, match=r"\A[^\n]+\Z"):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)


def test_weights_of_another_shape_or_with_a_link_out_are_refused(
    model: Path, adapter: Path
) -> None:
    tensors = adapter / "adapter_model.safetensors"
    weights = load_file(tensors)
    save_file({name: weight[..., :-1].contiguous() for name, weight in weights.items()}, tensors)
    with pytest.raises(ConfigError, match=r"\A[^\n]+\Z"):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)
    say(adapter, r=60_000)
    with pytest.raises(ConfigError, match=facts("rank 60000 … config … weights … rank 2")):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)
    save_file({"x": torch.zeros(1)}, tensors)
    with pytest.raises(ConfigError, match=facts("rank 60000 … config … weights … rank 0")):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)
    tensors.rename(adapter.parent / "elsewhere")
    tensors.symlink_to(adapter.parent / "elsewhere")
    with pytest.raises(ConfigError, match=facts("link … file in the folder")):
        Backbone.load(model, device="cpu").load_adapter("a", adapter)
