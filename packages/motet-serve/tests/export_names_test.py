"""motet export: names that meet, and adapters, tokenizers and files that others made."""

import pytest
import torch
import yaml
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import motet
import motet_serve
from motet.models.backbone import Backbone
from motet_serve.exports.weights import copy_model, merge
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import TEMPLATE, make_model_folder
from tests.small_runs import recorded, run_config

OWN = """
def ask(row):
    return row["q"]


def reward(row, texts):
    return float(sum(len(set(text)) for text in texts.values()))
"""
OTHER, THIRD = (TEMPLATE.replace("'<bos>'", f"'<bos>{letter}'") for letter in "XY")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two base models with a chat template, and the files of a run on them."""
    place = tmp_path_factory.mktemp("place")
    make_model_folder(place / "base", chat_template=True, context=160)
    make_model_folder(place / "second", chat_template=True, context=160, seed=5)
    (place / "own.py").write_text(OWN)
    (place / "own.jinja").write_text(OTHER)
    (place / "rows.jsonl").write_text('{"q": "hi"}\n{"q": "ho"}\n')
    return place


def adapter(base, into, **options):
    """Write an adapter as PEFT does, without a tokenizer."""
    torch.manual_seed(1)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(task_type="CAUSAL_LM", r=4, **options),
    )
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.3 * torch.randn_like(weight))
    model.save_pretrained(into)
    return into


def trained(place, runs, policies, models):
    """Train a run of one step on chats, with one agent per policy. Return its folder."""
    own, rows = f"{place}/own.py", {"path": str(place / "rows.jsonl")}
    team = {f"agent | {name}": name for name in policies}
    agents = dict.fromkeys(team, f"{own}:ask")
    config = run_config(
        environment={"name": "functions", "agents": agents, "reward": f"{own}:reward"},
        data={"train": rows, "eval": rows}, policies=policies, team=team,
        models={name: {"device": "cpu", **model} for name, model in models.items()},
        train={"steps": 1, "tasks_per_step": 1}, decode={"max_new_tokens": 6},
    )  # fmt: skip
    motet.train(config, runs=runs, show="silent")
    return runs / "run"


def games(target):
    return recorded(motet.evaluate(target, samples=4, show="silent"))


@pytest.mark.wide
def test_an_adapter_that_others_made_reads_with_the_tokenizer_of_the_run(place, tmp_path):
    base = place / "base"
    bare = adapter(base, tmp_path / "bare", target_modules=["q_proj", "v_proj"])
    other = adapter(base, tmp_path / "other", target_modules=["q_proj"])
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = THIRD
    tokenizer.save_pretrained(other)
    policies = {
        "p": {"model": "tiny", "train": "lora"},
        "bare": {"model": "tiny", "train": "frozen", "adapter": str(bare)},
        "other": {"model": "tiny", "train": "frozen", "adapter": str(other)},
    }
    model = {"path": str(base), "chat_template": str(place / "own.jinja")}
    run = trained(place, tmp_path, policies, {"tiny": model})
    own = games(run)
    for merged in (False, True):
        out = tmp_path / f"{merged}"
        motet_serve.export_team(run, out, merge=merged)
        assert games(out) == own
        for policy in policies:
            assert AutoTokenizer.from_pretrained(out / "policies" / policy).chat_template == OTHER


def test_models_and_policies_whose_names_meet_stay_apart(place, tmp_path):
    models = {
        "p": {"path": str(place / "second"), "chat_template": str(place / "own.jinja")},
        "p-policy": {"path": str(place / "base")},
        "p.jinja": {"path": str(place / "second")},
    }
    policies = {
        "p": {"model": "p-policy"},
        "q": {"model": "p", "train": "frozen"},
        "r": {"model": "p-policy", "train": "frozen"},
        "s": {"model": "p.jinja", "train": "frozen"},
    }
    run = trained(place, tmp_path, policies, models)
    motet_serve.export_team(run, tmp_path / "out")
    assert games(tmp_path / "out") == games(run)
    assert "\n| agent \\| p | p |\n" in (tmp_path / "out" / "README.md").read_text()
    said = yaml.safe_load((tmp_path / "out" / "team.yaml").read_text())
    places = {name: said["models"][one["model"]]["path"] for name, one in said["policies"].items()}
    assert places == {
        "p": "policies/p", "q": "models/p", "r": "models/p-policy", "s": "models/p.jinja"
    }  # fmt: skip


def test_a_merge_that_peft_cannot_do_is_refused_in_one_line(place, tmp_path):
    used = adapter(place / "base", tmp_path / "used", target_modules=["q_proj"], lora_bias=True)
    with pytest.raises(motet.ConfigError, match="an adapter that PEFT can merge: drop --merge"):
        merge(place / "base", used, tmp_path / "out", "float32")


def test_an_adapter_of_tied_embeddings_that_peft_saved_is_read(place, tmp_path):
    targets = ["embed_tokens", "lm_head"]
    with pytest.warns(UserWarning, match="save_embedding_layers"):
        used = adapter(place / "base", tmp_path / "used", target_modules=targets)
    backbone = Backbone.load(place / "base", device="cpu")
    backbone.load_adapter("p", used)
    plain = AutoModelForCausalLM.from_pretrained(place / "base")
    plain = PeftModel.from_pretrained(plain, used).eval()
    tokens = torch.tensor([[5, 9, 30, 77, 120, 41]])
    seen, places = torch.ones_like(tokens, dtype=torch.bool), torch.arange(6)[None]
    with torch.no_grad(), backbone.policy("p"):
        own, _ = backbone.logits(tokens, seen, places, keep=6)
        assert torch.allclose(own, plain(input_ids=tokens).logits, atol=1e-4)


def test_a_licence_that_is_a_link_out_of_the_model_is_not_copied(place, tmp_path):
    base = make_model_folder(tmp_path / "base")
    (tmp_path / "private").write_text("a private key")
    (base / "LICENSE").symlink_to(tmp_path / "private")
    with pytest.raises(
        motet.ConfigError, match=facts("LICENSE … link … private … expected a file")
    ):
        copy_model(base, tmp_path / "out")


def test_a_link_to_nothing_and_a_part_of_the_run_are_refused_as_targets(place, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("name: run\n")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(motet.ConfigError, match=facts("link … link to nothing")):
        motet_serve.export_team(run, tmp_path / "link")
    with pytest.raises(motet.ConfigError, match=facts("step-000009 … part of the run")):
        motet_serve.export_team(run, run / "checkpoints" / "step-000009")
