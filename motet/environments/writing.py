"""Writing together: two agents each write one part of a text, neither sees the other's, and the parts must fit.

tldr: `summary` says a post in a sentence or two, `detail` tells it at length. arxiv: `background` and `method` make an abstract
into an introduction. rewards/writing.py says what a pair of texts is worth. Strictly one turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field

from motet.core import Message, Prompt, Reply, Task, Transition
from motet.environments.scaling import Scaling
from motet.errors import ConfigError
from motet.plugins import nearest
from motet.rewards.spoken import spoken
from motet.rewards.writing import LENGTH, RUBRICS, STRUCTURE, VOCABULARY, judge
from motet.settings import Settings

SPLIT = "[PARAGRAPH_SPLIT]"
"""What a single agent puts between the two parts."""
WRITER = "writer"
"""The single agent."""


@dataclass(frozen=True)
class Part:
    """One part of the text."""

    wish: str
    """What whoever writes it is asked."""
    beside: str
    """What an agent that writes only this part is told about the other."""


@dataclass(frozen=True)
class Kind:
    """One of the two tasks: where its text stands in a row, and the two parts that are asked for."""

    field: str
    given: str
    """What the text is, as a prompt says it."""
    parts: Mapping[str, Part]
    """Agent -> its part; the first part first."""
    fit: str
    """How the parts relate, for an agent that writes both."""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "tldr": Kind(
            field="prompt",
            given="a post",
            parts={
                "summary": Part(
                    "Sum it up in one or two plain sentences, and keep to what it says.",
                    "Somebody else retells it in detail; yours is the short version.",
                ),
                "detail": Part(
                    "Retell it in detail. Vary your words, and lead from one thought to the next with transition words.",
                    "Somebody else writes a summary of one or two sentences; yours should be two to three times as long.",
                ),
            },
            fit="The second should be two to three times as long as the first, with at least twice as many different words.",
        ),
        "arxiv": Kind(
            field="abstract_text",
            given="the abstract of a paper",
            parts={
                "background": Part(
                    "Write the background and motivation for its introduction, in 130 to 160 words.",
                    "Somebody else writes about method and implications: leave those out.",
                ),
                "method": Part(
                    "Write about method and implications for its introduction, in 180 to 220 words.",
                    "Somebody else writes the background and motivation: leave those out.",
                ),
            },
            fit="Use transition words of many kinds, and about as many different words in the second as in the first.",
        ),
    }
)


@dataclass(frozen=True)
class Source:
    """The state: the text that is written about. There is only one turn."""

    text: str


class Writing:
    """One turn. The reward, alike for all agents: the levels of `rewards.writing.judge`, scaled."""

    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the writing environment."""

        kind: Literal["tldr", "arxiv"] = "tldr"
        """tldr: a post (field `prompt`, as in trl-lib/tldr). arxiv: an abstract (field `abstract_text`)."""
        writers: Literal[1, 2] = 2
        """2: an agent per part. 1: one agent, `writer`, writes both with [PARAGRAPH_SPLIT] between them."""
        style_for_success: float = Field(0.8, ge=0.0, le=0.98)
        """`success` is structure, length and vocabulary in full, and at least this much of style, of which there is 0.98 at most:
        0.8 takes enough shared words and three kinds of transition words."""
        reward: Scaling = Scaling()
        """How levels, 0 to 2.98, become rewards."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.kind = KINDS[options.kind]
        self.agents: Sequence[str] = tuple(self.kind.parts) if options.writers == 2 else (WRITER,)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError for a row without the kind's text."""
        name = self.kind.field
        if name not in row:
            raise ConfigError(
                f"a row for writing, kind {self.options.kind}, has no field {name!r}{nearest(name, row)}; it has "
                f"{', '.join(row)}. Name its column in data: fields: {{{name}: COLUMN}}"
            )
        text = row[name]
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"a row for writing has {text!r} as its {name!r}; expected a text")
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()
        return Task(f"{self.options.kind}-{digest}", {name: text})

    async def start(self, task: Task, seed: int) -> Source:
        return Source(task.fields[self.kind.field])

    def observe(self, state: Source) -> Mapping[str, Prompt]:
        given = f"Here is {self.kind.given}.\n\n{state.text.strip()}\n\n"
        return {agent: (Message("user", given + asked),) for agent, asked in self._asked().items()}

    async def step(self, state: Source, replies: Mapping[str, Reply], seed: int) -> Transition:
        parts = self._parts({agent: reply.text for agent, reply in replies.items()})
        levels, terms = judge(RUBRICS[self.options.kind], *parts)
        full = terms["structure"] + terms["length"] + terms["vocabulary"] == STRUCTURE + LENGTH + VOCABULARY
        success = float(full and terms["style"] >= self.options.style_for_success)
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(levels))
        return Transition(state, rewards, done=True, terms={**terms, "levels": levels, "success": success})

    async def close(self, state: Source) -> None:
        """Nothing is held."""

    def alone(self) -> Self:
        """The same task for one agent that writes both parts."""
        return type(self)(self.options.model_copy(update={"writers": 1}))

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """What a vote compares: both parts, whatever their letters' case and the space between words; None where one is empty."""
        parts = [" ".join(part.lower().split()) for part in self._parts(texts)]
        return "\n".join(parts) if all(parts) else None

    def _asked(self) -> dict[str, str]:
        if self.options.writers == 2:
            return {agent: f"{part.wish} {part.beside}" for agent, part in self.kind.parts.items()}
        first, second = self.kind.parts.values()
        mark = f"Put {SPLIT} between the two, and no headings."
        return {
            WRITER: f"Write two paragraphs.\nThe first: {first.wish}\nThe second: {second.wish}\n{self.kind.fit} {mark}"
        }

    def _parts(self, texts: Mapping[str, str]) -> tuple[str, str]:
        """The two parts as they are judged. Without the mark a single agent's second part is empty."""
        if self.options.writers == 1:
            first, _, second = spoken(texts[WRITER]).partition(SPLIT)
            return first.strip(), second.strip()
        first, second = (spoken(texts[agent]).strip() for agent in self.kind.parts)
        return first, second
