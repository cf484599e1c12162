"""Reports about numbers: log-probabilities, losses, gradients, and what an optimizer does."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from motet.batch import Batch, minibatches, pack, policy_objective
from motet.core import Completion, SampleId, TrainSample
from motet.models.backbone import Backbone, Policy
from motet.models.forward import forward
from motet.models.learner import LocalLearner
from motet.settings import Algorithm, Lora, Optimizer
from tests.reports.small_teams import trained
from tests.reports.tiny_models import plain_logprobs, plain_model, with_dropout

PROMPTS = ((5, 60, 200), (17, 9, 270, 33, 8, 61), (42,))
ANSWERS = ((7, 8, 9, 1), (100, 101, 1), (55, 1), (200, 201, 202, 203, 204, 1), (30, 1))
PLAIN = Algorithm()
REDUCTIONS = ("token_mean", "sequence_mean", "sequence_sum", "constant_length")


def rows(policy: str = "p", temperature: float = 1.0) -> list[TrainSample]:
    """Five completions of three prompts, with advantages of both signs that sum to no round
    number."""
    return [
        TrainSample(
            SampleId("e", (), "a", index), 0, PROMPTS[index % 3],
            Completion(
                policy, "", "stop", tokens=answer, logprobs=(-3.0,) * len(answer),
                temperature=temperature,
            ),
            advantage=(-1.0) ** index * (index + 1), share=0.2,
        )
        for index, answer in enumerate(ANSWERS)
    ]  # fmt: skip


def whole(folder: Path, **how: object) -> Policy:
    return Policy("p", Backbone.load(folder, device="cpu", trainable_full=True, **how))


def learner_of(*policies: Policy, rate: float = 1e-2) -> LocalLearner:
    settings = {policy.name: Optimizer(learning_rate=rate) for policy in policies}
    return LocalLearner(list(policies), settings, 10)


def gradient(policy: Policy) -> torch.Tensor:
    found = [p.grad.flatten() for p in policy.parameters() if p.grad is not None]
    return torch.cat(found).clone()


def accumulated(
    policy: Policy, samples: list[TrainSample], budget: int, algorithm: Algorithm = PLAIN
) -> torch.Tensor:
    """Return the gradient of a step whose micro-batches have at most `budget` padded tokens."""
    learner = learner_of(policy)
    longest = {policy.name: 8}
    for batch in pack(samples, budget, algorithm.reduce, longest):
        asyncio.run(learner.accumulate(batch, policy_objective(algorithm)))
    return gradient(policy)


# ------------------------------------------------------------------- micro-batches and weights


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_the_gradient_does_not_depend_on_the_micro_batches(reduce, folder):
    """huggingface/trl#3021, modelscope/ms-swift#10117, NVIDIA-NeMo/RL#84: the loss is divided per
    micro-batch, or once more by their number, so its size depends on the split."""
    policy, algorithm = whole(folder), Algorithm(reduce=reduce)
    split = accumulated(policy, rows(), 12, algorithm)
    for parameter in policy.parameters():
        parameter.grad = None
    once = accumulated(policy, rows(), 10**6, algorithm)
    assert len(pack(rows(), 12, reduce, {"p": 8})) >= 4
    assert once.norm() > 0.1
    assert torch.allclose(split, once, atol=1e-5 * float(once.abs().max()))


def test_an_advantage_stays_with_its_completion_in_every_micro_batch():
    """tenstorrent/tt-metal#46548: advantages and log-probabilities are split in different ways, so
    rewards are scrambled where a batch has several micro-batches."""
    samples = rows()[::-1]
    for budget in (1, 12, 20, 10**6):
        seen = {}
        for batch in pack(samples, budget, "sequence_sum", {"p": 8}):
            for row, place in enumerate(batch.ids):
                length = int(batch.mask_BL[row].sum())
                prompt = batch.prompts_PL[batch.prompt_of_B[row]]
                mask = batch.prompt_mask_PL[batch.prompt_of_B[row]]
                seen[place] = (
                    tuple(prompt[mask].tolist()),
                    tuple(batch.tokens_BL[row, :length].tolist()),
                    set(batch.advantages_BL[row, :length].tolist()),
                )
        assert seen == {
            one.id: (one.prompt_tokens, one.completion.tokens, {one.advantage}) for one in samples
        }


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_the_minibatches_of_a_step_together_are_the_step(reduce):
    """huggingface/trl#6024, huggingface/trl#5619: where fewer completions are learned from at once
    than were generated, the loss is scaled by the ratio of the two numbers."""
    samples = rows() * 2
    samples = [replace(s, id=replace(s.id, index=n), share=0.1) for n, s in enumerate(samples)]
    parts = list(minibatches(samples, 1, 2, seed=0))
    assert [len(part) for part in parts] == [5, 5]
    once = sum(float(b.token_weight_B.sum()) for b in pack(samples, 10**6, reduce, {"p": 8}))
    each = [
        sum(
            float(batch.token_weight_B.sum())
            for batch in pack(part, 10**6, reduce, {"p": 8}, scale=len(samples) / len(part))
        )
        for part in parts
    ]
    # a mean per token weighs each part's tokens by their own number; the others are exact sums
    assert sum(each) / 2 == pytest.approx(once, rel=0.15 if reduce == "token_mean" else 1e-6)


# ---------------------------------------------------------------------- log-probabilities


@pytest.mark.parametrize("setting", ["temperature=0.5", "temperature=2.0", "top_p=0.5", "top_k=3"])
def test_training_sees_the_log_probabilities_of_sampling(setting, tmp_path, folder):
    """THUDM/slime#557, databricks/compose-rl#105: logits are not divided by the temperature in
    training. huggingface/trl#6789, verl-project/verl#6240: the sampler's log-probabilities are
    normalised over the tokens that top-p and top-k leave, and training's over all of them."""
    run = trained(
        tmp_path, folder, f"decode.{setting}", "algorithm.kl_in=loss",
        "algorithm.kl_coefficient=0.1", samples=4,
    )  # fmt: skip
    assert run.metrics.loc[1, "learn/sampling_logp_difference"] < 1e-4
    assert run.metrics.loc[1, "learn/kl"] < 1e-6, "a new adapter is its reference"
    name, value = setting.split("=")
    temperature = float(value) if name == "temperature" else 1.0
    plain = plain_model(folder)
    episode = next(run.episodes(step=1))
    for completion in episode.root.samples["a"]:
        expected = plain_logprobs(
            plain, episode.root.prompt_tokens["a"], completion.tokens, temperature
        )
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def scored(folder: Path, samples: list[TrainSample]) -> list[list[float]]:
    backbone = Backbone.load(folder, device="cpu")
    assert backbone.packs_sequences
    (batch,) = pack(samples, 10**6, "sequence_sum", {"p": 8})
    with torch.no_grad():
        logp_BL, _ = forward(backbone, batch, batch.temperature_B)
    found = {
        place: logp_BL[row][batch.mask_BL[row]].tolist() for row, place in enumerate(batch.ids)
    }
    return [found[one.id] for one in samples]


