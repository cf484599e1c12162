"""The interface of a user's reward, and the function that calls it.

Any error in a reward becomes a RewardFault. It never becomes a reward of zero.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from codejudge import SandboxError, SandboxFault
from motet.core import Score, Task, Transition
from motet.errors import EnvironmentFault, MotetError, RewardFault
from motet.user_code.retries import may_pass
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
) -> Transition:
    """Call `reward` and return what it says, as floats: a Transition without a state.

    Raises:
        RewardFault: if the reward raises an exception, or returns no valid score. It says whether
            the error `may_pass`. Motet's own errors pass through unchanged.
    """
    judge: Callable[[Task, Mapping[str, str]], Any] = (
        reward.score if hasattr(reward, "score") else reward
    )
    said = f"reward {name_of(reward)} on task {task.id}"
    try:
        result = await call(judge, task, texts)
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


def name_of(reward: RewardLike) -> str:
    return reward.__name__ if inspect.isroutine(reward) else type(reward).__name__
