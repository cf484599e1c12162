"""Taboo in plain English: `describer` reads a word and describes it, `guesser` guesses it.

The word and its forms are blanked out of the description, so saying the word does not help. Both
agents are rewarded if the guess is right. Any instruction-tuned language model can play it without
demonstrations, and anybody can read what the agents say.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings
from motet_tasks.word_games.words import words_of_splits

DESCRIBER, GUESSER = "describer", "guesser"
BLANK = "___"
ENDINGS = ("s", "es", "'s", "ed", "d", "ing", "er", "ers", "y")
FILLERS = frozenset(
    {
        "a", "an", "the", "it", "its", "it's", "is", "this", "that", "i", "i'm", "think", "guess",
        "answer", "word", "be", "would", "of", "sure", "okay", "my", "probably", "maybe", "you",
        "are", "describing", "they", "called", "known", "as", "or", "and",
    }
)  # fmt: skip
"""Words of an answer that are no guess."""


@dataclass(frozen=True)
class Clue:
    """The state: the word, and its description without the word once there is one."""

    word: str
    text: str | None = None


class Taboo(Environment[Clue]):
    """Two turns. Both agents get the same reward, at the end only: 1 if a guess is right."""

    agents: Sequence[str] = (DESCRIBER, GUESSER)
    branches = True
    most_turns = 2
    rewards_at_end = True

    class Options(Settings):
        """Options of the Taboo environment."""

        leak_penalty: float = Field(0.0, ge=0.0, le=1.0)
        """Subtracted from the reward if the description says the word."""
        guesses: int = Field(3, ge=1, le=10)
        """So many different words of the answer count as guesses."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tasks(self, split: str) -> list[Task]:
        """Return the words of a split (`words_of_splits`)."""
        parts = {
            name: [Task(word, {"group": group}) for word, group in words]
            for name, words in words_of_splits().items()
        }
        return part_of("taboo", parts, split)

    async def start(self, task: Task, seed: int) -> Clue:
        return Clue(task.id)

    def observe(self, state: Clue) -> Mapping[str, Prompt]:
        if state.text is None:
            asked = f"What is a {state.word}? Answer in one short sentence."
            return {DESCRIBER: (Message("user", asked),)}
        most = self.options.guesses
        words = "one word" if most == 1 else f"up to {most} words"
        # What all prompts begin with is read once, so the description comes last.
        asked = f"What is it? Guess {words}.\n{state.text}"
        return {GUESSER: (Message("user", asked),)}

    async def step(self, state: Clue, replies: Mapping[str, Reply], seed: int) -> Transition:
        if state.text is None:
            said = replies[DESCRIBER].text.strip()
            clue = blanked(said, state.word)
            figures = {"leaked": float(clue != said), "clue_words": float(len(said.split()))}
            return Transition(
                Clue(state.word, clue), dict.fromkeys(self.agents, 0.0), False, figures
            )
        guesses = guesses_of(replies[GUESSER].text)[: self.options.guesses]
        right = float(not forms(state.word).isdisjoint(guesses))
        reward = right - self.options.leak_penalty * (BLANK in state.text)
        return Transition(
            state,
            dict.fromkeys(self.agents, reward),
            True,
            {"guesses": float(len(guesses))},
            success=right,
        )

    # ------------------------------------------------------------ chat

    def chat_task(self, text: str) -> Task:
        """Read a word that the team plays."""
        words = re.findall(r"[a-z]+", text.lower())
        if len(words) != 1:
            raise ConfigError(
                f"got {shortened(text)!r}; expected one English word, such as elephant: one agent "
                "describes it, the other guesses"
            )
        return Task(words[0], {})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the description as the guesser read it, and the guess."""
        clue = blanked(texts.get(DESCRIBER, "").strip(), task.id)
        return f"{clue}\n→ {texts.get(GUESSER, '').strip()}"


def forms(word: str) -> set[str]:
    """Return a word and its inflections, in lower case."""
    stems = {word, word.removesuffix("e"), word + word[-1]}
    if word.endswith("y"):
        stems.add(word[:-1] + "i")
    if word.endswith("fe") or word.endswith("f"):
        stems.add(word.removesuffix("e")[:-1] + "ve")
    return {word} | {stem + ending for stem in stems for ending in ENDINGS}


def blanked(text: str, word: str) -> str:
    """Return `text` with a blank for the word, its inflections, its compounds and its parts.

    A compound has the word in it (waterfall for water); a part begins it and is at least half of it
    (butter for butterfly). Words and parts of fewer than four letters count only alone.
    """
    inflections = forms(word)

    def cover(found: re.Match[str]) -> str:
        token = found[0].lower()
        compound = len(word) > 3 and word in token
        part = 3 < len(token) >= len(word) / 2 and word.startswith(token)
        return BLANK if token in inflections or compound or part else found[0]

    return re.sub(r"[^\W\d_]+(?:'s\b)?", cover, text)


def guesses_of(text: str) -> list[str]:
    """Return the different words that say something, in their order: elephant, or mouse of "It's an
    elephant. Or is it a mouse?"."""
    words = re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower().replace("’", "'"))
    return list(dict.fromkeys(word for word in words if word not in FILLERS))