def test_packed_rows_do_not_see_each_other(folder):
    """huggingface/trl#784, axolotl-ai-cloud/axolotl#1375, huggingface/nanoVLM#201: packed texts
    attend to the texts before them, and their positions go on counting."""
    plain = plain_model(folder)
    for one, found in zip(rows(), scored(folder, rows()), strict=True):
        expected = plain_logprobs(plain, one.prompt_tokens, one.completion.tokens)
        assert found == pytest.approx(expected, abs=1e-4)


def test_completions_of_other_lengths_keep_their_own_logits(folder):
    """modelscope/ms-swift#3069: one number of logits is kept for all rows of a batch, so a mask is
    right only for some of them."""
    samples = rows()
    longer = [*samples, replace(samples[0], id=SampleId("e", (), "a", 9), prompt_tokens=(3,) * 40)]
    assert scored(folder, longer)[:5] == [
        pytest.approx(expected, abs=1e-5) for expected in scored(folder, samples)
    ]


@pytest.mark.parametrize("full", [True, False], ids=["all weights", "adapter"])
def test_dropout_is_off_in_sampling_and_in_training(full, tmp_path, tok):
    """verl-project/verl#4708, huggingface/trl#2042, huggingface/trl#3000: dropout of the model or
    of an adapter acts while completions are sampled or scored."""
    model = with_dropout(tmp_path / "m", tok)
    kl = ("algorithm.kl_in=loss", "algorithm.kl_coefficient=0.1")
    run = trained(tmp_path, model, *kl, steps=2, full=full)
    assert run.metrics.loc[1:, "learn/sampling_logp_difference"].max() < 1e-4
    if not full:
        assert '"lora_dropout": 0.0' in (run.path / "team/a/adapter_config.json").read_text()


