import asyncio
import math
from dataclasses import replace

import pytest
import torch

from motet.batch import merge, pack, policy_objective
from motet.core import Completion, SampleId, TrainSample
from motet.errors import ConfigError, TrainingDiverged
from motet.models.backbone import Backbone, Policy
from motet.models.forward import forward
from motet.models.learner import LocalLearner, _TrainState
from motet.settings import Algorithm, Lora, Optimizer
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder

PLAIN = policy_objective(Algorithm())
ROWS = [
    ((5, 6, 7), (8, 9, 1)),
    ((5, 6, 7), (10, 1)),
    ((11,), (12, 13, 14, 15, 1)),
    ((16, 17), (1,)),
    ((11,), (18, 1)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model_folder(tmp_path_factory.mktemp("model"))


def whole_model(folder, name: str = "p", dtype: str = "float32") -> Policy:
    return Policy(name, Backbone.load(folder, device="cpu", dtype=dtype, trainable_full=True))


def two_adapters(folder) -> tuple[Policy, Policy]:
    base = Backbone.load(folder, device="cpu")
    for seed, name in enumerate("ab"):
        base.add_adapter(name, Lora(rank=2), seed)
    return Policy("a", base, "a"), Policy("b", base, "b")


def samples(policy: str = "p") -> list[TrainSample]:
    return [
        TrainSample(
            SampleId("e", (), "agent", index),
            turn=0,
            prompt_tokens=prompt,
            completion=Completion(
                policy, "", "stop", tokens=tokens, logprobs=(-3.0,) * len(tokens), temperature=0.7
            ),
            advantage=(-1.0) ** index * (index + 1),
            share=0.2,
        )
        for index, (prompt, tokens) in enumerate(ROWS)
    ]


def accumulate(
    learner: LocalLearner, rows: list[TrainSample], budget: int = 10**6, objective=PLAIN
) -> dict:
    batches = pack(rows, budget, "token_mean", {row.policy: 8 for row in rows})
    return merge([asyncio.run(learner.accumulate(batch, objective)) for batch in batches])


def step(learner: LocalLearner, *names: str) -> dict[str, dict[str, float]]:
    return asyncio.run(learner.step(names))


def weights(policy: Policy) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in policy.backbone.model.parameters()]


def masters(policy: Policy) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in policy.parameters()]


def same(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("budget", [1, 14, 20])
def test_any_split_into_micro_batches_gives_the_gradients_of_one_batch(folder, budget) -> None:
    gradients, metrics = [], []
    for tokens in (budget, 10**6):
        policy = whole_model(folder)
        metrics.append(accumulate(LocalLearner([policy], {"p": Optimizer()}, 1), samples(), tokens))
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in policy.parameters()]))
    assert gradients[1].norm() > 0.1
    assert (gradients[0] - gradients[1]).norm() < 1e-6 * gradients[1].norm()
    for name, mean in metrics[0].items():
        assert mean.value == pytest.approx(metrics[1][name].value, rel=1e-5)


def test_a_bandit_learns_the_rewarded_token(folder) -> None:
    policy = whole_model(folder)
    learner = LocalLearner([policy], {"p": Optimizer(learning_rate=1e-3)}, 5)
    arms = samples()[:2]
    good, bad = replace(arms[0], advantage=1.0), replace(arms[1], advantage=-1.0)
    (batch,) = pack([good, bad], 1000, "sequence_sum", {"p": 8})

    def first_tokens() -> dict[int, float]:
        with torch.no_grad(), policy.active():
            logp_BL, _ = speak(policy, batch)
        return dict(zip(batch.tokens_BL[:, 0].tolist(), logp_BL[:, 0].exp().tolist(), strict=True))

    before = first_tokens()
    for _ in range(5):
        accumulate(learner, [good, bad])
        step(learner, "p")
    after = first_tokens()
    assert after[8] > 1.5 * before[8]
    assert after[10] < before[10]


def speak(policy: Policy, batch) -> tuple[torch.Tensor, torch.Tensor]:
    return forward(policy.backbone, batch, batch.temperature_B)


def test_the_first_on_policy_ratio_is_one(folder) -> None:
    policy = whole_model(folder)
    (batch,) = pack(samples(), 1000, "token_mean", {"p": 8})
    with torch.no_grad(), policy.active():
        logp_BL, _ = speak(policy, batch)
    learner = LocalLearner([policy], {"p": Optimizer()}, 1)
    objective = policy_objective(Algorithm(policy_loss="clipped_surrogate"))
    metrics = asyncio.run(learner.accumulate(replace(batch, behaviour_logp_BL=logp_BL), objective))
    assert metrics["ratio"].value == pytest.approx(1.0, abs=1e-6)
    assert metrics["sampling_logp_difference"].value == pytest.approx(0.0, abs=1e-6)


