"""Function calling: several agents call functions for one request, without seeing each other.

The calls of all agents together should be those that the request needs, and each agent should make
its part of them. Tasks, roles and rewards are those of LLM_Collab_BFCL-v4 (OpenMLRL): its native
parallel task, and with `score: {kind: sequence}` its flattened multi-turn task. rewards/calls.py
scores the calls, docs/rewards.md lists the differences.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.settings import Settings
from motet_tasks.calls.reading import FunctionCall, read_calls
from motet_tasks.calls.rows import CATEGORY, KIND, needed_calls, read_request
from motet_tasks.rewards.calls import CallScore, SetScore, score_calls
from motet_tasks.scaling import Scaling

_ASKED = """\
You call functions for a user.

These functions exist:
{functions}

The request:
{request}

{share}

Write only your calls, in Python with named arguments, one on each line:
some_function(city="Oslo", days=2)
Explain nothing. If there is no call for you, write []"""
_ALONE = "Make all calls that the request needs."
_OTHERS = (
    "{others} the same request at the same time. You cannot talk to each other, and your calls are "
    "put together afterwards. {share}"
)
_ALL = "Make every call that the request needs, as if you were alone."
_SELECTED = (
    "Choose a part of the calls that it needs, those that you are surest of. Leave the others to "
    "them, but do not leave them everything: make at least one call if any fits."
)
_PLACED = "Number the calls that it needs in the order of the request, from 1. {own}"
Roles = Literal["self_select", "split_by_order", "odd_even", "same_prompt"]


@dataclass(frozen=True)
class Calling:
    """The state: one request, and the calls that it needs."""

    request: str
    functions: tuple[Mapping[str, Any], ...]
    needed: tuple[FunctionCall, ...]


class FunctionCalling(Environment[Calling]):
    """One turn. All agents get the same reward: the scaled levels of `rewards.calls`."""

    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of function calling."""

        agents: int = Field(2, ge=1, le=8)
        """Number of agents: `caller1`, `caller2`, ..."""
        roles: Roles = "self_select"
        """What the agents are told. self_select: choose some of the calls. split_by_order: the
        first makes the first half of the calls, and so on. odd_even: the first makes calls 1, 3,
        ... same_prompt: each makes all calls."""
        score: CallScore = SetScore()
        """How calls are scored: `kind: set` or `kind: sequence`, with a weight for each term."""
        optional_arguments: bool = False
        """Whether an argument may be left out if "" is among its accepted values, as in the
        official checker of BFCL. Published: it may not."""
        categories: tuple[str, ...] = ()
        """Use only rows of these official categories, such as parallel. Empty: all."""
        task_types: tuple[str, ...] = ()
        """Use only rows of these task types. Empty: all."""
        reward: Scaling = Scaling()
        """Maps levels, -0.4 to 1.2, to rewards."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.agents: Sequence[str] = tuple(
            f"caller{number}" for number in range(1, options.agents + 1)
        )

    def task(self, row: Mapping[str, Any]) -> list[Task]:
        """Read a row; no task if it is of another category or type. Raises: ConfigError."""
        wanted = ((CATEGORY, self.options.categories), (KIND, self.options.task_types))
        if any(names and row.get(field) not in names for field, names in wanted):
            return []
        return [read_request(row)]

    async def start(self, task: Task, seed: int) -> Calling:
        functions = tuple(task.fields["functions"])
        return Calling(task.fields["request"], functions, tuple(needed_calls(task)))

    def observe(self, state: Calling) -> Mapping[str, Prompt]:
        functions = "\n".join(json.dumps(one, ensure_ascii=False) for one in state.functions)
        return {
            agent: (
                Message(
                    "user",
                    # What all prompts begin with is read once, so the share comes last.
                    _ASKED.format(
                        functions=functions, request=state.request.strip(), share=self._share(place)
                    ),
                ),
            )
            for place, agent in enumerate(self.agents)
        }

    async def step(self, state: Calling, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = [read_calls(replies[agent].text, state.functions) for agent in self.agents]
        scored = score_calls(
            said, state.needed, self.options.score, self.options.optional_arguments
        )
        metrics = {
            **scored.terms,
            "levels": scored.levels,
            **{
                f"calls/{agent}": float(len(own))
                for agent, own in zip(self.agents, said, strict=True)
            },
        }
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(scored.levels))
        return Transition(state, rewards, done=True, metrics=metrics, success=scored.terms["exact"])

    def solve(self, state: Calling, seed: int) -> dict[str, str]:
        """Return the needed calls with their first accepted values, divided evenly, in order."""
        calls = [str(_first(call)) for call in state.needed]
        each, rest = divmod(len(calls), len(self.agents))
        found, start = {}, 0
        for place, agent in enumerate(self.agents):
            end = start + each + (place < rest)
            found[agent] = "\n".join(calls[start:end]) or "[]"
            start = end
        return found

    def alone(self) -> "FunctionCalling":
        """Return the same requests for one agent, which makes all calls."""
        return FunctionCalling(self.options.model_copy(update={"agents": 1}))

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the calls of all agents for a vote, without repeated ones; None without calls."""
        functions = task.fields["functions"]
        made = [call.key for agent in self.agents for call in read_calls(texts[agent], functions)]
        keys = (
            dict.fromkeys(made)
            if self.options.score.kind == "sequence"
            else sorted(set(made), key=repr)
        )
        return "\n".join(map(repr, keys)) or None

    def _share(self, place: int) -> str:
        count = len(self.agents)
        if count == 1:
            return _ALONE
        match self.options.roles:
            case "same_prompt":
                share = _ALL
            case "self_select":
                share = _SELECTED
            case "odd_even":
                numbers = f"{place + 1}, {place + 1 + count}, {place + 1 + 2 * count} and so on"
                share = _PLACED.format(own=f"Make those with the numbers {numbers}.")
            case "split_by_order":
                part = f"part {place + 1} of {count} equal parts"
                own = f"Make {part}; if they cannot be equal, the earlier ones have one more."
                share = _PLACED.format(own=own)
        others = "Another agent reads" if count == 2 else f"{count - 1} other agents read"
        return _OTHERS.format(others=others, share=share)


def _first(needed: FunctionCall) -> FunctionCall:
    return FunctionCall(
        needed.name, {name: _one(accepted) for name, accepted in needed.arguments.items()}
    )


def _one(accepted: Any) -> Any:
    """Return the first accepted value."""
    return _whole(accepted[0] if isinstance(accepted, list) and accepted else accepted)


def _whole(value: Any) -> Any:
    """Return an accepted value, with the first accepted one of each field of its objects."""
    if isinstance(value, Mapping):
        return {name: _one(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value
