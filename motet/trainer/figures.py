"""What a step or an evaluation amounts to as metrics; what has no value is left out."""

from collections.abc import Sequence
from dataclasses import asdict

from motet.core import Episode
from motet.rollout.influence import influence
from motet.rollout.summary import Summary
from motet.trainer.loop import Step

PLAYED = ("reward", "final_reward", "success", "turns", "gold_correlation", "length", "cut", "duplicates")


def played(summary: Summary) -> dict[str, float]:
    """Under `play/`."""
    figures = {f"play/{name}": value for name in PLAYED if (value := getattr(summary, name)) is not None}
    terms = {f"play/terms/{name}": value for name, value in summary.terms.items()}
    figures |= {f"play/reward/{agent}": value for agent, value in summary.agent_rewards.items()}
    return {**figures, **terms, "play/tokens": summary.tokens, "play/faults": summary.faults}


def debated(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a debate amounts to, turns counted from 1; nothing outside debates.

    A pair is `play/persuaded/SPEAKER/LISTENER`.
    """
    found = influence(episodes)
    if found is None:
        return {}
    figures: dict[str, float | None] = {}
    for turn, standing in enumerate(found.turns, start=1):
        figures |= {f"right/turn{turn}": standing.mean, f"majority/turn{turn}": standing.majority}
        figures |= {f"right/turn{turn}/{agent}": share for agent, share in standing.right.items()}
        figures |= {f"turn_reward/turn{turn}/{agent}": reward for agent, reward in standing.rewards.items()}
    if found.overall is not None:
        figures |= asdict(found.overall)
    for pair in found.pairs:
        seats = f"{pair.speaker}/{pair.listener}"
        figures |= {f"persuaded/{seats}": pair.persuaded, f"misled/{seats}": pair.misled}
    return {f"play/{name}": value for name, value in figures.items() if value is not None}


def of_step(step: Step) -> dict[str, float]:
    """All of a training step, its clock's figures under `time/`."""
    return {**played(step.summary), **debated(step.episodes), **step.metrics, **_timed(step)}


def of_evaluation(summary: Summary, episodes: Sequence[Episode]) -> dict[str, float]:
    """Under `evaluate/`."""
    figures = {**played(summary), **debated(episodes)}
    return {name.replace("play/", "evaluate/", 1): value for name, value in figures.items()}


def shown(summary: Summary) -> dict[str, float]:
    """What a person who watches sees of a step."""
    return {name: value for name in ("reward", "success") if (value := getattr(summary, name)) is not None}


def _timed(step: Step) -> dict[str, float]:
    seconds = {f"time/{stage}": value for stage, value in step.seconds.items()}
    return {**seconds, "time/tokens_per_second": step.summary.tokens / max(step.took, 1e-9)}
