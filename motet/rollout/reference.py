"""The reference team: an environment's own solutions, played. It checks data, parsing and rewards in one, and can teach."""

from collections.abc import Iterator
from typing import Any

from motet.core import Completion, Demonstration, End, Environment, Episode, Fault, Outcome, Reply, Round, Task
from motet.errors import ConfigError
from motet.rollout.faults import attempt
from motet.seeding import derive

REFERENCE = "reference"
"""What the records call the policy of a solution."""


async def play_reference(environment: Environment[Any], task: Task, episode_id: str, turns: int, seed: int) -> Episode:
    """One straight path of `environment.solve(state, seed)`, at most `turns` long. Its completions have no tokens.

    Raises: ConfigError where the environment has no solutions.
    """
    if not hasattr(environment, "solve"):
        name = type(environment).__name__
        raise ConfigError(f"environment {name} has no solutions to play: give it solve(state, seed) -> {{agent: text}}")
    start = await attempt(environment.start(task, derive(seed, episode_id)))
    if isinstance(start, Fault):
        return Episode(episode_id, task, None, fault=start)
    root = await attempt(_round(environment, start, 0, turns, derive(seed, episode_id, "solve")))
    closed = await attempt(environment.close(start))
    for part in (root, closed):
        if isinstance(part, Fault):
            return Episode(episode_id, task, None, fault=part)
    assert isinstance(root, Round)
    return Episode(episode_id, task, root)


async def _round(environment: Any, state: Any, turn: int, turns: int, seed: int) -> Round:
    prompts = dict(environment.observe(state))
    solutions = environment.solve(state, derive(seed, turn))
    texts = {agent: solutions[agent] for agent in prompts}
    transition = await environment.step(
        state, {a: Reply(text) for a, text in texts.items()}, derive(seed, turn, "step")
    )
    over = transition.done or turn + 1 == turns
    following = None if over else await _round(environment, transition.state, turn + 1, turns, seed)
    end: End | None = None if following else "done" if transition.done else "limit"
    outcome = Outcome(dict.fromkeys(prompts, 0), dict(transition.rewards), dict(transition.terms), following, end)
    samples = {agent: (Completion(REFERENCE, text, "stop"),) for agent, text in texts.items()}
    return Round(turn, prompts, dict.fromkeys(prompts, ()), samples, (outcome,))


def demonstrations_of(episode: Episode) -> Iterator[Demonstration]:
    """What each agent was asked and answered on a reference path."""
    round_ = episode.root
    while round_ is not None:
        for agent, prompt in round_.prompts.items():
            yield Demonstration(agent, prompt, round_.samples[agent][0].text, round_.turn)
        round_ = round_.outcomes[0].next