def test_every_trainable_weight_is_in_exactly_one_optimiser_and_the_rest_never_moves(
    folder,
) -> None:
    a, b = two_adapters(folder)
    learner = LocalLearner([a, b], {"a": Optimizer(), "b": Optimizer()}, 2)
    groups = [state.optimizer.param_groups for state in learner._train_states.values()]
    trained = [id(parameter) for group in groups for part in group for parameter in part["params"]]
    trainable = [id(p) for p in a.backbone.model.parameters() if p.requires_grad]
    assert sorted(trained) == sorted(trainable)
    assert len(trainable) > 0

    before = {
        name: parameter.detach().clone() for name, parameter in a.backbone.model.named_parameters()
    }
    accumulate(learner, samples("a"))
    step(learner, "a", "b")
    moved = {
        n
        for n, parameter in a.backbone.model.named_parameters()
        if not torch.equal(parameter, before[n])
    }
    own = {id(parameter) for parameter in a.parameters()}
    assert moved
    assert moved <= {
        n for n, parameter in a.backbone.model.named_parameters() if id(parameter) in own
    }


def test_a_policy_without_samples_is_not_stepped_and_its_schedule_stands_still(folder) -> None:
    learner = LocalLearner(
        two_adapters(folder), dict.fromkeys("ab", Optimizer(schedule="linear")), 4
    )
    for names in ("a", "a", "ab"):
        for name in names:
            accumulate(learner, samples(name))
        figures = step(learner, "a", "b")
        assert list(figures) == list(names)
    assert learner.state("a")[1] == {"step": 3}
    assert learner.state("b")[1] == {"step": 1}
    assert figures["b"]["learning_rate"] == pytest.approx(5e-6 * (1 - 0.9 / 4))
    assert figures["a"]["learning_rate"] == pytest.approx(5e-6 * (1 - 0.9 * 3 / 4))
    assert step(learner, "a", "b") == {}


def test_what_was_accumulated_for_who_is_not_stepped_is_forgotten(folder) -> None:
    a, b = two_adapters(folder)
    learner, before = LocalLearner([a, b], dict.fromkeys("ab", Optimizer()), 2), weights(a)
    accumulate(learner, samples("a"))
    assert step(learner, "b") == {}
    assert step(learner, "a") == {}
    assert same(before, weights(a))
    assert learner.state("a")[1] == {"step": 0}


def test_gradients_are_clipped_and_the_norm_before_is_reported(folder) -> None:
    learner = LocalLearner([whole_model(folder)], {"p": Optimizer(clip_norm=0.01)}, 1)
    accumulate(learner, samples())
    norm = step(learner, "p")["p"]["grad_norm"]
    averages = [
        t.flatten() for name, t in learner.state("p")[0].items() if name.startswith("exp_avg.")
    ]
    assert norm > 0.1
    # AdamW's first moment is (1 - β1) = 0.1 times the clipped gradient.
    assert torch.cat(averages).norm().item() == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_the_first_step_with_a_relative_epsilon_by_hand(folder) -> None:
    """AdamW's first step is rate * g / (|g| + epsilon); epsilon is 2 * sqrt(mean of g²)."""
    policy = whole_model(folder)
    rule = Optimizer(learning_rate=1e-3, relative_epsilon=2.0, epsilon=1e-12, clip_norm=1e9)
    learner = LocalLearner([policy], {"p": rule}, 5)
    accumulate(learner, samples())
    before = masters(policy)
    gradients = [parameter.grad.clone() for parameter in policy.parameters()]
    every = torch.cat([one.flatten() for one in gradients])
    epsilon = 2.0 * every.square().mean().sqrt()
    step(learner, "p")
    for old, grad, new in zip(before, gradients, masters(policy), strict=True):
        expected = old - 1e-3 * grad / (grad.abs() + epsilon)
        torch.testing.assert_close(new, expected, atol=1e-7, rtol=0)


def test_later_steps_compare_with_the_usual_gradient_after_clipping() -> None:
    """By hand: 4 weights, norms 2 (clipped to 1), 0.5 and 0: mean squares 1/4, 1/16, 0."""
    state = _TrainState(
        None, [torch.zeros(4)], Optimizer(relative_epsilon=2.0, epsilon=0.1, clip_norm=1.0), 9, None
    )
    found = []
    for done, norm in enumerate((2.0, 0.5, 0.0)):
        state.steps_done = done
        found.append(state.next_epsilon(norm))
    means = (1 / 4, (1 / 4 + 1 / 16) / 2, (1 / 4 + 1 / 16) / 3)
    assert found == pytest.approx([0.1 + 2.0 * math.sqrt(mean) for mean in means])