def test_the_difference_of_sampling_and_training_does_not_grow_without_learning(tmp_path, folder):
    """allenai/open-instruct#1473: at a learning rate of 0, sampling and training drift apart."""
    run = trained(tmp_path, folder, "optimizer.learning_rate=1e-30", steps=4)
    assert run.metrics.loc[1:, "learn/sampling_logp_difference"].max() < 1e-5
    moved = load_file(run.path / "team/a/adapter_model.safetensors")
    assert max(float(w.abs().max()) for name, w in moved.items() if "lora_B" in name) < 1e-25


def test_the_entropy_is_that_of_completion_tokens_at_the_temperature(pair):
    """huggingface/trl#6121, allenai/open-instruct#756: padding counts in the entropy, which even
    becomes negative."""
    base = plain_model(Path(pair.config.models["base"].path))
    entropies = []
    for episode in pair.episodes(step=1):
        for agent, prompt in episode.root.prompt_tokens.items():
            for completion in episode.root.samples[agent]:
                ids = torch.tensor([[*prompt, *completion.tokens]])
                with torch.no_grad():
                    logp = (base(input_ids=ids).logits[0, len(prompt) - 1 : -1] / 0.7).log_softmax(
                        -1
                    )
                entropies += (-(logp.exp() * logp).sum(-1)).tolist()
    assert pair.metrics.loc[1, "learn/entropy"] == pytest.approx(
        sum(entropies) / len(entropies), abs=1e-4
    )


# --------------------------------------------------------------------------------------- losses


def enumerated(logits: torch.Tensor, reference: torch.Tensor) -> Iterator[tuple[float, Batch]]:
    """Yield every completion of one token with its probability, as a batch without advantage."""
    chances = logits.detach().log_softmax(0)
    for action in range(len(logits)):
        sample = TrainSample(
            SampleId("e", (), "a", action), 0, (1,),
            Completion("p", "", "stop", tokens=(action,), logprobs=(float(chances[action]),)),
            advantage=0.0, share=1.0,
            reference_logprobs=(float(reference.log_softmax(0)[action]),),
        )  # fmt: skip
        (batch,) = pack([sample], 100, "sequence_sum", {"p": 1})
        yield float(chances[action].exp()), batch


def test_the_kl_term_of_the_loss_has_the_gradient_of_the_divergence():
    """NVIDIA-NeMo/RL#2506, marin-community/marin#1708: the gradient of the mean of log π −
    log π_ref over samples is 0 in expectation, not that of the divergence."""
    torch.manual_seed(0)
    logits, reference = torch.randn(4).requires_grad_(), torch.randn(4)
    algorithm = Algorithm(kl_in="loss", kl_coefficient=0.5, kl_estimator="k2")
    total = torch.zeros(4)
    for chance, batch in enumerated(logits, reference):
        logp = logits.log_softmax(0)[batch.tokens_BL]
        loss, _ = policy_objective(algorithm)(batch, logp, torch.zeros_like(logp))
        (each,) = torch.autograd.grad(loss, logits)
        total += chance * each
    log_p, log_r = logits.log_softmax(0), reference.log_softmax(0)
    (exact,) = torch.autograd.grad((log_p.exp() * (log_p - log_r)).sum(), logits)
    assert torch.allclose(total, 0.5 * exact, atol=1e-6)
    assert exact.norm() > 0.1


@pytest.mark.parametrize("coefficient", [0.0, 0.5])
def test_a_completion_without_advantage_has_the_gradient_of_the_divergence_alone(coefficient):
    """huggingface/trl#5588: a group with equal rewards still moves towards the reference if there
    is a KL term. That is the objective as GRPO states it; without the term nothing moves."""
    torch.manual_seed(1)
    logits, reference = torch.randn(4).requires_grad_(), torch.randn(4)
    kl = {"kl_in": "loss", "kl_coefficient": coefficient} if coefficient else {}
    for _, batch in enumerated(logits, reference):
        logp = logits.log_softmax(0)[batch.tokens_BL]
        loss, _ = policy_objective(Algorithm(**kl))(batch, logp, torch.zeros_like(logp))
        (each,) = torch.autograd.grad(loss, logits)
        (expected,) = torch.autograd.grad(
            coefficient * 0.5 * (logits.log_softmax(0)[batch.tokens_BL] - batch.reference_logp_BL)
            .square().sum(), logits,
        )  # fmt: skip
        assert torch.allclose(each, expected, atol=1e-7)
        assert (each.abs().max() > 0) == (coefficient > 0)


