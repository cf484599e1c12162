"""Metrics of a training step or an evaluation. Metrics without a value are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from motet.core import Episode
from motet.evaluation.influence import influence
from motet.rollout.summary import EndpointUse, Summary, by_environment, tool_use
from motet.trainer.loop import TrainStep

PLAYED = (
    "reward",
    "final_reward",
    "success",
    "turns",
    "gold_correlation",
    "completion_length",
    "truncated",
    "duplicates",
)


def played(summary: Summary) -> dict[str, float]:
    """Return the figures of a summary under `play/`."""
    figures = {
        f"play/{name}": value for name in PLAYED if (value := getattr(summary, name)) is not None
    }
    terms = {f"play/terms/{name}": value for name, value in summary.terms.items()}
    figures |= {f"play/reward/{agent}": value for agent, value in summary.agent_rewards.items()}
    counts = {"play/tokens": summary.tokens, "play/faults": summary.faults}
    return {**figures, **terms, **counts, **_bill(summary.endpoints or {})}


def _bill(use: Mapping[str, EndpointUse]) -> dict[str, float]:
    """Return what policies behind endpoints cost, like `play/endpoint_answers/POLICY`."""
    return {
        f"play/endpoint_{name}/{policy}": value
        for policy, one in use.items()
        for name, value in asdict(one).items()
        if value is not None
    }


def called(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the counts of tool calls. Empty if no agent has tools."""
    figures: dict[str, float] = {}
    for agent, counts in tool_use(episodes).items():
        for name, count in (("tool_calls", counts.calls), ("tool_errors", counts.errors)):
            figures[f"play/{name}/{agent}"] = count
            figures[f"play/{name}"] = figures.get(f"play/{name}", 0) + count
    return figures


def mixed(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the figures of each environment of a mixture. Empty outside mixtures."""
    return {
        f"play/environment/{name}/{figure}": value
        for name, found in by_environment(episodes).items()
        for figure, value in asdict(found).items()
        if value is not None
    }


def debated(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the figures of a debate, with turns counted from 1. Empty outside debates.

    The figures of a pair are named like `play/persuaded/SPEAKER/LISTENER`.
    """
    found = influence(episodes)
    if found is None:
        return {}
    figures: dict[str, float | None] = {}
    for turn, changes in enumerate(found.turns, start=1):
        figures |= {
            f"accuracy/turn{turn}": changes.mean,
            f"majority_accuracy/turn{turn}": changes.majority,
        }
        figures |= {f"accuracy/turn{turn}/{agent}": share for agent, share in changes.right.items()}
        figures |= {
            f"turn_reward/turn{turn}/{agent}": reward for agent, reward in changes.rewards.items()
        }
    if found.overall is not None:
        figures |= asdict(found.overall)
    for pair in found.pairs:
        pair_name = f"{pair.speaker}/{pair.listener}"
        figures |= {
            f"persuaded/{pair_name}": pair.persuaded,
            f"misled/{pair_name}": pair.misled,
        }
    return {f"play/{name}": value for name, value in figures.items() if value is not None}


def of_step(step: TrainStep) -> dict[str, float]:
    """Return all metrics of a training step. Wall-clock metrics are under `time/`."""
    spoken = {**mixed(step.episodes), **called(step.episodes), **debated(step.episodes)}
    return {**played(step.summary), **spoken, **step.metrics, **_timed(step)}


def of_evaluation(summary: Summary, episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the metrics of an evaluation under `evaluate/`."""
    figures = {**played(summary), **mixed(episodes), **called(episodes), **debated(episodes)}
    return {name.replace("play/", "evaluate/", 1): value for name, value in figures.items()}


def shown(summary: Summary) -> dict[str, float]:
    """Return the metrics of a step that the progress display shows."""
    return {
        name: value
        for name in ("reward", "success")
        if (value := getattr(summary, name)) is not None
    }


def _timed(step: TrainStep) -> dict[str, float]:
    seconds = {f"time/{stage}": value for stage, value in step.seconds.items()}
    return {**seconds, "time/tokens_per_second": step.summary.tokens / max(step.took, 1e-9)}
