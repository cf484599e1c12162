"""Training of one backbone in this process: gradients, and one optimizer per policy and critic.

Each policy or critic has its own optimizer, schedule and step count. So it makes no difference to
them whether a partner is trained.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from motet.batch import Batch, BatchMetrics, Objective, ValueBatch, ValueObjective
from motet.errors import ConfigError, TrainingDiverged
from motet.models import devices
from motet.models.backbone import Policy
from motet.models.compute import stored_as
from motet.models.critic import Critic
from motet.models.forward import forward
from motet.models.memory import oom_hint
from motet.models.optimizers import load_into, make_optimizer, state_of
from motet.models.shards import Ranks, placed, whole
from motet.settings import Optimizer

_LESS = "lower train.token_budget, or set checkpointing: true for the model"
_SMALLER = "train adapters (train: lora), or use optimizer.kind: adamw_8bit or a smaller model"

_SLOWDOWN, _RECOVERY, _SLOWEST = 1.5, 1.1, 0.05
"""The learning rate is divided by the first after a step that was scaled back, and multiplied by
the second after any other step, up to its schedule. It stays above the last, a share of it."""

_MEAN = "weight_mean."
"""How the tensors of the mean of the weights begin in a state."""

OptimizerState: TypeAlias = tuple[dict[str, Tensor], dict[str, Any]]
"""State of an optimiser: named tensors, and JSON values."""


@dataclass
class _TrainState:
    """The training state of one policy or critic.

    `loss` is None until a batch has been accumulated for the next step.
    """

    learning: Policy | Critic
    parameters: list[torch.nn.Parameter]
    settings: Optimizer
    steps: int
    optimizer: torch.optim.Optimizer
    steps_done: int = 0
    loss: float | None = None
    squares: float = 0.0
    """Sum over the steps of the mean square of the clipped gradient's entries."""
    pace: float = 1.0
    """Factor of the learning rate: below 1 after steps that were scaled back."""
    share: float = 1.0
    """Factor of the learning rate: below 1 after rollbacks."""
    kept: list[Tensor] | None = None
    """Copies of the weights at the beginning of a training step."""
    scaled: bool = False
    """Whether this training step was scaled back."""
    mean: list[Tensor] | None = None
    """The mean of the weights after the steps that were counted."""
    counted: int = 0
    """How many steps these are."""

    def next_epsilon(self, norm: float) -> float:
        """Count a gradient of this norm, and return AdamW's epsilon for its step."""
        entries = sum(parameter.numel() for parameter in self.parameters)
        self.squares += min(norm, self.settings.clip_norm) ** 2 / entries
        usual = math.sqrt(self.squares / (self.steps_done + 1))
        return self.settings.epsilon + self.settings.relative_epsilon * usual

    @property
    def rate(self) -> float:
        return self.pace * self.share * self.settings.rate(self.steps_done, self.steps)