def surrogate(ratio: float, advantage: float, algorithm: Algorithm) -> float:
    sample = TrainSample(
        SampleId("e", (), "a", 0), 0, (1,),
        Completion("p", "", "stop", tokens=(3,), logprobs=(-2.0,)), advantage, 1.0,
    )  # fmt: skip
    (batch,) = pack([sample], 100, "sequence_sum", {"p": 1})
    logp = torch.tensor([[-2.0 + math.log(ratio)]])
    loss, _ = policy_objective(algorithm)(batch, logp, torch.zeros_like(logp))
    return float(loss)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (10.0, -2.0, 6.0),  # without a dual clip it is 20
        (10.0, 2.0, -2.4),  # a positive advantage has no second bound
        (0.5, -2.0, 1.6),
        (0.5, 2.0, -1.0),
        (1.1, 2.0, -2.2),
    ],
)
def test_the_dual_clip_bounds_negative_advantages_only_and_reaches_the_loss(ratio, advantage, loss):
    """thu-ml/tianshou#433: the dual clip acts on positive advantages too. THUDM/slime#2247: its
    bound is not passed on to the loss."""
    algorithm = Algorithm(policy_loss="clipped_surrogate", clip_dual=3.0)
    assert surrogate(ratio, advantage, algorithm) == pytest.approx(loss)


# ------------------------------------------------------------------------------------- optimizer


def test_checkpointing_blocks_keeps_every_gradient_of_an_adapter(folder):
    """locuslab/open-unlearning#178, huggingface/transformers#26221, microsoft/LoRA#120: with
    gradient checkpointing the adapters of a frozen base get no gradient."""
    found = []
    for checkpointing in (False, True):
        base = Backbone.load(folder, device="cpu", checkpointing=checkpointing)
        base.add_adapter("p", Lora(rank=2), 0)
        policy = Policy("p", base, "p")
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.05)
        found.append(accumulated(policy, rows(), 10**6))
        assert all(parameter.grad.abs().max() > 0 for parameter in policy.parameters())
    assert torch.allclose(*found, atol=1e-5 * float(found[0].abs().max()))


def test_small_updates_of_bfloat16_weights_add_up(folder):
    """vllm-project/speculators#765, NVIDIA-NeMo/Automodel#3444: in bfloat16 a weight of 1 never
    moves, because each update is rounded away."""
    policy = whole(folder, dtype="bfloat16")
    learner = learner_of(policy, rate=2e-4)
    norm = policy.backbone.model.model.norm.weight
    assert norm.dtype == torch.bfloat16
    assert set(norm.tolist()) == {1.0}
    (batch,) = pack(rows(), 10**6, "sequence_sum", {"p": 8})
    for _ in range(10):
        asyncio.run(learner.accumulate(batch, policy_objective(Algorithm())))
        asyncio.run(learner.step(["p"]))
    # ten steps of 2e-4: the next smaller number is 1 - 2^-8 = .9961, reached below .99805
    assert min(norm.tolist()) < 1.0


def test_the_norm_that_clips_is_that_of_the_whole_policy_and_of_no_other(folder):
    """nvidia-cosmos/cosmos-rl#120: each part of a model is clipped by a norm of its own. (Nor may
    the gradient of another policy count.)"""
    changes = []
    for scale in (1.0, 1e6):
        base = Backbone.load(folder, device="cpu")
        policies = []
        for seed, name in enumerate("pq"):
            base.add_adapter(name, Lora(rank=2), seed)
            policies.append(Policy(name, base, name))
        learner = learner_of(*policies)
        for name, factor in (("p", 1.0), ("q", scale)):
            given = [replace(row, advantage=row.advantage * factor) for row in rows(name)]
            for batch in pack(given, 10**6, "sequence_sum", {name: 8}):
                asyncio.run(learner.accumulate(batch, policy_objective(Algorithm())))
        norm = float(gradient(policies[0]).norm())
        figures = asyncio.run(learner.step(["p", "q"]))
        assert figures["p"]["grad_norm"] == pytest.approx(norm)
        changes.append([parameter.detach().clone() for parameter in policies[0].parameters()])
    assert all(torch.equal(*both) for both in zip(*changes, strict=True))
