"""One game without models, to see what a dry run can say about an environment of the user."""

from motet.assembly.task_setup import TaskSetup
from motet.core import Environment, Fault, Reply
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
    config, environment = setup.config, setup.environment
    if not is_reference(config.environment.name) or config.expert or config.verifier:
        return None
    limit = min(SECONDS, config.rollout.timeout_seconds or SECONDS)
    with guarded(limit, config.rollout.call_threads):
        return await attempt(_play(setup, environment, limit))


async def acting_agents(setup: TaskSetup) -> list[tuple[str, ...]]:
    """Return the agents that act at each turn of the plan, as far as a trial game shows it.

    All agents are assumed at a turn that it does not reach: if the game ends before, fails, or
    would ask an expert, a verifier or the sandbox.
    """
    config, plan = setup.config, setup.config.rollout
    found: list[tuple[str, ...]] = []
    limit = min(SECONDS, plan.timeout_seconds or SECONDS)
    plays = not (config.expert or config.verifier or setup.sandbox_level)
    with guarded(limit, plan.call_threads):
        await attempt(_watch(setup, limit, len(plan.samples) if plays else 1, found))
    return found + [tuple(config.team)] * (len(plan.samples) - len(found))


async def _watch(setup: TaskSetup, limit: float, turns: int, found: list[tuple[str, ...]]) -> None:
    """Play the first task, and add the agents of every turn to `found`."""
    task, environment, seed = setup.tasks.first, setup.environment, setup.config.seed
    if task is None:
        return
    begun = state = await within(limit, "start", lambda: environment.start(task, seed))
    try:
        for turn in range(turns):
            found.append(tuple(environment.observe(state)))
            if turn == turns - 1:
                return
            solved = (
                environment.solve(state, seed) if environment.provides(Environment.solve) else {}
            )
            replies = {agent: Reply(solved.get(agent, "")) for agent in found[-1]}
            stepped = state
            moved = await within(
                limit,
                "step",
                lambda: environment.step(stepped, replies, seed),  # noqa: B023
            )
            if moved.done:
                return
            state = moved.state
    finally:
        await within(limit, "close", lambda: environment.close(begun), even_given_up=True)


async def _play(setup: TaskSetup, environment: Environment[object], limit: float) -> int | None:
    task = setup.tasks.first
    if task is None:
        return None
    begun = state = await within(limit, "start", lambda: environment.start(task, setup.config.seed))
    try:
        for turn in range(1, MOST_TURNS + 1):
            solved = (
                environment.solve(state, setup.config.seed)
                if environment.provides(Environment.solve)
                else {}
            )
            replies = {agent: Reply(solved.get(agent, "")) for agent in environment.observe(state)}
            stepped = state
            moved = await within(
                limit,
                "step",
                lambda: environment.step(stepped, replies, setup.config.seed),  # noqa: B023
            )
            if moved.done:
                return turn
            if turn <= len(setup.config.rollout.samples) and "success" in moved.terms:
                return None
            state = moved.state
        return None
    finally:
        await within(limit, "close", lambda: environment.close(begun), even_given_up=True)
