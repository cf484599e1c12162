"""Play an environment's own solutions, as the reference team.

This tests data, parsing and rewards together. The episodes can also serve as demonstrations.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from motet.core import (
    Completion,
    Demonstration,
    End,
    Environment,
    Episode,
    Fault,
    Outcome,
    Reply,
    Round,
    Solves,
    Task,
    class_name,
)
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.rollout.faults import attempt
from motet.settings import Plan
from motet.user_code.timeouts import at_once, guarded, within

REFERENCE = "reference"
"""The policy name of solutions in the records."""


async def play_reference(
    environment: Environment[Any], task: Task, episode_id: str, plan: Plan, seed: int
) -> Episode:
    """Play one path with the solutions of `environment.solve(state, seed)`.

    The path uses the turns and the time limit of `plan`. Its completions have no tokens.

    Raises: ConfigError if the environment has no solutions.
    """
    with guarded(plan.timeout_seconds, plan.call_threads):
        return await reference_path(environment, task, episode_id, plan, seed)


async def reference_path(
    environment: Environment[Any], task: Task, episode_id: str, plan: Plan, seed: int
) -> Episode:
    """Play as `play_reference`, in a `guarded` context of the caller, which several paths share."""
    if not isinstance(environment, Solves):
        name = class_name(environment)
        raise ConfigError(
            f"environment {name} has no solutions; expected solve(state, seed) -> {{agent: "
            "text}: define it"
        )
    limit, key = plan.timeout_seconds, derive(seed, episode_id)
    start = await attempt(within(limit, "start", lambda: environment.start(task, key)))
    if isinstance(start, Fault):
        return Episode(episode_id, task, None, fault=start)
    try:
        solving = _round(environment, start, 0, plan, derive(seed, episode_id, "solve"))
        root = await attempt(solving)
    finally:
        closed = await attempt(
            within(limit, "close", lambda: environment.close(start), even_given_up=True)
        )
    for part in (root, closed):
        if isinstance(part, Fault):
            return Episode(episode_id, task, None, fault=part)
    assert isinstance(root, Round)
    return Episode(episode_id, task, root)


async def _round(
    environment: Environment[Any], state: Any, turn: int, plan: Plan, seed: int
) -> Round:
    limit = plan.timeout_seconds
    prompts = at_once(limit, "observe", lambda: dict(environment.observe(state)))
    assert isinstance(environment, Solves)
    solutions = at_once(limit, "solve", partial(environment.solve, state, derive(seed, turn)))
    texts = {agent: solutions[agent] for agent in prompts}
    replies, key = {agent: Reply(text) for agent, text in texts.items()}, derive(seed, turn, "step")
    stepped = await within(limit, "step", lambda: environment.step(state, replies, key))
    transition = stepped.checked(environment.agents)
    over = transition.done or turn + 1 == len(plan.samples)
    following = None if over else await _round(environment, transition.state, turn + 1, plan, seed)
    end: End | None = None if following else "done" if transition.done else "limit"
    picks = dict.fromkeys(prompts, 0)
    outcome = Outcome(picks, transition.rewards, transition.terms, following, end)
    samples = {agent: (Completion(REFERENCE, text, "stop"),) for agent, text in texts.items()}
    return Round(turn, prompts, dict.fromkeys(prompts, ()), samples, (outcome,))


def demonstrations_of(episode: Episode) -> Iterator[Demonstration]:
    """Yield the prompt and the solution of each agent at each turn of a reference path."""
    round_ = episode.root
    while round_ is not None:
        for agent, prompt in round_.prompts.items():
            yield Demonstration(agent, prompt, round_.samples[agent][0].text, round_.turn)
        round_ = round_.outcomes[0].next
