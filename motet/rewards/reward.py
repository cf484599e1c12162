"""What an author's reward is, and how it is asked: whatever it breaks becomes a RewardFault, never a zero."""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol, TypeAlias

from motet.core import Task
from motet.errors import MotetError, RewardFault


@dataclass(frozen=True)
class Score:
    """A joint answer's worth: one number for all agents or one per agent, and named parts of it for the records."""

    rewards: float | Mapping[str, float]
    terms: Mapping[str, float] = field(default_factory=dict)


class Reward(Protocol):
    """`texts` is what every agent that acted has just said."""

    async def score(self, task: Task, texts: Mapping[str, str]) -> Score: ...


RewardLike: TypeAlias = Reward | Callable[[Task, Mapping[str, str]], Any]
"""A Reward, or a function that returns a number, a number per agent, or a Score. Either may be `async`; while one that is not
async waits (for a server, say), everything waits, up to `rollout.timeout_seconds`."""


async def ask(
    reward: RewardLike, task: Task, texts: Mapping[str, str], agents: Sequence[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """(rewards of every one of `agents`, terms), all of them finite.

    Raises: RewardFault for an exception of the reward's, and for a result that is no score; Motet's own faults as they are.
    """
    judge: Callable[[Task, Mapping[str, str]], Any] = reward.score if hasattr(reward, "score") else reward
    try:
        result = judge(task, texts)
        if isinstance(result, Awaitable):
            result = await result
    except MotetError:
        raise
    except Exception as error:
        raise RewardFault(f"reward {name_of(reward)} on task {task.id}: {type(error).__name__}: {error}") from error
    score = result if isinstance(result, Score) else Score(result)
    said = f"reward {name_of(reward)} on task {task.id}"
    given = score.rewards if isinstance(score.rewards, Mapping) else dict.fromkeys(agents, score.rewards)
    if set(given) != set(agents):
        raise RewardFault(f"{said} rewards {', '.join(map(str, given)) or 'nobody'}; expected {', '.join(agents)}")
    rewards = {agent: _finite(given[agent], f"{said} gave {agent}") for agent in agents}
    terms = {term: _finite(value, f"{said} gave term {term}") for term, value in score.terms.items()}
    return rewards, terms


def name_of(reward: RewardLike) -> str:
    return reward.__name__ if inspect.isroutine(reward) else type(reward).__name__


def _finite(value: Any, what: str) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise RewardFault(f"{what} {value!r}; expected a finite number")
    return float(value)
