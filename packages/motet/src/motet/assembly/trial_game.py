"""One game without models, to see what a dry run can say about an environment of the user."""

from collections.abc import Callable

from motet.assembly.task_setup import TaskSetup
from motet.core import Fault, Reply, Solves, Transition
from motet.rollout.faults import attempt
from motet.user_code.plugins import is_reference
from motet.user_code.timeouts import guarded, within

MOST_TURNS = 32
SECONDS = 20.0
"""Timeout of each call."""


async def trial_game(setup: TaskSetup) -> int | Fault | None:
    """Play the first task with the solutions of the environment, or else with empty replies.

    Only an environment of the user is played, and none that asks an expert or a verifier.

    Returns the number of turns after which the game ended, the fault that ended it, or None if it
    was not played, did not end, or reports `success` at a turn of the plan.
    """
    config, plan = setup.config, setup.config.rollout
    if not is_reference(config.environment.name) or config.expert or config.verifier:
        return None

    def says_enough(turn: int, moved: Transition) -> bool:
        return turn <= len(plan.samples) and moved.success is not None

    return await _play(setup, MOST_TURNS + 1, [], says_enough)


async def acting_agents(setup: TaskSetup) -> list[tuple[str, ...]]:
    """Return the agents that act at each turn of the plan, as far as a trial game shows it.

    All agents are assumed at a turn that it does not reach: if the game ends before, fails, or
    would ask an expert, a verifier or the sandbox.
    """
    config, turns = setup.config, len(setup.config.rollout.samples)
    plays = not (config.expert or config.verifier or setup.sandbox_level)
    found: list[tuple[str, ...]] = []
    await _play(setup, turns if plays else 1, found)
    return found + [tuple(config.team)] * (turns - len(found))


async def _play(
    setup: TaskSetup,
    turns: int,
    acting: list[tuple[str, ...]],
    enough: Callable[[int, Transition], bool] = lambda turn, moved: False,
) -> int | Fault | None:
    """Play the first task up to its turn number `turns`, and add who acts at each to `acting`.

    Returns the number of turns after which the game ended, the fault that ended it, or None if it
    did not end before the last turn, or before `enough` was known.
    """
    plan, environment, seed = setup.config.rollout, setup.environment, setup.config.seed
    limit = min(SECONDS, plan.timeout_seconds or SECONDS)
    task = setup.tasks.first
    if task is None:
        return None

    async def play() -> int | None:
        begun = state = await within(limit, "start", lambda: environment.start(task, seed))
        try:
            for turn in range(1, turns + 1):
                acting.append(tuple(environment.observe(state)))
                if turn == turns:
                    return None
                solved = environment.solve(state, seed) if isinstance(environment, Solves) else {}
                replies = {agent: Reply(solved.get(agent, "")) for agent in acting[-1]}
                stepped = state
                moved = await within(
                    limit,
                    "step",
                    lambda: environment.step(stepped, replies, seed),  # noqa: B023
                )
                if moved.done:
                    return turn
                if enough(turn, moved):
                    return None
                state = moved.state
            return None
        finally:
            await within(limit, "close", lambda: environment.close(begun), even_given_up=True)

    with guarded(limit, plan.call_threads):
        return await attempt(play())
