"""motet export: a stranger's run folder brings no code along, and is refused in one line."""

import json

import pytest
from safetensors.torch import load_file

import motet
from motet.assembly.trained import steps_behind
from motet.models.backbone import Backbone, write_ends
from motet.models.folder import read_object
from motet.settings import Lora
from motet_serve.exports.weights import copy_adapter, copy_model, merge
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder, set_keys
from tests.fixtures.wide import widely


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_model_folder(tmp_path_factory.mktemp("base"))


@pytest.fixture
def adapter(base, tmp_path):
    backbone = Backbone.load(base, device="cpu")
    backbone.add_adapter("p", Lora(rank=4, targets=("q_proj",)), seed=0)
    backbone.save_policy("p", tmp_path / "p")
    return tmp_path / "p"


WRONG = [
    {"r": "x"},
    {"r": None},
    {"rank_pattern": [1]},
    {"rank_pattern": {"q_proj": "x"}},
    {"peft_type": "IA3"},
    {"megatron_config": {"x": 1}},
]
ONLY_WITH_WEIGHTS = [
    {"rank_pattern": {"q_proj": 60000}},
    {"modules_to_save": ["lm_head"]},
    {"target_modules": "(a+)+$"},
]


@pytest.mark.parametrize("keys", widely(WRONG, WRONG[1:2]))
def test_an_adapter_whose_config_is_wrong_is_neither_copied_nor_merged(
    base, adapter, tmp_path, keys
):
    set_keys(adapter / "adapter_config.json", **keys)
    with pytest.raises(motet.ConfigError, match=r"adapter_config\.json: .*got .*expected"):
        copy_adapter(adapter, tmp_path / "copy", "models/m")
    with pytest.raises(motet.ConfigError, match=r"adapter_config\.json: .*got .*expected"):
        merge(base, adapter, tmp_path / "merged", "float32")


@pytest.mark.parametrize("keys", widely(ONLY_WITH_WEIGHTS, ONLY_WITH_WEIGHTS[:2]))
def test_an_adapter_that_does_not_fit_its_weights_is_not_merged(base, adapter, tmp_path, keys):
    set_keys(adapter / "adapter_config.json", **keys)
    with pytest.raises(motet.ConfigError, match="xpected"):
        merge(base, adapter, tmp_path / "merged", "float32")


def test_the_copy_of_an_adapter_has_only_the_keys_of_lora(adapter, tmp_path):
    strange = {
        "auto_mapping": {"base_model_class": "X", "parent_library": "antigravity"},
        "megatron_core": "antigravity", "task_type": "ZZ", "lora_dropout": "x",
        "trainable_token_indices": [], "unknown": 0,
    }  # fmt: skip
    set_keys(adapter / "adapter_config.json", **strange)
    assert copy_adapter(adapter, tmp_path / "copy", "models/m") == 4
    said = json.loads((tmp_path / "copy" / "adapter_config.json").read_text())
    assert not {"auto_mapping", "megatron_core", "trainable_token_indices", "unknown"} & said.keys()
    assert said["task_type"] == "CAUSAL_LM"
    assert said["lora_dropout"] == 0.0
    saved = load_file(adapter / "adapter_model.safetensors")
    assert load_file(tmp_path / "copy" / "adapter_model.safetensors").keys() == saved.keys()


def test_the_copy_of_a_model_names_no_code_and_no_kernel(tmp_path):
    model = make_model_folder(tmp_path / "model")
    before = read_object(model / "config.json")
    names = {
        "auto_map": {"AutoModelForCausalLM": "someone/else--modeling.Model"},
        "attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel",
        "transformers_weights": "other.safetensors", "use_kernels": True,
    }  # fmt: skip
    set_keys(model / "config.json", **names, nested={"auto_map": {}, "attn_implementation": "a/b"})
    set_keys(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["a/b--c.D", None]})
    copy_model(model, tmp_path / "copy")
    assert read_object(tmp_path / "copy" / "config.json") == {**before, "nested": {}}
    assert "auto_map" not in read_object(tmp_path / "copy" / "tokenizer_config.json")


def test_a_generation_config_without_tokens_is_refused(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(motet.ConfigError, match=facts("eos_token_id … 'x' … number … token")):
        write_ends(tmp_path, [1])


SAID = ["[]", "{}", *(f'{{"steps": {value}}}' for value in ('"x"', "null", "1.5", "-1"))]


@pytest.mark.parametrize("said", SAID)
def test_a_summary_without_steps_is_refused(tmp_path, said):
    (tmp_path / "summary.json").write_text(said)
    with pytest.raises(motet.ConfigError, match=r"summary\.json: steps: got .*expected the number"):
        steps_behind(tmp_path)
