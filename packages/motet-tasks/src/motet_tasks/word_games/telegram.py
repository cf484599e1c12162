"""Telegrams: two agents find each other's word, in a few words.

`anna` and `ben` have a secret word each. Both write a telegram about their own word, which is
blanked out, and read the other's. Then each names up to three words that the other's may be. A
telegram is cut after a few words, so what is worth a word is for the team to find: "A grapefruit is
a kind of fruit that" says less than "large sour yellow citrus fruit, eaten at breakfast".
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
from motet_tasks.word_games.taboo import blanked, forms, guesses_of
from motet_tasks.word_games.words import words_of_splits

ANNA, BEN = "anna", "ben"
TRAINED = 2000
"""So many pairs are drawn for the split train; a few are drawn twice and are one task. The other
splits have each word once for each agent."""


@dataclass(frozen=True)
class Secrets:
    """The state: agent -> its word, and agent -> its telegram once both are written."""

    words: Mapping[str, str]
    telegrams: Mapping[str, str] | None = None


class Telegram(Environment[Secrets]):
    """Two turns: both write, then both guess.

    Both agents get the same reward, at the end only: the share of them that is right. Success is
    that both are.
    """

    agents: Sequence[str] = (ANNA, BEN)
    branches = True
    most_turns = 2
    rewards_at_end = True

    class Options(Settings):
        """Options of the telegram environment."""

        telegram_length: int = Field(8, ge=1, le=40)
        """Words of a telegram: it is cut after them."""
        guesses: int = Field(3, ge=1, le=10)
        """So many different words of an answer count as guesses."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tasks(self, split: str) -> list[Task]:
        """Return pairs of words of a split (`words_of_splits`), always the same."""
        parts = {
            name: _pairs(name, [word for word, _ in words])
            for name, words in words_of_splits().items()
        }
        return part_of("telegram", parts, split)

    async def start(self, task: Task, seed: int) -> Secrets:
        return Secrets({agent: task.fields[agent] for agent in self.agents})

    def observe(self, state: Secrets) -> Mapping[str, Prompt]:
        if state.telegrams is None:
            limit = self.options.telegram_length
            return {
                agent: _asked(f"What is a {word}? Answer in {limit} word{'s' * (limit > 1)}.")
                for agent, word in state.words.items()
            }
        most = self.options.guesses
        words = "one word" if most == 1 else f"up to {most} words"
        # What all prompts begin with is read once, so the telegram comes last.
        return {
            agent: _asked(f"What is it? Guess {words}.\n{state.telegrams[other]}")
            for agent, other in ((ANNA, BEN), (BEN, ANNA))
        }

    async def step(self, state: Secrets, replies: Mapping[str, Reply], seed: int) -> Transition:
        if state.telegrams is None:
            telegrams, figures = {}, {}
            for agent, word in state.words.items():
                said = telegram(replies[agent].text, self.options.telegram_length)
                telegrams[agent] = blanked(said, word)
                figures[f"leaked/{agent}"] = float(telegrams[agent] != said)
            nothing = dict.fromkeys(self.agents, 0.0)
            return Transition(replace(state, telegrams=telegrams), nothing, False, figures)
        right = {}
        for agent, other in ((ANNA, BEN), (BEN, ANNA)):
            guesses = guesses_of(replies[agent].text)[: self.options.guesses]
            right[agent] = float(not forms(state.words[other]).isdisjoint(guesses))
        reward = sum(right.values()) / len(right)
        return Transition(
            state,
            dict.fromkeys(self.agents, reward),
            True,
            {f"found/{agent}": value for agent, value in right.items()},
            success=float(reward == 1.0),
        )

    # ------------------------------------------------------------ chat

    def chat_task(self, text: str) -> Task:
        """Read two words: Anna's and Ben's."""
        words = re.findall(r"[a-z]+", text.lower())
        if len(words) != 2 or words[0] == words[1]:
            raise ConfigError(
                f"got {shortened(text)!r}; expected two different English words, such as tiger "
                "piano: one is Anna's, the other Ben's"
            )
        return _task(*words)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return what each agent guesses of the other one's word."""
        return "\n".join(f"{agent}: {texts.get(agent, '').strip()}" for agent in self.agents)


def _pairs(split: str, words: Sequence[str]) -> list[Task]:
    draw = random.Random(split)
    if split == "train":
        return list(
            {
                one.id: one for one in (_task(*draw.sample(words, 2)) for _ in range(TRAINED))
            }.values()
        )
    mixed = draw.sample(words, len(words))
    return [_task(word, other) for word, other in zip(mixed, [*mixed[1:], mixed[0]], strict=True)]


def _task(anna: str, ben: str) -> Task:
    return Task(f"{anna} {ben}", {ANNA: anna, BEN: ben})


def _asked(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def telegram(text: str, length: int) -> str:
    """Return the first line of a text, cut after so many words."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    ends = [found.end() for found in re.finditer(r"[^\W\d_]+(?:['’][^\W\d_]+)*", line)]
    return line if len(ends) <= length else line[: ends[length - 1]]
