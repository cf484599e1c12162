"""A user's own functions for credit: what they get, and checks of what they return.

Without these checks a NaN would reach the loss, and the run would blame the learning rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from motet.core import Episode, Scores, Team, TrainSample
from motet.credit.baselines import JointActions
from motet.credit.critics import AdvantageResult, first_values
from motet.credit.returns import segment_mean
from motet.credit.table import Table
from motet.errors import MotetError
from motet.settings import Algorithm
from motet.user_code.own_code import called

Given = TypeVar("Given")


@dataclass(frozen=True)
class CreditStep:
    """The input of a credit function: one step with S samples, N agents and J joint actions.

    A sample is one completion. Failed joint actions are left out.
    """

    episodes: Sequence[Episode]
    """All episodes of the step."""
    samples: Sequence[TrainSample]
    """The samples, with `id` (episode, path, agent, index), `turn`, `completion` and `share`."""
    agents: tuple[str, ...]
    """The names of the N agents, in the order of the axis N of `actions`."""
    returns_S: Tensor
    """float64 [S]: the mean return of the joint actions that a sample took part in."""
    group_S: Tensor
    """int64 [S]: the group that a sample is compared with, numbered from 0."""
    actions: JointActions
    """The joint actions: sample_NJ, returns_NJ and round_J."""
    values_S: Tensor | None
    """float64 [S]: the critic's value of the sample's observation, with `scope: token` before its
    first token; 0 for agents without a critic. None if the algorithm has no critic."""
    advantages_S: Tensor
    """float64 [S]: the advantages of the algorithm itself, with `scope: token` their mean over the
    tokens."""

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.group_S.max()) + 1

    def group_mean(self, x_S: Tensor) -> Tensor:
        """Return the mean of `x_S` over the group of each sample, [S]."""
        return segment_mean(x_S, self.group_S, self.groups)[self.group_S]


CreditFunction: TypeAlias = Callable[[CreditStep], Tensor | Sequence[Tensor]]
"""Returns the advantage of each sample, float [S]. Or it returns a list of S tensors with the
advantage of each token, that of sample s as long as `samples[s].completion.tokens`. It is a pure
function: it keeps no state."""


def step_of(
    episodes: Sequence[Episode],
    table: Table,
    algorithm: Algorithm,
    scores: Scores,
    team: Team,
    group_S: Tensor,
    penalty_S: Tensor,
    result: AdvantageResult,
) -> CreditStep:
    """Return the input of a credit function. `result` is that of the algorithm itself."""
    returns_NJ = table.returns_NJ(algorithm, penalty_S)
    critic = algorithm.critic
    means = [sum(a) / len(a) if isinstance(a, tuple) else a for a in result.advantages]
    return CreditStep(
        episodes=episodes,
        samples=table.samples,
        agents=tuple(table.agents),
        returns_S=result.returns_S,
        group_S=group_S,
        actions=JointActions(table.sample_NJ, returns_NJ, table.forest.round_J),
        values_S=None if critic is None else first_values(table, critic, scores, team),
        advantages_S=torch.tensor(means, dtype=torch.float64),
    )


def checked(
    function: Callable[[Given], Any], who: str, size: Callable[[Given], int]
) -> Callable[[Given], Tensor]:
    """Return a function that calls `function` and checks its result: S finite numbers as a tensor.

    Args:
        who: what the function is, for messages: "baseline ./mine.py:median".
        size: returns S, from the argument of the function.

    The new function raises MotetError, which names `who`, if `function` raises an exception or
    returns anything else. Errors of the machine, such as too little memory, pass through. The
    result is float64 [S] and has no gradient.
    """

    @wraps(function)
    def call(given: Given) -> Tensor:
        return _finite(called(function, given, who), size(given), who)

    return call


@dataclass(frozen=True)
class CheckedCredit:
    """A credit function whose result is checked, as `checked` does: float64 [S], or a list of S
    tensors with one number per token. `who` names it in messages."""

    function: CreditFunction
    who: str

    @classmethod
    def of(cls, function: CreditFunction) -> "CheckedCredit":
        """Return the function with checks, named by its own name; one with checks as it is."""
        if isinstance(function, cls):
            return function
        return cls(function, f"credit function {getattr(function, '__qualname__', function)}")

    def __call__(self, step: CreditStep) -> Tensor | list[Tensor]:
        result, count = called(self.function, step, self.who), len(step.samples)
        if not isinstance(result, list | tuple) or not any(isinstance(x, Tensor) for x in result):
            also = f", or a list of {count} tensors with one number per token"
            return _finite(result, count, self.who, also)
        lengths = [len(sample.completion.tokens or ()) for sample in step.samples]
        if len(result) != count:
            raise MotetError(
                f"{self.who} returned a list of {len(result)}; expected {count} tensors, one per "
                "sample"
            )
        return [
            _numbers(one, length, f"{self.who} returned for sample {row}", "token")
            for row, (one, length) in enumerate(zip(result, lengths, strict=True))
        ]


def _finite(result: Any, count: int, who: str, also: str = "") -> Tensor:
    return _numbers(result, count, f"{who} returned", "sample", also)


def _numbers(result: Any, count: int, said: str, unit: str, also: str = "") -> Tensor:
    """Return the result as float64 [count]. Raises: MotetError that begins with `said`."""
    expected = f"expected a tensor of {count} finite numbers, one per {unit}{also}"
    if not isinstance(result, Tensor):
        fix = (
            "add a return statement"
            if result is None
            else f"use torch.tensor(...) on the {type(result).__name__}"
        )
        raise MotetError(f"{said} {_kind(result)}; {expected}: {fix}")
    if result.shape != (count,) or result.is_complex():
        raise MotetError(
            f"{said} a tensor of shape {list(result.shape)} and dtype {result.dtype}; "
            f"{expected}, so shape [{count}]"
        )
    values = result.detach().to("cpu", torch.float64)
    wrong = torch.nonzero(~torch.isfinite(values)).flatten().tolist()
    if wrong:
        raise MotetError(
            f"{said} {float(values[wrong[0]])} for {unit} {wrong[0]} and "
            f"{len(wrong) - 1} others that are not finite; {expected}: check its divisions and "
            "logarithms"
        )
    return values


def _kind(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__name__}"
