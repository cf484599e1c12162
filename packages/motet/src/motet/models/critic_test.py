"""Critics on real (tiny) models: what they read, their values, and which weights they train."""

import asyncio

import pytest
import torch

from motet.batch import merge, pack, pack_values, policy_objective, value_objective
from motet.core import (
    Completion,
    Message,
    SampleId,
    TrainSample,
    ValueId,
    ValueRequest,
    ValueSample,
)
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic, CriticInput, compute_values, read
from motet.models.learner import LocalLearner
from motet.models.rows import padded
from motet.models.sampler import LocalSampler
from motet.settings import Algorithm, Lora, Optimizer

PROMPTS = ("a: 1 + 1", "the quick brown fox", "b", "def add(a, b): return")
CHAT = (Message("system", "be brief"), Message("user", "the dog"))
SQUARED = value_objective(Algorithm(critic_view="own"), 1.0)


def full(folder, name: str = "critic") -> Critic:
    backbone = Backbone.load(folder, device="cpu", trainable_full=True)
    return with_opinions(Critic.on(name, Policy(name, backbone), owns_trunk=True))


def with_opinions(critic: Critic, seed: int = 3) -> Critic:
    """Give the critic a head that no longer returns 0 for everything."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        critic.head.weight += torch.randn(critic.head.weight.shape, generator=generator)
        critic.head.bias += 0.5
    return critic


def on_one_base(folder) -> tuple[Policy, Critic, Critic, Critic]:
    """Return a LoRA policy and three critics.

    Their trunks are an adapter of their own, the bare base, and the policy.
    """
    base = Backbone.load(folder, device="cpu")
    for seed, name in enumerate(("p", "critic-lora")):
        base.add_adapter(name, Lora(rank=2), seed)
    policy = Policy("p", base, "p")
    own = Critic.on("critic-lora", Policy("critic-lora", base, "critic-lora"), owns_trunk=True)
    head = Critic.on("critic-head", Policy("critic-head", base, trainable=False), owns_trunk=False)
    shared = Critic.on("critic-policy", policy, owns_trunk=False)
    return policy, *(with_opinions(critic) for critic in (own, head, shared))


def lessons(critic: Critic, target: float = 1.0) -> list[ValueSample]:
    rows = [read(critic, ValueRequest(critic.name, prompt)) for prompt in PROMPTS]
    return [
        ValueSample(
            ValueId(str(k), (), "a"),
            critic.name,
            (("p", 0),),
            0,
            row.tokens,
            row.positions,
            (target + k,),
            (0.0,),
            0.25,
        )
        for k, row in enumerate(rows)
    ]


def learn(
    learner: LocalLearner, rows: list[ValueSample], objective=SQUARED, budget: int = 10**6
) -> dict:
    return merge(
        [
            asyncio.run(learner.accumulate_values(batch, objective))
            for batch in pack_values(rows, budget)
        ]
    )


def step(learner: LocalLearner, *names: str) -> dict[str, dict[str, float]]:
    return asyncio.run(learner.step(names))


def learner_of(policies: list[Policy], critics: list[Critic], rate: float = 1e-2) -> LocalLearner:
    names = [one.name for one in (*policies, *critics)]
    return LocalLearner(policies, dict.fromkeys(names, Optimizer(learning_rate=rate)), 10, critics)


def copies(parameters) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def same(ones, others) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


# ------------------------------------------------------------------------------------- what it says


def test_the_first_value_of_everything_is_zero(folder_of, architecture):
    backbone = Backbone.load(folder_of(architecture), device="cpu", trainable_full=True)
    critic = Critic.on("c", Policy("c", backbone), owns_trunk=True)
    assert [
        said.values
        for said in compute_values(critic, [read(critic, ValueRequest("c", p)) for p in PROMPTS])
    ] == [(0.0,)] * len(PROMPTS)


def test_values_in_a_batch_are_those_of_each_row_alone_and_the_head_on_the_last_hidden_state(
    folder_of, architecture
):
    critic = full(folder_of(architecture))
    rows = [read(critic, ValueRequest("critic", prompt)) for prompt in PROMPTS]
    assert len({len(row.tokens) for row in rows}) > 1
    together = [said.values for said in compute_values(critic, rows)]
    for row, values in zip(rows, together, strict=True):
        ((alone,),) = (said.values for said in compute_values(critic, [row]))
        output = critic.backbone.model(
            input_ids=torch.tensor([row.tokens]), output_hidden_states=True
        )
        by_hand = critic.head(output.hidden_states[-1][0, -1]).item()
        assert values == (pytest.approx(alone, abs=1e-5),)
        assert alone == pytest.approx(by_hand, abs=1e-5)
    assert len({round(value, 3) for (value,) in together}) == len(PROMPTS)


def test_what_stands_in_the_padding_does_not_matter(folder_of, architecture):
    critic = full(folder_of(architecture))
    tokens_BL, mask_BL = padded(
        [(5, 6, 7, 8), (9, 10)], critic.backbone.pad_id, "right", critic.backbone.device
    )
    with torch.no_grad():
        values_BL = critic.values(tokens_BL, mask_BL)
        other_BL = critic.values(torch.where(mask_BL, tokens_BL, 42), mask_BL)
    assert torch.allclose(values_BL[mask_BL], other_BL[mask_BL], atol=1e-6)


def test_before_each_token_of_a_completion_stands_the_value_of_what_came_before_it(
    folder_of, architecture
):
    critic = full(folder_of(architecture))
    prompt, completion = (5, 6, 7), (8, 9, 10)
    rows = [read(critic, ValueRequest("critic", prompt_tokens=prompt, completion=completion))]
    (said,) = compute_values(critic, rows)
    assert (said.tokens, said.positions) == ((5, 6, 7, 8, 9), (2, 3, 4))
    for count, value in enumerate(said.values):
        before = (*prompt, *completion[:count])
        (alone,) = compute_values(critic, [CriticInput(before, (len(before) - 1,), 0)])
        assert value == pytest.approx(alone.values[0], abs=1e-5)


def test_a_critic_reads_a_prompt_as_its_own_model_would_be_asked_it(folder_of):
    critic = full(folder_of("qwen3", chat_template=True))
    reading = read(critic, ValueRequest("critic", CHAT))
    words = critic.backbone.tokenizer
    rows = [{"role": message.role, "content": message.content} for message in CHAT]
    tokens = tuple(words.apply_chat_template(rows, add_generation_prompt=True, return_dict=False))
    assert reading == CriticInput(tokens, (len(tokens) - 1,), 0)


def test_of_what_is_longer_than_its_context_a_critic_reads_the_end(folder_of):
    critic = full(folder_of("gpt2"))
    long = tuple(range(4, 4 + 2)) * 60
    reading = read(critic, ValueRequest("critic", prompt_tokens=long, completion=(9, 10, 11)))
    tokens = (*long, 9, 10)[-critic.backbone.context_length :]
    assert reading == CriticInput(
        tokens, tuple(range(len(tokens) - 3, len(tokens))), len(long) + 2 - len(tokens)
    )
    (said,) = compute_values(critic, [reading])
    assert len(said.values) == 3
    assert said.cut == reading.cut > 0


def test_the_sampler_answers_in_order_whatever_the_lengths_and_critics(folder_of):
    one, other = (
        full(folder_of("qwen3"), "one"),
        with_opinions(full(folder_of("gpt2"), "other"), seed=8),
    )
    requests = [ValueRequest(name, prompt) for prompt in PROMPTS for name in ("other", "one")]
    for budget in (1, 12, 10**6):
        sampler = LocalSampler({}, critics={"one": one, "other": other}, score_tokens=budget)
        said = asyncio.run(sampler.values(requests))
        for request, valued in zip(requests, said, strict=True):
            critic = {"one": one, "other": other}[request.critic]
            (alone,) = compute_values(critic, [read(critic, request)])
            assert valued.values == pytest.approx(alone.values, abs=1e-5)
            assert (valued.tokens, valued.positions) == (alone.tokens, alone.positions)


# ----------------------------------------------------------------------------------- what it learns


def test_a_critic_learns_what_it_is_told(folder_of, architecture):
    critic = full(folder_of(architecture))
    learner, errors = learner_of([], [critic], 3e-3), []
    for _ in range(10):
        errors.append(learn(learner, lessons(critic))["value_error"].value)
        step(learner, "critic")
    assert errors[-1] < 0.2 * errors[0]


@pytest.mark.parametrize("budget", [1, 25])
def test_any_split_into_micro_batches_gives_the_gradients_of_one(folder_of, budget):
    gradients = []
    for tokens in (budget, 10**6):
        critic = full(folder_of("qwen3"))
        learn(learner_of([], [critic]), lessons(critic), budget=tokens)
        gradients.append(torch.cat([p.grad.flatten() for p in critic.parameters()]))
    assert gradients[1].norm() > 0.1
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()


def test_every_weight_that_learns_gets_a_gradient_and_no_other(folder_of, architecture):
    critic = full(folder_of(architecture))
    learn(learner_of([], [critic]), lessons(critic))
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in critic.head.parameters())
    assert all(p.grad is not None for p in critic.parameters())
    own = {id(p) for p in critic.parameters()}
    assert all(p.grad is None for p in critic.backbone.model.parameters() if id(p) not in own)


@pytest.mark.parametrize("kind", ["lora", "head", "policy"])
def test_a_critic_stepped_alone_leaves_the_policy_as_it_was_to_the_bit(folder_of, kind):
    policy, *critics = on_one_base(folder_of("qwen3"))
    critic = next(critic for critic in critics if critic.name == f"critic-{kind}")
    learner = learner_of([policy], critics)
    moves = {id(parameter) for parameter in critic.parameters()}
    others = [
        parameter for parameter in policy.backbone.model.parameters() if id(parameter) not in moves
    ]
    still, moving = copies(others), copies(critic.parameters())
    learn(learner, lessons(critic))
    assert list(step(learner, "p", critic.name)) == [critic.name]
    assert not same(moving, critic.parameters())
    assert same(still, others)
    assert all(parameter.grad is None for parameter in policy.parameters())


@pytest.mark.parametrize(("kind", "reaches"), [("lora", False), ("head", False), ("policy", True)])
def test_the_value_loss_reaches_the_policy_only_where_the_critic_sits_on_it(
    folder_of, kind, reaches
):
    policy, *critics = on_one_base(folder_of("qwen3"))
    critic = next(critic for critic in critics if critic.name == f"critic-{kind}")
    learn(learner_of([policy], critics), lessons(critic))
    felt = sum(p.grad.abs().sum().item() for p in policy.parameters() if p.grad is not None)
    assert (felt > 0) == reaches
    assert critic.head.weight.grad.abs().sum() > 0


def played(policy: str) -> list[TrainSample]:
    said = Completion(policy, "", "stop", tokens=(8, 9), logprobs=(-3.0, -3.0))
    return [TrainSample(SampleId("e", (), "a", 0), 0, (5, 6), said, advantage=1.0, share=1.0)]


def policy_gradient_of(folder, rows: list[ValueSample] | None, coefficient: float) -> torch.Tensor:
    policy, _, _, critic = on_one_base(folder)
    learner = learner_of([policy], [critic])
    for batch in pack(played("p"), 100, "sequence_sum", {"p": 8}):
        asyncio.run(learner.accumulate(batch, policy_objective(Algorithm())))
    if rows is not None:
        learn(learner, rows, value_objective(Algorithm(critic_view="own"), coefficient))
    return torch.cat([p.grad.flatten() for p in policy.parameters()])


def test_on_the_policys_own_trunk_both_losses_add_up_by_their_coefficient(folder_of):
    folder = folder_of("qwen3")
    rows = lessons(on_one_base(folder)[3])
    alone, whole, half = (
        policy_gradient_of(folder, *asked) for asked in ((None, 1.0), (rows, 1.0), (rows, 0.5))
    )
    assert (whole - alone).norm() > 0.01 * alone.norm()
    assert torch.allclose(half - alone, (whole - alone) / 2, atol=1e-6)


def test_a_policy_and_its_critic_on_one_trunk_step_together_once(folder_of):
    policy, _, _, critic = on_one_base(folder_of("qwen3"))
    learner = learner_of([policy], [critic])
    for batch in pack(played("p"), 100, "sequence_sum", {"p": 8}):
        asyncio.run(learner.accumulate(batch, policy_objective(Algorithm())))
    learn(learner, lessons(critic))
    assert list(step(learner, "p", "critic-policy")) == ["p", "critic-policy"]
    assert (learner.state("p")[1], learner.state("critic-policy")[1]) == ({"step": 1}, {"step": 1})


def test_two_policies_and_their_critics_on_one_base_have_nothing_in_common(folder_of):
    policy, own, head, shared = on_one_base(folder_of("qwen3"))
    learner = learner_of([policy], [own, head, shared])
    groups = [state.optimizer.param_groups for state in learner._train_states.values()]
    trained = [id(parameter) for group in groups for part in group for parameter in part["params"]]
    assert len(trained) == len(set(trained))
    adapters = [p for p in policy.backbone.model.parameters() if p.requires_grad]
    heads = [p for critic in (own, head, shared) for p in critic.head.parameters()]
    assert set(trained) == {id(p) for p in (*adapters, *heads)}


def test_an_optimiser_of_a_critic_that_was_saved_and_loaded_goes_on_to_the_bit(folder_of):
    first, second = full(folder_of("qwen3")), full(folder_of("qwen3"))
    learner, heir = learner_of([], [first]), learner_of([], [second])
    for _ in range(2):
        learn(learner, lessons(first))
        step(learner, "critic")
    with torch.no_grad():
        for mine, theirs in zip(second.parameters(), first.parameters(), strict=True):
            mine.copy_(theirs)
    heir.load_state("critic", learner.state("critic"))
    figures = []
    for each, critic in ((learner, first), (heir, second)):
        learn(each, lessons(critic))
        figures.append(step(each, "critic"))
    assert figures[0] == figures[1]
    assert same(first.parameters(), second.parameters())