def test_a_factor_of_the_loss_changes_no_step_with_a_relative_epsilon(folder) -> None:
    ends = []
    for factor in (1.0, 16.0):
        policy = whole_model(folder)
        rule = Optimizer(learning_rate=1e-3, relative_epsilon=3.0, epsilon=1e-12, clip_norm=1e9)
        learner = LocalLearner([policy], {"p": rule}, 5)
        for _ in range(3):
            rows = [replace(one, advantage=factor * one.advantage) for one in samples()]
            accumulate(learner, rows)
            step(learner, "p")
        ends.append(torch.cat([one.flatten() for one in masters(policy)]))
    start = torch.cat([one.flatten() for one in masters(whole_model(folder))])
    assert (ends[0] - start).norm() > 1e-3
    assert (ends[1] - ends[0]).norm() < 1e-3 * (ends[0] - start).norm()


def broken_loss(batch, logp_BL, entropy_BL):
    return logp_BL.sum() * math.nan, {}


def broken_gradient(batch, logp_BL, entropy_BL):
    return (logp_BL.sum() * 0.0).sqrt(), {}  # the loss is 0, its gradient 0/0


def test_a_loss_that_is_no_number_stops_before_the_backward_pass(folder) -> None:
    policy = whole_model(folder)
    learner = LocalLearner([policy], {"p": Optimizer()}, 7)
    before = weights(policy)
    with pytest.raises(
        TrainingDiverged,
        match=facts("policy p … step 1 of 7 … loss … nan … learning rate 5e-06"),
    ):
        accumulate(learner, samples(), objective=broken_loss)
    assert step(learner, "p") == {}
    assert same(weights(policy), before)


def test_one_bad_gradient_stops_all_policies_before_any_weight_is_touched(folder) -> None:
    a, b = two_adapters(folder)
    learner = LocalLearner([a, b], dict.fromkeys("ab", Optimizer()), 7)
    before = weights(a)
    accumulate(learner, samples("a"))
    accumulate(learner, samples("b"), objective=broken_gradient)
    with pytest.raises(
        TrainingDiverged,
        match=facts("policy b … step 1 of 7 … gradient norm … nan … loss … 0.0"),
    ):
        step(learner, "a", "b")
    assert same(weights(a), before)


def test_the_published_rate_moves_weights_though_the_compute_is_bfloat16(folder) -> None:
    policy = whole_model(folder, dtype="bfloat16")
    learner = LocalLearner([policy], {"p": Optimizer(learning_rate=5e-6)}, 1)
    before = masters(policy)
    accumulate(learner, samples())
    step(learner, "p")
    moved = [(new - old).abs() for new, old in zip(masters(policy), before, strict=True)]
    assert sum((move > 0).sum() for move in moved) > 0.5 * sum(move.numel() for move in moved)
    # With bfloat16 masters, the same step would change almost none of them.
    rounded = [
        new.bfloat16() != old.bfloat16() for new, old in zip(masters(policy), before, strict=True)
    ]
    assert sum(change.sum() for change in rounded) < 0.05 * sum(
        change.numel() for change in rounded
    )
    # The weights equal the rounded masters.
    assert all(
        torch.equal(weight, master.bfloat16())
        for weight, master in zip(weights(policy), masters(policy), strict=True)
    )


def test_masters_below_float32_are_refused(folder) -> None:
    policy = whole_model(folder)
    policy.backbone.model.to(torch.bfloat16)
    with pytest.raises(ConfigError, match=facts("p … torch.bfloat16 … float32")):
        LocalLearner([policy], {"p": Optimizer()}, 1)


def test_two_policies_on_the_same_weights_are_refused(folder) -> None:
    policy = whole_model(folder)
    with pytest.raises(ConfigError, match=facts("p and q … same weights")):
        LocalLearner([policy, replace(policy, name="q")], dict.fromkeys("pq", Optimizer()), 1)


def test_a_policy_with_nothing_to_train_is_refused(folder) -> None:
    with pytest.raises(ConfigError, match=facts("p … no trainable weights")):
        LocalLearner([replace(whole_model(folder), trainable=False)], {"p": Optimizer()}, 1)


def test_an_optimiser_that_was_saved_and_loaded_goes_on_to_the_bit(folder) -> None:
    chosen = {"p": Optimizer(learning_rate=1e-3, schedule="linear", warmup_steps=2)}
    first, second = whole_model(folder), whole_model(folder)
    learner, heir = LocalLearner([first], chosen, 4), LocalLearner([second], chosen, 4)
    for _ in range(2):
        accumulate(learner, samples())
        step(learner, "p")
    second.backbone.model.load_state_dict(first.backbone.model.state_dict())
    heir.load_state("p", learner.state("p"))
    figures = []
    for each in (learner, heir):
        accumulate(each, samples())
        figures.append(step(each, "p"))
    assert figures[0] == figures[1]
    assert same(weights(first), weights(second))


