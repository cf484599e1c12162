"""The recorded completions of a step as rows: prompt, text, tokens, reward and advantage."""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.core import Episode, Round, SampleId, walk

COLUMNS = (
    "episode", "task", "turn", "path", "agent", "index", "policy", "prompt", "text", "stop",
    "tokens", "logprobs", "reward", "advantage",
)  # fmt: skip


def sample_rows(
    episodes: Sequence[Episode], advantages: Mapping[SampleId, float]
) -> list[dict[str, Any]]:
    """Return one row per completion, with the keys `COLUMNS`.

    `turn` counts from 0. `path` are the joint actions that led to the Round. `reward` is the mean
    reward of the agent at this turn, over the joint actions with this completion that did not fail;
    None if all of them failed. `advantage` is None without one.
    """
    rows = []
    for episode in episodes:
        if episode.root is None:
            continue
        for path, played in walk(episode.root):
            for agent, samples in played.samples.items():
                for index, sample in enumerate(samples):
                    rows.append(
                        {
                            "episode": episode.id,
                            "task": episode.task.id,
                            "turn": played.turn,
                            "path": path,
                            "agent": agent,
                            "index": index,
                            "policy": sample.policy,
                            "prompt": played.prompts[agent],
                            "text": sample.text,
                            "stop": sample.stop,
                            "tokens": sample.tokens,
                            "logprobs": sample.logprobs,
                            "reward": _reward(played, agent, index),
                            "advantage": advantages.get(SampleId(episode.id, path, agent, index)),
                        }
                    )
    return rows


def _reward(played: Round, agent: str, index: int) -> float | None:
    found = [
        outcome.rewards[agent]
        for outcome in played.outcomes
        if outcome.fault is None and outcome.picks.get(agent) == index
    ]
    return sum(found) / len(found) if found else None
