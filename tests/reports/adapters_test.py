"""Reports about adapters and models: what is trained, saved, merged, and what the reference is."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import motet_serve
from motet.api.loaded import LoadedRun
from motet.batch import pack, policy_objective
from motet.models.backbone import Backbone, Policy
from motet.models.learner import LocalLearner
from motet.settings import Algorithm, Lora, Optimizer
from tests.fixtures.wide import widely
from tests.reports.numbers_test import rows
from tests.reports.small_teams import TWO, trained
from tests.reports.tiny_models import plain_logprobs, plain_model, random_model

pytestmark = pytest.mark.wide

FAST = "optimizer.learning_rate=0.05"


def peft_model(run: LoadedRun, agent: str) -> PeftModel:
    """Load a saved adapter with PEFT alone, on the base that the run was given."""
    base = plain_model(Path(run.config.models["base"].path))
    return PeftModel.from_pretrained(base, run.path / "team" / agent).eval()


def test_the_adapter_of_every_agent_is_saved_in_pefts_format_and_is_its_own(pair):
    """pettingllms-ai/PettingLLMs#10: trained adapters are not among what is saved, or not one per
    agent."""
    moved = []
    for agent in TWO:
        saved = peft_model(pair, agent)
        prompt, tokens = (5, 60, 200, 17), (7, 8, 9)
        mine = plain_logprobs(saved, prompt, tokens)
        with saved.disable_adapter():
            base = plain_logprobs(saved, prompt, tokens)
        assert max(abs(x - y) for x, y in zip(mine, base, strict=True)) > 1e-3
        moved.append(mine)
        tok = AutoTokenizer.from_pretrained(pair.path / "team" / agent)
        assert tok.chat_template
    assert moved[0] != moved[1]


def learned(base: Backbone, *names: str) -> None:
    """One step of these adapters, each on its own completions."""
    policies = [Policy(name, base, name) for name in names]
    learner = LocalLearner(policies, dict.fromkeys(names, Optimizer(learning_rate=1e-2)), 1)
    for name in names:
        for batch in pack(rows(name), 10**6, "sequence_sum", {name: 8}):
            asyncio.run(learner.accumulate(batch, policy_objective(Algorithm())))
    asyncio.run(learner.step(names))


def weights_of(base: Backbone, name: str) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in base.parameters_of(name)]


@pytest.mark.parametrize("together", ["pq", "p", "q"])
def test_an_adapter_learns_the_same_beside_another_one(together, folder):
    """huggingface/peft#1303, huggingface/peft#2436: of several adapters on one base only the active
    or the first one learns, or one gets the gradient of another."""
    after = {}
    for names in (together, "p", "q"):
        base = Backbone.load(folder, device="cpu")
        for seed, name in enumerate("pq"):
            base.add_adapter(name, Lora(rank=2), seed)
        before = {name: weights_of(base, name) for name in "pq"}
        learned(base, *names)
        for name in "pq":
            same = all(
                torch.equal(*both)
                for both in zip(before[name], weights_of(base, name), strict=True)
            )
            assert same == (name not in names)
        after[names] = {name: weights_of(base, name) for name in names}
    for name in together:
        alone, beside = after[name][name], after[together][name]
        assert all(torch.equal(*both) for both in zip(alone, beside, strict=True))


def test_a_frozen_adapter_stays_and_the_other_one_learns(tmp_path, folder, pair):
    """huggingface/peft#3580: a second adapter is loaded to be trained, and the first, frozen one is
    trained in its place."""
    first = pair.path / "team/a"
    run = trained(
        tmp_path, folder, "policies.a.train=frozen", f"policies.a.adapter={first}", FAST,
        "policies.a.lora=null", agents=TWO, steps=2,
    )  # fmt: skip
    assert not (run.path / "team/a").exists()
    learned_b = load_file(run.path / "team/b/adapter_model.safetensors")
    assert all(w.abs().max() > 0 for name, w in learned_b.items() if "lora_B" in name)
    frozen = peft_model(pair, "a")
    for step in (1, 2):
        episode = next(run.episodes(step=step))
        one = episode.root.samples["a"][0]
        expected = plain_logprobs(frozen, episode.root.prompt_tokens["a"], one.tokens)
        assert one.logprobs == pytest.approx(expected, abs=1e-4)


def test_the_reference_is_the_base_without_the_adapter(pair):
    """huggingface/trl#495: the reference is computed with the adapter on, so that the divergence is
    always 0."""
    kl = pair.metrics["learn/kl"]
    assert kl[1] < 1e-6
    assert kl[3] > 1e-4
    values = []
    for agent in TWO:
        base = plain_model(Path(pair.config.models["base"].path))
        for episode in pair.episodes(step=3):
            for one in episode.root.samples[agent]:
                prompt = episode.root.prompt_tokens[agent]
                reference = plain_logprobs(base, prompt, one.tokens, 0.7)
                gaps = [r - p for r, p in zip(reference, one.logprobs, strict=True)]
                values += [torch.tensor(gap).exp().item() - gap - 1 for gap in gaps]
    assert kl[3] == pytest.approx(sum(values) / len(values), rel=0.02)


@pytest.mark.parametrize("tied", [True, False])
def test_a_trained_model_is_saved_once_and_loads_whole(tied, tmp_path, tok):
    """hiyouga/LlamaFactory#10137, pytorch/torchtitan#3764, huggingface/transformers#30202: tied
    embeddings cannot be saved, are saved twice, or leave an empty head."""
    model = random_model(tmp_path / "m", tok, tied=tied)
    run = trained(tmp_path, model, FAST, full=True, steps=2)
    saved = run.path / "team/a"
    names = [name for file in saved.glob("*.safetensors") for name in load_file(file)]
    assert len(names) == len(set(names))
    assert ("lm_head.weight" in names) == (not tied)
    loaded, info = AutoModelForCausalLM.from_pretrained(
        saved, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    head, words = loaded.get_output_embeddings().weight, loaded.get_input_embeddings().weight
    assert (head.data_ptr() == words.data_ptr()) == tied
    episode = next(run.episodes("evaluate", step=2))
    (one,) = episode.root.samples["a"]
    expected = plain_logprobs(loaded, episode.root.prompt_tokens["a"], one.tokens)
    assert one.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("alpha", [4.0, 32.0])
def test_the_scale_of_an_adapter_is_alpha_over_rank_everywhere(alpha, tmp_path, folder):
    """Blaizzy/mlx-vlm#841, hao-ai-lab/FastVideo#870: an adapter is scaled by alpha, or by 1, in
    place of alpha / rank, in training, when it is loaded again or when it is merged."""
    run = trained(
        tmp_path, folder, FAST, f"policies.a.lora.alpha={alpha}", "policies.a.lora.rank=2", steps=2
    )
    saved = peft_model(run, "a")
    assert saved.peft_config["default"].lora_alpha == alpha
    episode = next(run.episodes("evaluate", step=2))
    (one,) = episode.root.samples["a"]
    prompt = episode.root.prompt_tokens["a"]
    expected = plain_logprobs(saved, prompt, one.tokens)
    assert one.logprobs == pytest.approx(expected, abs=1e-4)
    motet_serve.export_team(run.path, tmp_path / "out", merge=True)
    merged = plain_model(tmp_path / "out/policies/a")
    assert plain_logprobs(merged, prompt, one.tokens) == pytest.approx(expected, abs=1e-4)


def test_the_reference_of_a_policy_that_begins_with_an_adapter_is_that_adapter(
    tmp_path, folder, pair
):
    """huggingface/trl#3194: the reference is the base although training begins with an adapter, so
    the divergence is large from the first step on."""
    kl = ("algorithm.kl_in=loss", "algorithm.kl_coefficient=0.1", FAST)
    begun = (f"policies.a.adapter={pair.path / 'team/a'}", "policies.a.lora=null")
    run = trained(tmp_path, folder, *kl, *begun, steps=2)
    assert run.metrics.loc[1, "learn/kl"] < 1e-6
    assert run.metrics.loc[2, "learn/kl"] > 1e-4
    (episode, *_) = run.episodes(step=1)
    one = episode.root.samples["a"][0]
    expected = plain_logprobs(peft_model(pair, "a"), episode.root.prompt_tokens["a"], one.tokens)
    assert one.logprobs == pytest.approx(expected, abs=1e-4)


TIED = [["q_proj", "lm_head"], ["q_proj", "embed_tokens"], ["embed_tokens", "lm_head"]]


@pytest.mark.parametrize("targets", widely(TIED, keep=[TIED[2]]), ids=" ".join)
def test_a_merged_export_of_adapted_tied_embeddings_is_the_same_policy(targets, tmp_path, folder):
    """huggingface/peft#2018, huggingface/peft#2777: merging an adapter of lm_head or embed_tokens
    into tied embeddings changes both, so the merged model is another one."""
    lora = f"policies.a.lora.targets={json.dumps(targets)}"
    run = trained(tmp_path, folder, lora, FAST, steps=2)
    motet_serve.export_team(run.path, tmp_path / "out", merge=True)
    merged, saved = plain_model(tmp_path / "out/policies/a"), peft_model(run, "a")
    prompt, tokens = (5, 60, 200, 17), (7, 8, 9)
    expected = plain_logprobs(saved, prompt, tokens)
    assert plain_logprobs(merged, prompt, tokens) == pytest.approx(expected, abs=1e-4)
    with saved.disable_adapter():
        base = plain_logprobs(saved, prompt, tokens)
    assert max(abs(x - y) for x, y in zip(base, expected, strict=True)) > 0.01
