"""Training one backbone in this process: gradients of all its policies, and one AdamW per policy.

A policy's optimiser, schedule and count of steps are its own, so a partner that is trained or not changes nothing in them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from motet.batch import Batch, Metrics, Objective, OptimizerState
from motet.errors import ConfigError, TrainingDiverged
from motet.policies.backbone import Policy
from motet.policies.forward import forward
from motet.settings import Optimizer


@dataclass
class _Course:
    """One policy in training. `loss` is None until something has been accumulated for the next step."""

    policy: Policy
    parameters: list[torch.nn.Parameter]
    settings: Optimizer
    adamw: torch.optim.AdamW
    steps_done: int = 0
    loss: float | None = None


class LocalLearner:
    """A `batch.Learner` of the trainable `policies` of one backbone. `steps` is how many each will take in the run.

    Raises: ConfigError for a policy without trainable weights, weights that two policies would both train, and weights below
    float32, in which an update of 5e-6 is rounded away.
    """

    def __init__(self, policies: Sequence[Policy], optimizers: Mapping[str, Optimizer], steps: int) -> None:
        self._steps = steps
        self._courses = {policy.name: _course(policy, optimizers[policy.name]) for policy in policies}
        owner: dict[torch.nn.Parameter, str] = {}
        for name, course in self._courses.items():
            for parameter in course.parameters:
                if owner.setdefault(parameter, name) != name:
                    raise ConfigError(
                        f"policies {owner[parameter]} and {name} train the same weights; expected each its own: "
                        f"give both agents one policy, or each an adapter or a backbone"
                    )

    async def accumulate(self, batch: Batch, objective: Objective) -> Metrics:
        """Forward and backward of one batch. Raises: TrainingDiverged when its loss is not finite."""
        course = self._courses[batch.policy]
        backbone, batch = course.policy.backbone, batch.to(course.policy.backbone.device)
        with course.policy.active():
            logp_BL, entropy_BL = forward(
                backbone,
                batch.prompts_PL,
                batch.prompt_mask_PL,
                batch.prompt_of_B,
                batch.tokens_BL,
                batch.mask_BL,
                batch.temperature_B,
            )
            loss, metrics = objective(batch, logp_BL, entropy_BL)
            figure = loss.item()
            if not math.isfinite(figure):
                raise self._diverged(batch.policy, f"loss is {figure}")
            loss.backward()
        course.loss = figure if course.loss is None else course.loss + figure
        return metrics

    async def step(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Steps the policies of `names` that accumulated anything; loss, gradient norm before clipping, and learning rate.

        Raises: TrainingDiverged when any gradient is not finite, before any policy is stepped.
        """
        due = {name: self._courses[name] for name in names if self._courses[name].loss is not None}
        norms = {name: _gradient_norm(course) for name, course in due.items()}
        for name, norm in norms.items():
            if not torch.isfinite(norm):
                raise self._diverged(name, f"gradient norm is {norm.item()}, loss {due[name].loss}")
        return {name: self._step(course, norms[name]) for name, course in due.items()}

    def _step(self, course: _Course, norm: Tensor) -> dict[str, float]:
        rate = course.settings.rate(course.steps_done, self._steps)
        clip_grads_with_norm_(course.parameters, course.settings.clip_norm, norm)
        for group in course.adamw.param_groups:
            group["lr"] = rate
        course.adamw.step()
        course.adamw.zero_grad(set_to_none=True)
        figures = {"loss": course.loss, "grad_norm": norm.item(), "learning_rate": rate}
        course.steps_done, course.loss = course.steps_done + 1, None
        return figures

    def _diverged(self, name: str, what: str) -> TrainingDiverged:
        course = self._courses[name]
        rate = course.settings.rate(course.steps_done, self._steps)
        return TrainingDiverged(
            f"policy {name}, optimiser step {course.steps_done + 1} of {self._steps}: {what} at learning rate {rate:.3g}; "
            f"the weights are those of the step before. Lower optimizer.learning_rate, or look at the step's episodes"
        )

    # ------------------------------------------------------------------------------------------------ checkpoints

    def state(self, name: str) -> OptimizerState:
        """Flat tensors `exp_avg.<i>` and `exp_avg_sq.<i>` of the policy's i-th parameter, and `{"step": steps done}`."""
        course = self._courses[name]
        tensors = {
            f"{key}.{index}": course.adamw.state[parameter][key].detach().cpu().clone()
            for index, parameter in enumerate(course.parameters)
            if parameter in course.adamw.state
            for key in ("exp_avg", "exp_avg_sq")
        }
        return tensors, {"step": course.steps_done}

    def load_state(self, name: str, state: OptimizerState) -> None:
        """Goes on where `state` was taken. Raises: ConfigError when it is of another model."""
        course, (tensors, facts) = self._courses[name], state
        indices = {int(key.rpartition(".")[2]) for key in tensors}
        if indices - set(range(len(course.parameters))):
            raise ConfigError(
                f"optimiser state of policy {name} has {max(indices) + 1} tensors, expected {len(course.parameters)}"
            )
        course.adamw.state.clear()
        for index in sorted(indices):
            parameter = course.parameters[index]
            averages = {
                key: tensors[f"{key}.{index}"].to(parameter.device, copy=True) for key in ("exp_avg", "exp_avg_sq")
            }
            for key, average in averages.items():
                if average.shape != parameter.shape:
                    raise ConfigError(
                        f"optimiser state of policy {name}: {key}.{index} has shape {list(average.shape)}, "
                        f"expected {list(parameter.shape)}: resume with the model the checkpoint was made with"
                    )
            course.adamw.state[parameter] = {"step": torch.tensor(float(facts["step"])), **averages}
        course.steps_done, course.loss = facts["step"], None


def _course(policy: Policy, settings: Optimizer) -> _Course:
    parameters = policy.parameters()
    if not parameters:
        raise ConfigError(f"policy {policy.name} has no trainable weights; expected some: list it under team.frozen")
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"policy {policy.name} would train weights of {parameter.dtype}; expected float32 masters, computed with in "
                f"a narrower type: small updates are rounded away otherwise"
            )
    adamw = torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )
    return _Course(policy, parameters, settings, adamw)


def _gradient_norm(course: _Course) -> Tensor:
    return get_total_norm([parameter.grad for parameter in course.parameters if parameter.grad is not None])
