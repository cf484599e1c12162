"""Every environment that reads rows, and a game in which all agents give the answers of a test.

This is what a run does, without models.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from codejudge import Sandbox, SandboxFault
from motet.core import Completion, Environment, Episode, Outcome, Reply, Round, Task, Votes
from motet.environments.debate_tiny import TinyDebate
from motet.environments.quickstart import Quickstart
from motet.environments.relay import Relay
from motet.errors import EnvironmentFault, RewardFault, SamplerFault
from motet.models.prompts import encode
from motet.rollout.record import read_episodes, write_episode
from motet_tasks.calls.game import FunctionCalling
from motet_tasks.coding.bug_fix import BugFix
from motet_tasks.coding.bug_fix_tiny import TinyBugFix
from motet_tasks.coding.completion import CodeCompletion
from motet_tasks.coding.generation import CodeGeneration
from motet_tasks.debate.game import Debate
from motet_tasks.minecraft.house_build import HouseBuild
from motet_tasks.minecraft.str_build import StrBuild
from motet_tasks.travel.game import TravelPlan
from motet_tasks.writing import WritingEnvironment

FAULTS = (EnvironmentFault, RewardFault, SamplerFault, SandboxFault)
"""Faults that a run records. Any other error of an environment is a bug, though a run
records it, too."""


def environment_of(kind: str, sandbox: Sandbox) -> Any:
    """Return the environment that reads `sound_rows.ROWS[kind]`, or one with its own tasks."""
    debate: dict[str, Any] = {
        "format_penalty": 0.1,
        "show_scores": "exact",
        "peer_messages": "full",
    }
    match kind:
        case "code_generation":
            return CodeGeneration(CodeGeneration.Options(), sandbox=sandbox, turns=2)
        case "code_completion":
            return CodeCompletion(CodeCompletion.Options(), sandbox=sandbox, turns=2)
        case "bug_fix":
            return BugFix(BugFix.Options(), sandbox=sandbox, turns=4)
        case "mutants":
            return BugFix(BugFix.Options(mutate=True), sandbox=sandbox, turns=2)
        case "gsm8k" | "tinygsm" | "anli" | "maths":
            seconds = {"maths_seconds": 1.0} if kind == "maths" else {}
            return Debate(
                Debate.Options(dataset=kind, **seconds, **debate),
                turns=2,
                open_sandbox=lambda: sandbox,
            )
        case "tldr" | "arxiv":
            return WritingEnvironment(WritingEnvironment.Options(kind=kind))
        case "function_calling":
            return FunctionCalling(FunctionCalling.Options())
        case "travel_plan":
            return TravelPlan(TravelPlan.Options())
        case "relay":
            return Relay(Relay.Options())
        case "debate_tiny":
            return TinyDebate(TinyDebate.Options())
        case "str_build":
            perfect: dict[str, Any] = {"mode": "perfect_feedback"}
            return StrBuild(StrBuild.Options(feedback=perfect), turns=2)
        case "house_build":
            schedule: dict[str, Any] = {"mode": "resource_schedule"}
            return HouseBuild(HouseBuild.Options(feedback=schedule), turns=2)
        case "quickstart":
            return Quickstart(Quickstart.Options(), sandbox=sandbox)
        case "bug_fix_tiny":
            return TinyBugFix(TinyBugFix.Options(), sandbox=sandbox)
    raise AssertionError(kind)


def played(
    environment: Environment[Any],
    task: Task,
    says: Callable[[str, int], str],
    words: Any,
    record: Path,
    most: int = 4,
) -> str:
    """Play a game; return `played` or the name of its fault.

    `words` tokenizes its prompts. Its Rounds are recorded and read back.
    Raises: any other error, and AssertionError if a reward or term is not a number.
    """

    async def game() -> str:
        try:
            state = await environment.start(task, 0)
        except FAULTS as fault:
            return type(fault).__name__
        for turn in range(most):
            prompts = environment.observe(state)
            try:
                tokens = {agent: encode(words, prompt) for agent, prompt in prompts.items()}
                said = {agent: says(agent, turn) for agent in prompts}
                led_to = await environment.step(
                    state, {agent: Reply(text, "length") for agent, text in said.items()}, 0
                )
            except FAULTS as fault:
                return type(fault).__name__
            assert all(map(math.isfinite, [*led_to.rewards.values(), *led_to.terms.values()])), (
                led_to
            )
            samples = {
                agent: (Completion(agent, text, "length", tokens=(1,), logprobs=(-0.5,)),)
                for agent, text in said.items()
            }
            outcome = Outcome(dict.fromkeys(said, 0), led_to.rewards, led_to.terms, end="limit")
            _recorded(record, Episode("e", task, Round(turn, prompts, tokens, samples, (outcome,))))
            if led_to.done:
                break
            state = led_to.state
        if isinstance(environment, Votes):
            environment.answer(task, {agent: says(agent, 0) for agent in environment.agents})
        return "played"

    return asyncio.run(game())


def _recorded(path: Path, episode: Episode) -> None:
    with path.open("w", encoding="utf-8") as file:
        write_episode(file, episode)
    assert _plain(read_episodes(path).episodes[0]) == _plain(episode)


def _plain(value: Any) -> Any:
    """Convert tuples to lists, because JSON has no tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return (
        {key: _plain(inner) for key, inner in vars(value).items()}
        if hasattr(value, "__dataclass_fields__")
        else value
    )