def test_an_optimiser_of_another_model_is_refused(folder) -> None:
    learner = LocalLearner([whole_model(folder)], {"p": Optimizer()}, 1)
    with pytest.raises(ConfigError, match=r"exp_avg\.0 has shape \[2, 2\], expected"):
        learner.load_state(
            "p", ({"exp_avg.0": torch.zeros(2, 2), "exp_avg_sq.0": torch.zeros(2, 2)}, {"step": 1})
        )
    with pytest.raises(ConfigError, match=r"has 100 tensors, expected \d+"):
        learner.load_state(
            "p", ({"exp_avg.99": torch.zeros(1), "exp_avg_sq.99": torch.zeros(1)}, {"step": 1})
        )


def test_a_step_that_is_scaled_back_leaves_a_part_of_the_way_and_slows_the_next(folder):
    policy = whole_model(folder)
    learner = LocalLearner([policy], {"p": Optimizer(learning_rate=0.1)}, 9)

    def step() -> float:
        for batch in pack(samples(), 10**6, "token_mean", {"p": 5}):
            asyncio.run(learner.accumulate(batch, PLAIN))
        return asyncio.run(learner.step(["p"]))["p"]["learning_rate"]

    old = [weight.detach().clone() for weight in policy.parameters()]
    asyncio.run(learner.keep(["p"]))
    assert step() == 0.1
    new = [weight.detach().clone() for weight in policy.parameters()]
    asyncio.run(learner.scale_back(["p"], 0.5))
    asyncio.run(learner.scale_back(["p"], 0.5))
    for before, asked, now in zip(old, new, policy.parameters(), strict=True):
        torch.testing.assert_close(now.detach(), before + 0.25 * (asked - before))
    asyncio.run(learner.keep([]))
    assert learner.facts("p") == {"step": 1, "pace": 1 / 1.5}
    kept = learner.state("p")
    assert step() == pytest.approx(0.1 / 1.5)
    asyncio.run(learner.keep(["p"]))
    asyncio.run(learner.keep([]))
    assert learner.facts("p")["pace"] == pytest.approx(1.1 / 1.5)
    for _ in range(9):
        asyncio.run(learner.keep(["p"]))
    asyncio.run(learner.keep([]))
    assert learner.facts("p") == {"step": 2}
    learner.load_state("p", kept)
    assert learner.facts("p") == {"step": 1, "pace": 1 / 1.5}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_mean_of_the_weights_is_taken_at_the_end(folder, dtype):
    policy, other = whole_model(folder, dtype=dtype), whole_model(folder)
    learner, resumed = (
        LocalLearner([one], {"p": Optimizer(learning_rate=0.1)}, 3) for one in (policy, other)
    )
    (batch,) = pack(samples(), 10**6, "token_mean", {"p": 5})
    seen = []
    for at in range(3):
        asyncio.run(learner.accumulate(batch, PLAIN))
        asyncio.run(learner.step(["p"]))
        seen.append([weight.detach().clone() for weight in policy.parameters()])
        before = asyncio.run(learner.logprobs(batch))
        if at < 2:
            asyncio.run(learner.average(["p"], end=False))
            assert all(map(torch.equal, seen[at], policy.parameters()))
    assert learner.facts("p")["counted"] == 2
    resumed.load_state("p", learner.state("p"))
    assert resumed.facts("p") == learner.facts("p")
    asyncio.run(learner.average(["p"], end=True))
    for one, two, three, now in zip(*seen, policy.parameters(), strict=True):
        torch.testing.assert_close(now.detach(), (one + two + three) / 3)
    assert not torch.equal(before, asyncio.run(learner.logprobs(batch)))
    assert "counted" not in learner.facts("p")
    assert not any("mean" in name for name in learner.state("p")[0])
    with torch.no_grad():
        for weight, last in zip(other.parameters(), seen[-1], strict=True):
            weight.copy_(last)
    asyncio.run(resumed.average(["p"], end=True))
    assert all(map(torch.equal, other.parameters(), policy.parameters()))


def test_a_step_that_is_undone_leaves_the_kept_weights_to_the_bit(folder):
    policy = whole_model(folder, dtype="bfloat16")
    learner = LocalLearner([policy], {"p": Optimizer(learning_rate=0.1)}, 9)
    old = [weight.detach().clone() for weight in policy.parameters()]
    asyncio.run(learner.keep(["p"]))
    (batch,) = pack(samples(), 10**6, "token_mean", {"p": 5})
    before = asyncio.run(learner.logprobs(batch))
    asyncio.run(learner.accumulate(batch, PLAIN))
    asyncio.run(learner.step(["p"]))
    assert not torch.equal(before, asyncio.run(learner.logprobs(batch)))
    asyncio.run(learner.scale_back(["p"], 0.0))
    assert all(map(torch.equal, old, policy.parameters()))
    assert torch.equal(before, asyncio.run(learner.logprobs(batch)))
