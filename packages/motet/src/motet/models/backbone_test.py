"""Backbones of three families: adapters on and off, which weights train, saving."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from motet.errors import ConfigError
from motet.models.backbone import Backbone, Policy
from motet.models.completions import completion_ends
from motet.models.loading import stored_generation
from motet.settings import Lora
from tests.fixtures.adapters import move_away
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture, make_tokenizer

FolderOf = Callable[..., Path]
IDS = torch.tensor([[5, 60, 200, 17, 9, 270]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


# ----------------------------------------------------------------------------------------- adapters


def test_a_fresh_adapter_is_the_base_and_with_adapters_off_it_stays_the_base_to_the_bit(
    folder_of: FolderOf, architecture: Architecture, with_adapter: Callable[..., Backbone]
) -> None:
    base = logits(Backbone.load(folder_of(architecture)).model)
    fresh = Backbone.load(folder_of(architecture))
    fresh.add_adapter("new", Lora(), seed=0)
    with fresh.policy("new"):
        assert torch.equal(logits(fresh.model), base)
    backbone = with_adapter(folder_of(architecture))
    with backbone.policy("a"):
        assert not torch.allclose(logits(backbone.model), base, atol=1e-3)
    with backbone.policy(None):
        assert torch.equal(logits(backbone.model), base)
    assert torch.equal(logits(backbone.model), base), "no adapter speaks where nobody asked for one"


def test_adapters_are_a_function_of_their_seed_and_leave_the_global_generator_alone(
    folder_of: FolderOf,
) -> None:
    before = torch.random.get_rng_state()
    backbone = Backbone.load(folder_of())
    for name, seed in (("x", 1), ("y", 1), ("z", 2)):
        backbone.add_adapter(name, Lora(), seed)
    x, y, z = (backbone.parameters_of(name) for name in "xyz")
    assert all(torch.equal(one, other) for one, other in zip(x, y, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(x, z, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_who_plays_changes_nothing_about_who_is_trained(folder_of: FolderOf) -> None:
    backbone = Backbone.load(folder_of())
    for name in ("lora", "writer.v2"):
        backbone.add_adapter(name, Lora(), seed=0)
    backbone.parameters_of("lora")[0].requires_grad_(False)

    def flags() -> list[bool]:
        return [parameter.requires_grad for parameter in backbone.model.parameters()]

    expected = flags()
    with backbone.policy("lora"):
        assert flags() == expected
        with backbone.policy(None):
            assert flags() == expected
        with (
            pytest.raises(KeyError, match=facts("lora, writer.v2")),
            backbone.policy("nobody"),
        ):
            pass
    assert flags() == expected


def test_a_policy_within_a_policy_gives_the_word_back_even_after_an_error(
    folder_of: FolderOf, with_adapter: Callable[..., Backbone]
) -> None:
    backbone = with_adapter(folder_of())
    with backbone.policy("a"):
        own = logits(backbone.model)
        with pytest.raises(RuntimeError), backbone.policy(None):
            raise RuntimeError
        assert torch.equal(logits(backbone.model), own)


def test_gradients_reach_the_active_adapter_only(folder_of: FolderOf) -> None:
    backbone = Backbone.load(folder_of())
    for name in ("x", "y"):
        backbone.add_adapter(name, Lora(), seed=0)
    with backbone.policy("x"):
        backbone.model(input_ids=IDS).logits.sum().backward()
    assert any(
        parameter.grad is not None and parameter.grad.any()
        for parameter in backbone.parameters_of("x")
    )
    moved = {
        id(parameter) for parameter in backbone.model.parameters() if parameter.grad is not None
    }
    assert moved == {id(parameter) for parameter in backbone.parameters_of("x")}


def test_policies_name_the_parameters_that_they_train(folder_of: FolderOf) -> None:
    full = Backbone.load(folder_of("qwen3"), trainable_full=True)
    names = [name for name, _ in full.model.named_parameters(remove_duplicate=False)]
    assert len(Policy("p", full).parameters()) == len(names) - names.count("lm_head.weight"), (
        "tied weights once"
    )
    assert Policy("p", full, trainable=False).parameters() == []
    shared = Backbone.load(folder_of("qwen3"))
    shared.add_adapter("x", Lora(targets=("q_proj",)), seed=0)
    shared.add_adapter("y", Lora(targets=("q_proj", "v_proj")), seed=0)
    assert len(Policy("x", shared, "x").parameters()) == 2 * 2, "two factors in each of two layers"
    assert len(Policy("y", shared, "y").parameters()) == 2 * 4
    assert Policy("base", shared).parameters() == []


def test_adapters_are_refused_where_they_cannot_be(folder_of: FolderOf) -> None:
    with pytest.raises(ConfigError, match="needs a frozen base"):
        Backbone.load(folder_of(), trainable_full=True).add_adapter("a", Lora(), seed=0)
    backbone = Backbone.load(folder_of())
    for targets in (("no_such_module",), ("q_proj", "no_such_module")):
        with pytest.raises(ConfigError, match=facts("'no_such_module' … v_proj")):
            backbone.add_adapter("a", Lora(targets=targets), seed=0)
    backbone.add_adapter("b", Lora(), seed=0)
    with pytest.raises(ConfigError, match="already on this backbone"):
        backbone.add_adapter("b", Lora(), seed=0)


# ------------------------------------------------------------------------------------------- saving


def test_a_saved_full_policy_is_an_ordinary_model_folder(
    folder_of: FolderOf, architecture: Architecture, tmp_path: Path
) -> None:
    backbone = Backbone.load(folder_of(architecture), trainable_full=True)
    with torch.no_grad():
        backbone.parameters_of(None)[0].mul_(1.5)
    Policy("p", backbone).save(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(plain), logits(backbone.model), atol=1e-5, rtol=0)
    assert (
        AutoTokenizer.from_pretrained(tmp_path)("def f")["input_ids"]
        == backbone.tokenizer("def f")["input_ids"]
    )
    assert Backbone.load(tmp_path).eos_ids == (1, 3)
    stored = stored_generation(tmp_path)
    assert completion_ends(tmp_path, stored, backbone.tokenizer).ids == (1, 3)
    (tmp_path / "generation_config.json").unlink()  # config.json also says it
    alone = Backbone.load(tmp_path)
    stored = stored_generation(tmp_path)
    assert completion_ends(tmp_path, stored, alone.tokenizer).ids == alone.eos_ids


def test_a_saved_full_policy_keeps_how_its_makers_sample(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    source = shutil.copytree(folder_of(), tmp_path / "source")
    path, ids = (
        source / "generation_config.json",
        json.loads((source / "generation_config.json").read_text()),
    )
    how = {
        "do_sample": False,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "suppress_tokens": [3, 4],
    }
    foreign = {
        "custom_generate": "stranger/code",
        "cache_implementation": "x",
        "_name": 3,
        "a_list": [1, "stranger/code"],
    }
    path.write_text(json.dumps({**ids, **how, **foreign}))
    for made in ("once", "twice"):
        backbone = Backbone.load(source, trainable_full=True)
        backbone.save_policy(None, tmp_path / made)
        source = tmp_path / made
        saved = json.loads((source / "generation_config.json").read_text())
        assert {**saved, **how, "eos_token_id": ids["eos_token_id"]} == saved
        assert not foreign.keys() & saved.keys()
        again = Backbone.load(source)
        assert again.eos_ids == backbone.eos_ids == tuple(sorted(ids["eos_token_id"]))
        assert torch.equal(logits(again.model), logits(backbone.model))
        assert AutoModelForCausalLM.from_pretrained(source).generation_config.top_p == 0.95


def test_a_saved_adapter_is_an_ordinary_peft_folder_and_loads_back(
    folder_of: FolderOf,
    architecture: Architecture,
    with_adapter: Callable[..., Backbone],
    tmp_path: Path,
) -> None:
    backbone = with_adapter(folder_of(architecture))
    Policy("a", backbone, "a").save(tmp_path)
    with backbone.policy("a"):
        own = logits(backbone.model)
    base = AutoModelForCausalLM.from_pretrained(folder_of(architecture))
    torch.testing.assert_close(
        logits(PeftModel.from_pretrained(base, str(tmp_path)).eval()), own, atol=1e-5, rtol=0
    )
    backbone.load_adapter("again", tmp_path)
    with backbone.policy("again"):
        assert torch.equal(logits(backbone.model), own)


def test_rows_of_several_adapters_say_what_pefts_mixed_batches_say(
    folder_of: FolderOf, architecture: Architecture, with_adapter: Callable[..., Backbone]
) -> None:
    backbone = with_adapter(folder_of(architecture))
    backbone.add_adapter("b", Lora(rank=2, alpha=6), seed=8)
    move_away(backbone, "b")
    tokens, adapters = torch.tensor([[5, 60, 200], [17, 9, 270], [42, 8, 61]]), ["a", "b", "b"]
    mask, at = torch.ones_like(tokens, dtype=torch.bool), torch.arange(3).expand(3, -1)
    before = logits(backbone.model)
    with torch.inference_mode():
        with backbone.mixing("ab") as mix:
            mix.rows(adapters)
            mixed, _ = backbone.logits(tokens, mask, at, keep=3)
        with backbone._adapters.active("a", by_peft=True):
            peft, inner = backbone._adapters._peft, backbone._adapters._inner
            expected = peft(
                input_ids=tokens, adapter_names=[inner[name] for name in adapters]
            ).logits
    assert torch.equal(logits(backbone.model), before), "nothing is left behind"
    torch.testing.assert_close(mixed, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_adapter_says_and_learns_what_it_does_by_peft(
    folder_of: FolderOf, architecture: Architecture, checkpointing: bool
) -> None:
    backbone = Backbone.load(folder_of(architecture), checkpointing=checkpointing)
    for number, name in enumerate("ab"):
        backbone.add_adapter(name, Lora(rank=2, alpha=6), seed=number)
        move_away(backbone, name)
    tokens = torch.tensor([[5, 60, 200, 11], [17, 9, 270, 42]])
    mask, at = torch.ones_like(tokens, dtype=torch.bool), torch.arange(4).expand(2, -1)

    def learnt(by_peft: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        backbone.mixes_adapters = not by_peft
        with backbone.policy("b"):
            states = backbone.states(tokens, mask, at, 3, use_cache=False)[0]
            (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        found = [weight.grad.clone() for weight in backbone.parameters_of("b")]
        assert all(weight.grad is None for weight in backbone.parameters_of("a"))
        for weight in backbone.parameters_of("b"):
            weight.grad = None
        return states.detach(), found

    assert backbone.mixes_adapters
    (said, moved), (expected, expected_moves) = learnt(by_peft=False), learnt(by_peft=True)
    assert all(move.abs().max() > 1e-3 for move in expected_moves)
    torch.testing.assert_close(said, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moved, expected_moves, atol=1e-5, rtol=1e-5)


def test_an_adapter_that_is_more_than_lora_of_linear_layers_shares_no_batch(
    folder_of: FolderOf,
) -> None:
    backbone = Backbone.load(folder_of("qwen3"))
    backbone.add_adapter("a", Lora(), seed=0)
    backbone.add_adapter("b", Lora(), seed=0)
    assert backbone.mixes_adapters
    backbone.add_adapter("words", Lora(targets=("embed_tokens",)), seed=0)
    assert not backbone.mixes_adapters


def test_an_adapter_with_modules_of_its_own_shares_no_batch(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    source = folder_of("llama")
    config = LoraConfig(
        r=4, task_type="CAUSAL_LM", target_modules=["q_proj"], modules_to_save=["norm"]
    )
    get_peft_model(AutoModelForCausalLM.from_pretrained(source), config).save_pretrained(tmp_path)
    backbone = Backbone.load(source)
    for name in "ab":
        backbone.load_adapter(name, tmp_path)
    assert not backbone.mixes_adapters


def test_whether_adapters_mix_is_tried_without_a_trace(
    folder_of: FolderOf, with_adapter: Callable[..., Backbone]
) -> None:
    backbone = with_adapter(folder_of("qwen3"))
    before = {name: weight.clone() for name, weight in backbone.model.named_parameters()}
    backbone.add_adapter("b", Lora(), seed=0)
    after = dict(backbone.model.named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert not any(weight.any() for name, weight in after.items() if "lora_B.policy1" in name), (
        "new, so equal to the base"
    )


def test_an_adapter_of_an_embedding_that_peft_saved_is_loaded_where_its_base_is_this_one(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    source = folder_of("llama")
    peft = get_peft_model(
        AutoModelForCausalLM.from_pretrained(source),
        LoraConfig(
            r=4,
            task_type="CAUSAL_LM",
            target_modules=["embed_tokens", "q_proj"],
            init_lora_weights=False,
        ),
    )
    peft.save_pretrained(tmp_path)
    backbone = Backbone.load(source)
    backbone.load_adapter("p", tmp_path)
    with backbone.policy("p"):
        torch.testing.assert_close(logits(backbone.model), logits(peft))
    weights = load_file(tmp_path / "adapter_model.safetensors")
    (base,) = (key for key in weights if ".base_layer." in key)
    save_file(weights | {base: weights[base] + 1}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=r"changes model\.embed_tokens\.weight of the base"):
        Backbone.load(source).load_adapter("p", tmp_path)


def test_an_adapter_of_an_embedding_is_trained_and_comes_back(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    backbone = Backbone.load(folder_of("llama"))
    backbone.add_adapter("p", Lora(rank=4, targets=("embed_tokens", "q_proj")), seed=0)
    own = [weight for name, weight in backbone.model.named_parameters() if "policy0" in name]
    assert {id(weight) for weight in backbone.parameters_of("p")} == {id(weight) for weight in own}
    move_away(backbone, "p")
    backbone.save_policy("p", tmp_path)
    again = Backbone.load(folder_of("llama"))
    again.load_adapter("p", tmp_path)
    with backbone.policy("p"), again.policy("p"):
        assert torch.equal(logits(again.model), logits(backbone.model))


def test_an_adapter_of_another_model_is_refused(
    folder_of: FolderOf, with_adapter: Callable[..., Backbone], tmp_path: Path
) -> None:
    with_adapter(folder_of("gpt2")).save_policy("a", tmp_path)
    with pytest.raises(ConfigError, match=facts("does not fit … model")):
        Backbone.load(folder_of("qwen3")).load_adapter("a", tmp_path)
    with pytest.raises(ConfigError, match=r"has no adapter_model\.safetensors"):
        Backbone.load(folder_of("qwen3")).load_adapter("a", tmp_path / "elsewhere")


def test_an_adapter_with_half_of_its_weights_is_refused(
    folder_of: FolderOf, tmp_path: Path
) -> None:
    backbone = Backbone.load(folder_of())
    backbone.add_adapter("whole", Lora(), seed=0)
    backbone.save_policy("whole", tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    save_file(
        {name: weights[name] for name in sorted(weights)[::2]},
        tmp_path / "adapter_model.safetensors",
    )
    with pytest.raises(ConfigError, match="no weights for"):
        Backbone.load(folder_of()).load_adapter("half", tmp_path)


@pytest.mark.wide
def test_adapters_of_a_deep_model_share_a_batch_in_bfloat16(tmp_path: Path) -> None:
    """Rounding errors of bfloat16 grow from layer to layer.

    With large random numbers in the adapters, they would reach a third of the logits.
    """
    torch.manual_seed(0)
    shape = {
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 768,
    }
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=300, num_hidden_layers=24, head_dim=64, **shape)
    ).bfloat16()
    model.save_pretrained(tmp_path)
    make_tokenizer("qwen3", False, 64, 300).save_pretrained(tmp_path)
    backbone = Backbone.load(tmp_path, dtype="bfloat16")
    for name in "ab":
        backbone.add_adapter(name, Lora(), seed=0)
    assert backbone.mixes_adapters
