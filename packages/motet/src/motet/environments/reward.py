"""The interface of a user's reward, and the function that calls it.

Any error in a reward becomes a RewardFault. It never becomes a reward of zero.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Protocol, TypeAlias

from codejudge import SandboxError, SandboxFault
from motet.core import Score, Task
from motet.errors import MotetError, RewardFault, shortened
from motet.user_code.threads import call


class Reward(Protocol):
    """A reward object. `texts` maps each agent that acted to its latest completion."""

    async def score(self, task: Task, texts: Mapping[str, str]) -> Score: ...


RewardLike: TypeAlias = Reward | Callable[[Task, Mapping[str, str]], Any]
"""A Reward, or a function that returns a number, a number per agent, or a Score.

Either may be `async`. One that is not runs in a thread (`rollout.call_threads`).
"""


async def ask(
    reward: RewardLike, task: Task, texts: Mapping[str, str], agents: Sequence[str]
) -> tuple[dict[str, float], Score]:
    """Call `reward` and return (reward of each of `agents`, its score). All numbers are floats.

    Raises:
        RewardFault: if the reward raises an exception, or returns no valid score. Motet's own
            errors pass through unchanged.
    """
    judge: Callable[[Task, Mapping[str, str]], Any] = (
        reward.score if hasattr(reward, "score") else reward
    )
    try:
        result = await call(judge, task, texts)
    except (MotetError, SandboxError, SandboxFault):
        raise
    except Exception as error:
        raise RewardFault(
            f"reward {name_of(reward)} on task {task.id}: {type(error).__name__}: {error}"
        ) from error
    score = result if isinstance(result, Score) else Score(result)
    said = f"reward {name_of(reward)} on task {task.id}"
    given = score.rewards_of(agents)
    if set(given) != set(agents):
        raise RewardFault(
            f"{said} gave rewards for {', '.join(map(str, given)) or 'nobody'}; expected "
            f"{', '.join(agents)}"
        )
    rewards = {agent: _finite(given[agent], f"{said} gave {agent}") for agent in agents}
    success = score.success
    return rewards, Score(
        rewards,
        {
            name: _finite(value, f"{said} gave metric {name}")
            for name, value in score.metrics.items()
        },
        success=None if success is None else _finite(success, f"{said} gave success"),
        right=_of_agents(score.right, f"{said} gave right", agents),
        bonus=_of_agents(score.bonus, f"{said} gave bonus", agents),
    )


def _of_agents(given: Mapping[str, float], said: str, agents: Sequence[str]) -> dict[str, float]:
    unknown = [agent for agent in given if agent not in agents]
    if unknown:
        raise RewardFault(
            f"{said} for {', '.join(map(str, unknown))}; expected agents of {', '.join(agents)}"
        )
    return {agent: _finite(value, f"{said} of {agent}") for agent, value in given.items()}


def name_of(reward: RewardLike) -> str:
    return reward.__name__ if inspect.isroutine(reward) else type(reward).__name__


def _finite(value: Any, what: str) -> float:
    """Return a number of Python, or a scalar of NumPy or torch, as a float."""
    number = value.item() if _is_scalar(value) else value
    try:
        if isinstance(number, Real) and math.isfinite(number):
            return float(number)
    except OverflowError:
        """The integer is larger than any float: the message below says what is expected."""
    raise RewardFault(f"{what} {_shown(value)}; expected a finite number")


def _is_scalar(value: Any) -> bool:
    """Return whether `value` is a scalar of NumPy (`numpy.bool_` is no number of Python), or an
    array or tensor without axes.
    """
    return getattr(value, "shape", None) == () and callable(getattr(value, "item", None))


def _shown(value: Any) -> str:
    try:
        return shortened(repr(value))
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "an integer of thousands of digits"
