"""The most interesting episodes of a run.

They are the best, the worst, and the one whose joint actions had the most different rewards.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.core import Episode, Message, Outcome, Prompt, Round, walk
from motet.rollout.summary import episode_stats


class Highlights:
    """Receives every episode of a run once and keeps three of them as plain JSON."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._kept: dict[str, Any] = dict(state or {})

    def see(self, step: int, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            reward = episode_stats(episode).reward
            if episode.root is None or reward is None:
                continue
            spread = _spread(episode.root)
            self._offer("best", reward, step, episode, reward, spread)
            self._offer("worst", -reward, step, episode, reward, spread)
            self._offer("most_divergent", spread, step, episode, reward, spread)

    def state(self) -> dict[str, Any]:
        return dict(self._kept)

    def _offer(
        self, title: str, rank: float, step: int, episode: Episode, reward: float, spread: float
    ) -> None:
        if title in self._kept and rank <= self._kept[title]["rank"]:
            return
        assert episode.root is not None
        self._kept[title] = {
            "rank": rank,
            "step": step,
            "id": episode.id,
            "reward": reward,
            "spread": spread,
            "turns": _transcript(episode.root, title),
        }


def _spread(root: Round) -> float:
    """Return the largest difference of mean rewards between joint actions of one Round."""
    spreads = [0.0]
    for _, round_ in walk(root):
        means = [
            sum(o.rewards.values()) / len(o.rewards) for o in round_.outcomes if o.fault is None
        ]
        spreads.append(max(means) - min(means) if means else 0.0)
    return max(spreads)


def _worth(outcome: Outcome) -> float:
    """Return the mean reward of a joint action and of everything after it."""
    own = sum(outcome.rewards.values()) / len(outcome.rewards)
    if outcome.next is None:
        return own
    below = [_worth(child) for child in outcome.next.outcomes if child.fault is None]
    return own + sum(below) / len(below)


def _transcript(root: Round, title: str) -> list[dict[str, Any]]:
    """Return one path of the tree. For "worst" it takes the worst joint actions, else the best."""
    turns: list[dict[str, Any]] = []
    round_: Round | None = root
    while round_ is not None:
        valid = [outcome for outcome in round_.outcomes if outcome.fault is None]
        ranked = sorted(valid, key=_worth)
        chosen = ranked[0] if title == "worst" else ranked[-1]
        turns.append(
            {
                "prompts": {agent: shown(prompt) for agent, prompt in round_.prompts.items()},
                "texts": {
                    agent: round_.samples[agent][pick].text for agent, pick in chosen.picks.items()
                },
                "rewards": dict(chosen.rewards),
                "terms": dict(chosen.terms),
            }
        )
        round_ = chosen.next
    return turns


def last_completions(episodes: Sequence[Episode]) -> dict[str, str]:
    """Return agent -> its last completion on the first path of the last episode that was played."""
    texts: dict[str, str] = {}
    played = [episode.root for episode in episodes if episode.root is not None]
    round_ = played[-1] if played else None
    while round_ is not None:
        first = round_.outcomes[0]
        texts |= {agent: round_.samples[agent][pick].text for agent, pick in first.picks.items()}
        round_ = first.next
    return texts


def shown(prompt: Prompt) -> str:
    """Return a prompt as readable text."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{_speaker(message)}: {message.content}" for message in prompt)


def _speaker(message: Message) -> str:
    return f"{message.role} ({message.name})" if message.name else message.role
