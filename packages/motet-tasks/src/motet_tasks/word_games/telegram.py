"""Telegrams: two agents find the word that both have, in a few words.

`anna` and `ben` have a list of words each, and one word is in both lists. Anna writes a telegram,
Ben answers with one, and then each of them names the common word. A telegram is cut after a few
words, by default fewer than a list has. So the first must choose what to send, the second must find
what is in both, and both must read what the other means. Nothing says how: that is for the team to
find.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings
from motet_tasks.word_games.taboo import forms, guesses_of
from motet_tasks.word_games.words import words_of_splits

ANNA, BEN = "anna", "ben"
TRAINED, HELD_OUT = 2000, 64
"""Tasks of the split train, and of each other."""


@dataclass(frozen=True)
class Lists:
    """The state: the list of each agent, the common word, and the telegrams so far."""

    lists: Mapping[str, tuple[str, ...]]
    common: str
    telegrams: tuple[str, ...] = ()


class Telegram(Environment[Lists]):
    """Three turns: anna writes, ben writes, both name the common word.

    Both agents get the same rewards: at the end the share of them that is right. A small model
    writes about anything else at first, so there is more for words of the own list: for each
    telegram `listed_reward` times the share of it that they are, and at the end `listed_reward`
    times the share of the agents that name one. Success is that both are right.
    """

    agents: Sequence[str] = (ANNA, BEN)
    branches = True
    most_turns = 3

    class Options(Settings):
        """Options of the telegram environment."""

        list_length: int = Field(6, ge=2, le=20)
        """Words of each list."""
        telegram_length: int = Field(4, ge=1, le=20)
        """Words of a telegram: it is cut after them."""
        listed_reward: float = Field(0.2, ge=0.0, le=1.0)
        """Reward of a telegram that consists of words of its writer's list, and of an end at which
    both agents name such a word."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tasks(self, split: str) -> list[Task]:
        """Return pairs of lists of the words of a split (`words_of_splits`), always the same."""
        parts = {
            name: self._drawn(name, [word for word, _ in words])
            for name, words in words_of_splits().items()
        }
        return part_of("telegram", parts, split)

    def _drawn(self, split: str, words: Sequence[str]) -> list[Task]:
        draw, length = random.Random(split), self.options.list_length
        tasks: dict[str, Task] = {}
        for _ in range(TRAINED if split == "train" else HELD_OUT):
            common, *others = draw.sample(words, 2 * length - 1)
            lists = {ANNA: [common, *others[: length - 1]], BEN: [common, *others[length - 1 :]]}
            for own in lists.values():
                draw.shuffle(own)
            task = Task("/".join(" ".join(own) for own in lists.values()), lists)
            tasks[task.id] = task
        return list(tasks.values())

    async def start(self, task: Task, seed: int) -> Lists:
        lists = {agent: tuple(task.fields[agent]) for agent in self.agents}
        (common,) = set(lists[ANNA]) & set(lists[BEN])
        return Lists(lists, common)

    def observe(self, state: Lists) -> Mapping[str, Prompt]:
        first_asked = self._asked("Ben", state.lists[ANNA])
        if not state.telegrams:
            return {ANNA: (first_asked,)}
        first = state.telegrams[0]
        second_asked = self._asked("Anna", state.lists[BEN], f"Anna's words: {first}\n")
        if len(state.telegrams) == 1:
            return {BEN: (second_asked,)}
        second = state.telegrams[1]
        return {
            ANNA: (first_asked, Message("assistant", first), _question("Ben", second)),
            BEN: (second_asked, Message("assistant", second), _question("Anna", first)),
        }

    def _asked(self, other: str, own: Sequence[str], read: str = "") -> Message:
        limit = self.options.telegram_length
        return Message(
            "user",
            f"You and {other} look for the word that is on both of your lists.\n{read}"
            f"List: {', '.join(own)}\nCopy {limit} word{'s' * (limit > 1)} of the list.",
        )

    async def step(self, state: Lists, replies: Mapping[str, Reply], seed: int) -> Transition:
        if len(state.telegrams) < 2:
            (writer,) = replies
            text = telegram(replies[writer].text, self.options.telegram_length)
            said = re.findall(r"[a-z]+", text.lower())
            figures = {
                f"words/{writer}": float(len(said)),
                f"listed/{writer}": float(len(set(said) & set(state.lists[writer]))),
            }
            share = min(1.0, figures[f"listed/{writer}"] / self.options.telegram_length)
            paid = self.options.listed_reward * share
            return Transition(
                replace(state, telegrams=(*state.telegrams, text)),
                dict.fromkeys(self.agents, paid),
                False,
                figures,
            )
        words = [*state.lists[ANNA], *state.lists[BEN]]
        chosen = {agent: named(replies[agent].text, words) for agent in self.agents}
        right = {agent: float(word in forms(state.common)) for agent, word in chosen.items()}
        listed = {agent: float(word in state.lists[agent]) for agent, word in chosen.items()}
        paid = sum(right.values()) + self.options.listed_reward * sum(listed.values())
        return Transition(
            state,
            dict.fromkeys(self.agents, paid / len(self.agents)),
            True,
            {f"named/{agent}": value for agent, value in right.items()}
            | {f"own/{agent}": value for agent, value in listed.items()},
            success=float(all(right.values())),
        )

    # ------------------------------------------------------------ chat

    def chat_task(self, text: str) -> Task:
        """Read two lists of words, with a slash between them."""
        lists = [re.findall(r"[a-z]+", part) for part in text.lower().split("/")]
        if len(lists) != 2 or len(set(lists[0]) & set(lists[1])) != 1:
            raise ConfigError(
                f"got {shortened(text)!r}; expected two lists of words with one word in common, "
                "such as tiger bread piano / moon piano shoe"
            )
        return Task("/".join(map(" ".join, lists)), dict(zip(self.agents, lists, strict=True)))

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the words that the agents named."""
        return "\n".join(f"{agent}: {texts.get(agent, '').strip()}" for agent in self.agents)


def _question(other: str, telegram: str) -> Message:
    """Return the last question, about the telegram of the other one."""
    return Message(
        "user",
        f"{other}'s words: {telegram}\nCopy the word of {other} that is on the list, and nothing "
        "else.",
    )


def named(text: str, words: Sequence[str]) -> str | None:
    """Return the word that an answer names: the only one of both lists that is in it, else the
    first one that says something. So an answer with several words of the lists names none of them
    but the first."""
    said = guesses_of(text)
    listed = list(dict.fromkeys(word for word in words if not forms(word).isdisjoint(said)))
    return listed[0] if len(listed) == 1 else next(iter(said), None)


def telegram(text: str, length: int) -> str:
    """Return the first line of a text, cut after so many words."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    ends = [found.end() for found in re.finditer(r"[^\W\d_]+(?:['’][^\W\d_]+)*", line)]
    return line if len(ends) <= length else line[: ends[length - 1]]
