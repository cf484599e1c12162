"""evaluate: play tasks without learning, and say how it went."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from motet.core import Environment, Episode, Reply, Sampler, Task, Team
from motet.errors import ConfigError
from motet.rollout.collect import collect
from motet.rollout.influence import influence
from motet.rollout.passing import passing, powers_of_two
from motet.rollout.playthrough import Playthrough, by_turn, playthroughs
from motet.rollout.summary import Summary, summarise
from motet.settings import Plan

TASKS_AT_ONCE = 512
"""Bounds the memory of an evaluation; part of what makes a wave, so it is the same for every run."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes, and their means."""

    episodes: list[Episode]
    summary: Summary
    seconds: float | None = None
    """By the clock, from the first task to the last; None where nobody looked."""

    @property
    def games(self) -> list[list[Playthrough]]:
        """The single games of every task."""
        return [playthroughs(episode) for episode in self.episodes]


async def evaluate(
    environment: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    team: Team,
    plan: Plan,
    *,
    seed: int,
    tag: str,
    samples: int = 1,
    greedy: bool = False,
    on_episode: Callable[[Episode], None] | None = None,
    clock: Callable[[], float] = monotonic,
) -> Evaluation:
    """Plays `samples` straight paths of every task, with the turn limit and the stop rule of `plan`.

    The plan's `max_nodes` is a guard against trees, and paths are as many as were asked for.
    """
    turns = len(plan.samples)
    paths = plan.model_copy(
        update={
            "samples": (samples, *[1] * (turns - 1)),
            "expand": "all",
            "pairing": "aligned",
            "max_nodes": 1 + samples * (turns - 1),
        }
    )
    begun = clock()
    episodes: list[Episode] = []
    for start in range(0, len(tasks), TASKS_AT_ONCE):
        episodes += await collect(
            environment,
            tasks[start : start + TASKS_AT_ONCE],
            sampler,
            team,
            paths,
            run_seed=seed,
            tag=f"{tag}-{start:06d}" if start else tag,
            greedy=greedy,
            on_episode=on_episode,
        )
    return Evaluation(episodes, summarise(episodes), clock() - begun)


# ---------------------------------------------------------------------------------------------------- in figures


def described(evaluation: Evaluation, environment: Any, pass_at: Sequence[int] | None = None) -> dict[str, Any]:
    """An evaluation as plain JSON, the clock aside: the summary, games per task, tokens per episode, pass@k, the figures of every
    turn, the convention each agent held to where the environment can name it, and where it says who is right at each turn what
    became of that: `success_by_turn`, the terms of every turn, and `influence`.

    Args:
        pass_at: the k of pass@k; 1 and the powers of two up to the number of games per task unless given.
    """
    games = evaluation.games
    samples = max(map(len, games), default=0)
    ks = powers_of_two(samples) if pass_at is None else pass_at
    turns = [asdict(turn) for turn in by_turn(games)]
    debated = influence(evaluation.episodes)
    figures = {
        **asdict(evaluation.summary),
        "samples": samples,
        "tokens_per_episode": evaluation.summary.tokens / max(evaluation.summary.episodes, 1),
        "pass_at": passing(games, ks),
        "by_turn": [{name: turn[name] for name in turn if debated or name != "terms"} for turn in turns],
    }
    if debated is not None:
        figures["success_by_turn"] = [turn["success"] for turn in turns]
        figures["influence"] = asdict(debated)
    if hasattr(environment, "convention"):
        figures["conventions"] = conventions(evaluation.episodes, environment.convention)
    return figures


def conventions(episodes: Sequence[Episode], name: Callable[[Task, str, str], str]) -> dict[str, dict[str, float]]:
    """Agent -> label -> share of its answers at turn one, the commonest first."""
    seen: dict[str, Counter[str]] = {}
    for episode in episodes:
        if episode.root is None:
            continue
        for agent, completions in episode.root.samples.items():
            labels = seen.setdefault(agent, Counter())
            labels.update(name(episode.task, agent, completion.text) for completion in completions)
    return {
        agent: {label: count / labels.total() for label, count in labels.most_common()}
        for agent, labels in seen.items()
    }


def said_first(episode: Episode, turn: int) -> dict[str, Reply]:
    """What each agent said at `turn` on an episode's first path."""
    round_ = episode.root
    for _ in range(turn):
        round_ = round_.outcomes[0].next if round_ is not None else None
    if round_ is None:
        raise ConfigError(f"episode {episode.id} ended before turn {turn + 1}: there is nothing to hear from it")
    return {agent: Reply(completions[0].text, completions[0].stop) for agent, completions in round_.samples.items()}
