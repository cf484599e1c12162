"""AdamW in 8 bits against AdamW, its state in a checkpoint, and errors where it cannot work."""

import asyncio
import copy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from motet.errors import ConfigError
from motet.models.backbone import Backbone, Policy
from motet.models.learner import LocalLearner
from motet.models.optimizers import check_optimizer, load_into, make_optimizer, state_of
from motet.settings import Optimizer, Warmup
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder

CPU = torch.device("cpu")
EIGHT = Optimizer(kind="adamw_8bit", learning_rate=1e-2, weight_decay=0.1)


@pytest.fixture
def bnb() -> ModuleType:
    found = pytest.importorskip(
        "bitsandbytes", reason='AdamW in 8 bits needs pip install "motet[quantized]"'
    )
    try:
        check_optimizer("adamw_8bit", CPU)
    except ConfigError as error:
        pytest.skip(str(error))
    return found


def problem(kind: str) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    """Return a matrix that is large enough for 8 bits, a row that is not, and their optimizer."""
    generator = torch.Generator().manual_seed(0)
    weights = [
        nn.Parameter(torch.randn(64, 96, generator=generator)),
        nn.Parameter(torch.randn(96, generator=generator)),
    ]
    return weights, make_optimizer(weights, EIGHT.model_copy(update={"kind": kind}))


def descend(weights: list[nn.Parameter], optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Take steps towards a target matrix and a target row, with gradient noise of a fixed seed."""
    generator = torch.Generator().manual_seed(1)
    targets = [torch.randn(weight.shape, generator=generator) for weight in weights]
    for _ in range(steps):
        for weight, target in zip(weights, targets, strict=True):
            weight.grad = (
                weight.detach() - target + 0.1 * torch.randn(weight.shape, generator=generator)
            )
        optimizer.step()


@pytest.mark.usefixtures("bnb")
def test_twenty_steps_in_8_bits_go_where_those_in_32_go() -> None:
    start = [weight.detach().clone() for weight in problem("adamw")[0]]
    (plain, adamw), (eight, adamw_8bit) = problem("adamw"), problem("adamw_8bit")
    descend(plain, adamw, 20)
    descend(eight, adamw_8bit, 20)
    (large, small), (large_8, small_8) = plain, eight
    moved = (large - start[0]).norm()
    assert moved > 0.1 * start[0].norm()
    assert 0 < (large - large_8).norm() < 0.05 * moved
    torch.testing.assert_close(small_8, small, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("bnb")
def test_the_averages_of_large_tensors_take_one_byte_each_and_of_small_ones_four() -> None:
    weights, optimizer = problem("adamw_8bit")
    descend(weights, optimizer, 1)
    state = state_of(optimizer, weights)
    assert {state[f"state{one}.0"].dtype for one in (1, 2)} == {torch.uint8}
    assert {state[f"state{one}.1"].dtype for one in (1, 2)} == {torch.float32}
    assert state["absmax1.0"].shape == (64 * 96 / 256,)
    assert state["step.0"] == state["step.1"] == 1


@pytest.mark.usefixtures("bnb")
def test_an_8_bit_optimiser_that_was_saved_and_loaded_goes_on_to_the_bit() -> None:
    weights, optimizer = problem("adamw_8bit")
    descend(weights, optimizer, 3)
    heirs = copy.deepcopy(weights)
    heir = make_optimizer(heirs, EIGHT)
    load_into(heir, heirs, state_of(optimizer, weights), "adamw_8bit", "p")
    descend(weights, optimizer, 3)
    descend(heirs, heir, 3)
    assert all(torch.equal(one, other) for one, other in zip(weights, heirs, strict=True))
    first, second = state_of(optimizer, weights), state_of(heir, heirs)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    fresh = make_optimizer(heirs, EIGHT)
    descend(heirs, fresh, 1)
    descend(weights, optimizer, 1)
    assert not torch.equal(weights[0], heirs[0]), "without its state it would go elsewhere"


@pytest.mark.usefixtures("bnb")
def test_a_learner_steps_saves_and_loads_in_8_bits(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model")
    pair = [Policy("p", Backbone.load(folder, device="cpu", trainable_full=True)) for _ in range(2)]
    learner, heir = (LocalLearner([policy], {"p": EIGHT}, 3) for policy in pair)

    def step(one: LocalLearner) -> None:
        state = one._train_states["p"]
        for parameter in state.parameters:
            parameter.grad = torch.linspace(-1, 1, parameter.numel()).view(parameter.shape)
        state.loss = 0.0
        asyncio.run(one.step(["p"]))

    step(learner)
    tensors, facts = learner.state("p")
    assert facts == {"step": 1}
    assert tensors["state1.0"].dtype == torch.uint8
    pair[1].backbone.model.load_state_dict(pair[0].backbone.model.state_dict())
    heir.load_state("p", (tensors, facts))
    for one in (learner, heir):
        step(one)
    weights = [dict(policy.backbone.model.named_parameters()) for policy in pair]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def test_a_weight_that_was_not_always_stepped_goes_on_from_its_own_count() -> None:
    weights, optimizer = problem("adamw")
    descend(weights, optimizer, 2)
    weights[1].grad = None
    # Only the first weight is updated, as if no token were routed to the second.
    optimizer.step()
    heirs = copy.deepcopy(weights)
    heir = make_optimizer(heirs, Optimizer(learning_rate=1e-2, weight_decay=0.1))
    state = state_of(optimizer, weights)
    assert (state["step.0"], state["step.1"]) == (3.0, 2.0)
    load_into(heir, heirs, state, "adamw", "p")
    descend(weights, optimizer, 2)
    descend(heirs, heir, 2)
    assert all(torch.equal(one, other) for one, other in zip(weights, heirs, strict=True))


def test_the_state_of_another_kind_is_refused() -> None:
    weights, optimizer = problem("adamw")
    descend(weights, optimizer, 1)
    state = state_of(optimizer, weights)
    assert set(state) == {
        f"{what}.{index}" for what in ("exp_avg", "exp_avg_sq", "step") for index in (0, 1)
    }
    with pytest.raises(
        ConfigError,
        match=facts("p has exp_avg, exp_avg_sq, step … state1 … optimizer.kind … adamw_8bit"),
    ):
        load_into(optimizer, weights, state, "adamw_8bit", "p")


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r'pip install "motet\[quantized\]", or use kind: adamw'):
        check_optimizer("adamw_8bit", CPU)
    check_optimizer("adamw", CPU)


@pytest.mark.parametrize("broken", ["raises", "does nothing"])
def test_a_device_on_which_no_step_can_be_taken_is_refused(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def step() -> None:
        if broken == "raises":
            raise NotImplementedError("no kernel for it")

    optim = SimpleNamespace(AdamW8bit=lambda *_, **__: SimpleNamespace(step=step))
    monkeypatch.setitem(
        sys.modules, "bitsandbytes", SimpleNamespace(optim=optim, __version__="0.1")
    )
    why = "no kernel for it" if broken == "raises" else "a step of size 1 has another size"
    with pytest.raises(
        ConfigError,
        match=facts(f"bitsandbytes 0.1 … device cpu … {why} … kind: adamw"),
    ):
        check_optimizer("adamw_8bit", CPU)


def test_a_warm_up_may_have_it_too() -> None:
    assert Warmup(kind="adamw_8bit").kind == "adamw_8bit"
