"""The reference team: an environment's own solutions, played. It checks data, parsing and rewards in one, and teaches a warm-up."""

from collections.abc import Iterator
from typing import Any

from motet.core import Completion, Demonstration, Environment, Episode, Fault, Outcome, Reply, Round, Task
from motet.errors import ConfigError, EnvironmentFault, RewardFault, SandboxFault
from motet.seeding import derive

REFERENCE = "reference"


async def play_reference(environment: Environment[Any], task: Task, episode_id: str, turns: int, seed: int) -> Episode:
    """One straight path of `environment.solve(state, seed)`, at most `turns` long. Its completions have no tokens.

    Raises: ConfigError where the environment has no solutions.
    """
    if not hasattr(environment, "solve"):
        name = type(environment).__name__
        raise ConfigError(f"environment {name} has no solutions to play: give it solve(state, seed) -> {{agent: text}}")
    try:
        start = await environment.start(task, derive(seed, episode_id))
        try:
            root = await _round(environment, start, 0, turns, derive(seed, episode_id, "solve"))
        finally:
            await environment.close(start)
    except (EnvironmentFault, RewardFault, SandboxFault) as error:
        where = {EnvironmentFault: "environment", RewardFault: "reward", SandboxFault: "sandbox"}[type(error)]
        return Episode(episode_id, task, None, fault=Fault(where, type(error).__name__, str(error)))  # type: ignore[arg-type]
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
    end = None if following else "done" if transition.done else "limit"
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