class LocalLearner:
    """A `batch.Learner` for the trainable `policies` and the `critics` of one backbone.

    `steps` is the number of steps that each will take in the run: one number for all, or by name.
    With `ranks`, gradients and losses of a step are the sums over these processes.

    Raises: ConfigError for a policy without trainable weights, for weights that two of them would
    train, and for weights narrower than float32, in which an update of 5e-6 is rounded away.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        optimizers: Mapping[str, Optimizer],
        steps: int | Mapping[str, int],
        critics: Sequence[Critic] = (),
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks
        everyone: list[Policy | Critic] = [*policies, *critics]
        self._train_states = {
            one.name: _train_state(
                one, optimizers[one.name], steps if isinstance(steps, int) else steps[one.name]
            )
            for one in everyone
        }
        owner: dict[torch.nn.Parameter, str] = {}
        for name, state in self._train_states.items():
            for parameter in state.parameters:
                if owner.setdefault(parameter, name) != name:
                    raise ConfigError(
                        f"policies {owner[parameter]} and {name} train the same weights; expected "
                        "different weights: use one policy for both agents, or an adapter or a "
                        "model for each"
                    )

    async def logprobs(self, batch: Batch) -> Tensor:
        """Run forward for one batch, without a gradient."""
        policy = self._train_states[batch.policy].learning
        batch = batch.to(policy.backbone.device)
        reading = oom_hint(f"reading {_sizes(batch)} again", _LESS, policy.backbone.device)
        with reading, torch.no_grad(), policy.active():
            logp_BL, _ = policy.backbone.run(
                lambda: forward(policy.backbone, batch, batch.temperature_B)
            )
        return torch.where(batch.mask_BL, logp_BL, 0.0).float().cpu()

    async def accumulate(self, batch: Batch, objective: Objective) -> BatchMetrics:
        """Run forward and backward for one batch.

        Raises: TrainingDiverged if its loss is not finite.
        """
        state = self._train_states[batch.policy]
        policy = state.learning
        batch = batch.to(policy.backbone.device)
        learning = oom_hint(f"training on {_sizes(batch)}", _LESS, policy.backbone.device)
        with learning, policy.active():
            logp_BL, entropy_BL = policy.backbone.run(
                lambda: forward(policy.backbone, batch, batch.temperature_B)
            )
            loss, metrics = objective(batch, logp_BL, entropy_BL)
            self._backward(batch.policy, loss)
        return metrics

    async def accumulate_values(self, batch: ValueBatch, objective: ValueObjective) -> BatchMetrics:
        """Run forward and backward for one batch of value samples.

        Raises: TrainingDiverged if its loss is not finite.
        """
        critic = self._train_states[batch.critic].learning
        assert isinstance(critic, Critic)
        batch = batch.to(critic.backbone.device)
        texts, tokens = batch.tokens_BL.shape
        learning = f"training the values of {texts} texts of up to {tokens} tokens"
        with oom_hint(learning, _LESS, critic.backbone.device), critic.active():
            values_BL = critic.backbone.run(lambda: critic.values(batch.tokens_BL, batch.mask_BL))
            loss, metrics = objective(batch, values_BL)
            self._backward(batch.critic, loss)
        return metrics

    def _backward(self, name: str, loss: Tensor) -> None:
        state, figure = self._train_states[name], loss.item()
        total = figure if self._ranks is None else self._ranks.total(figure, loss.device)
        if not math.isfinite(total):  # in all processes: none must wait for the others
            raise self._diverged(name, f"loss is {total}")
        loss.backward()
        state.loss = figure if state.loss is None else state.loss + figure

    async def step(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Update those of `names` that have accumulated a batch.

        Returns loss, gradient norm before clipping, and learning rate for each. All other
        accumulated gradients are dropped, including those of a critic in a policy that is not
        updated.

        Raises: TrainingDiverged if any gradient is not finite, before anything is updated.
        """
        due = {
            name: self._train_states[name]
            for name in names
            if self._train_states[name].loss is not None
        }
        if self._ranks is not None:
            for state in due.values():
                assert state.loss is not None
                state.loss = self._ranks.add_up(state.parameters, state.loss)
        norms = {name: _gradient_norm(state) for name, state in due.items()}
        for name, norm in norms.items():
            if not torch.isfinite(norm):
                raise self._diverged(name, f"gradient norm is {norm.item()}, loss {due[name].loss}")
        figures = {name: self._step(state, norms[name]) for name, state in due.items()}
        backbones = {state.learning.backbone for state in due.values()}
        for backbone in backbones:
            backbone.sync_from_master()
        for state in self._train_states.values():
            state.loss = None
            state.optimizer.zero_grad(set_to_none=True)
        for backbone in backbones:
            devices.give_back(backbone.device)
        return figures

    def _step(self, state: _TrainState, norm: Tensor) -> dict[str, float]:
        rate, size = state.rate, norm.item()
        clip_grads_with_norm_(state.parameters, state.settings.clip_norm, norm)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        if state.settings.relative_epsilon > 0.0:
            epsilon = state.next_epsilon(size)
            for group in state.optimizer.param_groups:
                if "eps" in group:
                    group["eps"] = epsilon
        stepping = (
            f"in the optimizer step of {sum(p.numel() for p in state.parameters):,} weights of "
            f"{state.learning.name}"
        )
        with oom_hint(stepping, _SMALLER, state.learning.backbone.device):
            state.optimizer.step()
        assert state.loss is not None
        figures = {"loss": state.loss, "grad_norm": size, "learning_rate": rate}
        state.steps_done += 1
        return figures

    async def keep(self, names: Sequence[str]) -> None:
        """Keep copies of the weights. What was kept before is dropped; if nothing scaled that step
        back, its policy's learning rate recovers."""
        for name, state in self._train_states.items():
            if state.kept is not None and not state.scaled:
                state.pace = min(1.0, state.pace * _RECOVERY)
            state.kept, state.scaled = None, False
            if name in names:
                state.kept = [parameter.detach().clone() for parameter in state.parameters]

    async def scale_back(self, names: Sequence[str], factor: float) -> None:
        """Move the weights back to `factor` of their distance from the kept ones.

        With 0 the step is undone, also one that was not finite. The optimizer's moments stay. The
        first time after `keep`, the learning rate falls too.
        """
        for name in names:
            state = self._train_states[name]
            assert state.kept is not None
            if not state.scaled:
                state.pace = max(_SLOWEST, state.pace / _SLOWDOWN)
            state.scaled = True
            with torch.no_grad():
                for parameter, old in zip(state.parameters, state.kept, strict=True):
                    parameter.copy_(old + factor * (parameter - old) if factor else old)
        for backbone in {self._train_states[name].learning.backbone for name in names}:
            backbone.sync_from_master()

    async def average(self, names: Sequence[str], end: bool) -> None:
        """Count the present weights into their mean; at the `end`, take the mean in their place.

        Stochastic weight averaging (arXiv 1803.05407), over training steps.
        """
        for name in names:
            state = self._train_states[name]
            state.counted += 1
            weights = [parameter.detach() for parameter in state.parameters]
            if state.mean is None:
                state.mean = [weight.clone() for weight in weights]
            else:
                for mean, weight in zip(state.mean, weights, strict=True):
                    mean += (weight - mean) / state.counted
            if end:
                for weight, mean in zip(weights, state.mean, strict=True):
                    weight.copy_(mean)
                state.mean, state.counted = None, 0
        if end:
            for backbone in {self._train_states[name].learning.backbone for name in names}:
                backbone.sync_from_master()

    def precision(self, name: str) -> str:
        """Return the dtype of the computation, or 8bit if the base also rounds its inputs."""
        backbone = self._train_states[name].learning.backbone
        eight = stored_as(backbone.model.config) == "8bit"
        return "8bit" if eight else str(backbone.dtype).removeprefix("torch.")

    def _diverged(self, name: str, what: str) -> TrainingDiverged:
        state = self._train_states[name]
        kind = "critic" if isinstance(state.learning, Critic) else "policy"
        return TrainingDiverged(
            f"{kind} {name}, optimizer step {state.steps_done + 1} of {state.steps}: {what} at "
            f"learning rate {state.rate:.3g}; the weights were not changed. Lower "
            "optimizer.learning_rate, or check the episodes of the step"
        )

    # ---------------------------------------------------------------------------------- checkpoints

    def facts(self, name: str) -> dict[str, float]:
        """Return `{"step": steps done}`, and what else differs from the start: `pace`, `share`,
        `squares`, `counted`."""
        state = self._train_states[name]
        facts: dict[str, float] = {"step": state.steps_done}
        if state.pace != 1.0:
            facts["pace"] = state.pace
        if state.share != 1.0:
            facts["share"] = state.share
        if state.squares:
            facts["squares"] = state.squares
        if state.counted:
            facts["counted"] = state.counted
        return facts

    def state(self, name: str) -> OptimizerState:
        """Return the optimizer state, and its facts.

        The state is flat tensors of the policy's i-th parameter, named as in `optimizers.state_of`
        (`exp_avg.<i>`, ...), and `weight_mean.<i>` for the mean of its weights.
        """
        state = self._train_states[name]
        means = {f"{_MEAN}{index}": one.cpu().clone() for index, one in enumerate(state.mean or ())}
        return {**state_of(state.optimizer, state.parameters), **means}, self.facts(name)

    def load_state(self, name: str, state: OptimizerState) -> None:
        """Continue from `state`.

        Raises: ConfigError if it belongs to another model or another kind of optimizer.
        """
        own, (tensors, facts) = self._train_states[name], state
        moments = {key: one for key, one in tensors.items() if not key.startswith(_MEAN)}
        load_into(own.optimizer, own.parameters, moments, own.settings.kind, name)
        own.mean, own.counted = None, facts.get("counted", 0)
        if own.counted:
            own.mean = [
                placed(tensors[f"{_MEAN}{index}"], parameter)
                for index, parameter in enumerate(own.parameters)
            ]
        own.steps_done, own.loss = facts["step"], None
        own.pace, own.kept, own.scaled = facts.get("pace", 1.0), None, False
        own.share, own.squares = facts.get("share", 1.0), facts.get("squares", 0.0)


def _sizes(batch: Batch) -> str:
    answers, tokens = batch.tokens_BL.shape
    prompts, longest = batch.prompts_PL.shape
    return f"{answers} answers of up to {tokens} tokens to {prompts} prompts of up to {longest}"


def _train_state(learning: Policy | Critic, settings: Optimizer, steps: int) -> _TrainState:
    parameters = learning.parameters()
    kind = "critic" if isinstance(learning, Critic) else "policy"
    if not parameters:
        raise ConfigError(
            f"{kind} {learning.name} has no trainable weights; expected some: set train: frozen "
            "for it"
        )
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"{kind} {learning.name} would train weights of {parameter.dtype}; expected "
                "float32 weights, because small updates are lost in narrower types"
            )
    return _TrainState(learning, parameters, settings, steps, make_optimizer(parameters, settings))


def _gradient_norm(state: _TrainState) -> Tensor:
    return whole(
        get_total_norm(
            [parameter.grad for parameter in state.parameters if parameter.grad is not None]
        )
    )
