"""The interface of a user's reward, and the function that calls it.

Any error in a reward becomes a RewardFault. It never becomes a reward of zero.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from codejudge import SandboxError, SandboxFault
from motet.core import Score, Task, Transition
from motet.errors import ConfigError, EnvironmentFault, MotetError, RewardFault
from motet.user_code.retries import may_pass
from motet.user_code.threads import call


class Reward(Protocol):
    """A reward object: its `score` is a function as in `RewardLike`."""

    @property
    def score(self) -> Callable[..., Any]: ...


RewardLike: TypeAlias = Reward | Callable[..., Any]
"""A Reward, or a function that returns a number, a number per agent, or a Score.

Its parameters are `(task, texts)`, or `(task, texts, transition)`: the Task; agent -> the latest
completion of each agent that acted; the Transition of this turn by the environment, with the state
after it. Either may be `async`. One that is not runs in a thread (`rollout.call_threads`).
"""


def reads_transition(reward: RewardLike) -> bool:
    """Return whether a reward has the parameter `transition`.

    Raises: ConfigError if it cannot be called with (task, texts) or (task, texts, transition).
    """
    try:
        signature = inspect.signature(_judge(reward))
    except (TypeError, ValueError):  # a function of C
        return False
    reads = "transition" in signature.parameters
    try:
        signature.bind("task", "texts", **{"transition": None} if reads else {})
    except TypeError as error:
        raise ConfigError(
            f"reward {name_of(reward)} has the parameters {signature}; expected (task, texts), or "
            "(task, texts, transition) for one that also reads the motet.Transition of the turn"
        ) from error
    return reads


async def ask(
    reward: RewardLike,
    task: Task,
    texts: Mapping[str, str],
    agents: Sequence[str],
    transition: Transition | None = None,
) -> Transition:
    """Call `reward` and return what it says, as floats: a Transition without a state.

    Args:
        transition: what a reward gets that `reads_transition`. None: it does not.

    Raises:
        RewardFault: if the reward raises an exception, or returns no valid score. It says whether
            the error `may_pass`. Motet's own errors pass through unchanged.
    """
    more = {} if transition is None else {"transition": transition}
    said = f"reward {name_of(reward)} on task {task.id}"
    try:
        result = await call(_judge(reward), task, texts, **more)
    except (MotetError, SandboxError, SandboxFault):
        raise
    except Exception as error:
        fault = RewardFault(f"{said}: {type(error).__name__}: {error}")
        fault.may_pass = may_pass(error)
        raise fault from error
    score = result if isinstance(result, Score) else Score(result)
    try:
        return score.transition(None, agents).checked(agents)
    except EnvironmentFault as error:
        raise RewardFault(f"{said} gave no score: {error}") from error


def _judge(reward: RewardLike) -> Callable[..., Any]:
    judge: Callable[..., Any] = reward.score if hasattr(reward, "score") else reward
    return judge


def name_of(reward: RewardLike) -> str:
    return reward.__name__ if inspect.isroutine(reward) else type(reward).__name__
