"""One game without models, to see what a dry run can say about an environment of the user."""

from collections.abc import Callable
from dataclasses import dataclass, field

from motet.assembly.task_setup import TaskSetup
from motet.core import Fault, Reply, Solves, Task, Transition
from motet.models.tool_forms import tools_of
from motet.rollout.faults import attempt
from motet.user_code.plugins import is_reference
from motet.user_code.timeouts import guarded, within

MOST_TURNS = 32
SECONDS = 20.0
"""Timeout of each call."""


@dataclass
class Trial:
    """What a trial game showed."""

    end: int | Fault | None = None
    """After how many turns it ended, or the fault that ended it. None if it was not played, did not
    end, or was given up because enough was known."""
    acting: list[tuple[str, ...]] = field(default_factory=list)
    """Who acts at each turn that it reached."""
    offered: dict[str, dict[str, None]] = field(default_factory=dict)
    """Agent -> the names of the tools that its prompts offer."""


async def trial_game(setup: TaskSetup) -> Trial:
    """Play the first task with the solutions of the environment, or else with empty replies.

    Only an environment of the user is played, and none that asks an expert or a verifier. The game
    is given up if it reports `success` at a turn of the plan, and every agent has acted.
    """
    config, plan = setup.config, setup.config.rollout
    if not is_reference(config.environment.name) or config.expert or config.verifier:
        return Trial()

    def says_enough(trial: Trial, moved: Transition) -> bool:
        acted = {agent for acting in trial.acting for agent in acting}
        within_plan = len(trial.acting) <= len(plan.samples)
        return within_plan and moved.success is not None and acted >= config.team.keys()

    first = setup.tasks.first
    return Trial() if first is None else await _play(setup, first, MOST_TURNS + 1, says_enough)


async def acting_agents(setup: TaskSetup) -> list[tuple[str, ...]]:
    """Return the agents that act at each turn of the plan, as far as a trial game shows it.

    All agents are assumed at a turn that it does not reach: if the game ends before, fails, or
    would ask an expert, a verifier or the sandbox. Of the environments of a mixture, the one counts
    in which most agents act.
    """
    config, turns = setup.config, len(setup.config.rollout.samples)
    plays = not (config.expert or config.verifier or setup.sandbox_level)
    last = turns if plays else 1
    games = [(await _play(setup, task, last)).acting for task in setup.tasks.firsts]
    return [
        max(
            (acting[turn] for acting in games if turn < len(acting)),
            key=len,
            default=tuple(config.team),
        )
        for turn in range(turns)
    ]


async def _play(
    setup: TaskSetup,
    task: Task,
    turns: int,
    enough: Callable[[Trial, Transition], bool] = lambda trial, moved: False,
) -> Trial:
    """Play a task up to its turn number `turns`, or until `enough` is known."""
    plan, environment, seed = setup.config.rollout, setup.environment, setup.config.seed
    limit = min(SECONDS, plan.timeout_seconds or SECONDS)
    trial = Trial()

    async def play() -> int | None:
        begun = state = await within(limit, "start", lambda: environment.start(task, seed))
        try:
            for turn in range(1, turns + 1):
                prompts = environment.observe(state)
                trial.acting.append(tuple(prompts))
                for agent, prompt in prompts.items():
                    names = (one.name for one in tools_of(prompt))
                    trial.offered.setdefault(agent, {}).update(dict.fromkeys(names))
                if turn == turns:
                    return None
                solved = environment.solve(state, seed) if isinstance(environment, Solves) else {}
                replies = {agent: Reply(solved.get(agent, "")) for agent in prompts}
                stepped = state
                moved = await within(
                    limit,
                    "step",
                    lambda: environment.step(stepped, replies, seed),  # noqa: B023
                )
                if moved.done:
                    return turn
                if enough(trial, moved):
                    return None
                state = moved.state
            return None
        finally:
            await within(limit, "close", lambda: environment.close(begun), even_given_up=True)

    with guarded(limit, plan.call_threads):
        trial.end = await attempt(play())
    return trial
