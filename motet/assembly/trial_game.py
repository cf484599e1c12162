"""One game without models, to see what a dry run can say about an environment of the user."""

from motet.assembly.task_setup import TaskSetup
from motet.core import Environment, Fault, Reply
from motet.plugins import is_reference
from motet.rollout.faults import attempt
from motet.timeouts import guarded, within

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
