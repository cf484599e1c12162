"""Collaborative writing: two agents each write one part of a text without seeing the other part.

tldr: `summary` sums up a post in one or two sentences, `detail` retells it at length.
arxiv: `background` and `method` expand an abstract into an introduction.
rewards/writing.py scores the pair of texts. An episode has exactly one turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.errors import ConfigError
from motet.settings import Settings
from motet.user_code.plugins import nearest
from motet_tasks.rewards.spoken import spoken
from motet_tasks.rewards.writing import LENGTH, RUBRICS, STRUCTURE, VOCABULARY, judge
from motet_tasks.scaling import Scaling

SPLIT = "[PARAGRAPH_SPLIT]"
"""The separator that a single agent writes between the two parts."""
WRITER = "writer"
"""The name of the single agent."""


@dataclass(frozen=True)
class TextPart:
    """One of the two parts to write."""

    wish: str
    """The instruction for this part."""
    beside: str
    """What an agent that writes only this part reads about the other part."""


@dataclass(frozen=True)
class WritingTask:
    """One of the two kinds of tasks: the field of a row that holds the text, and the two parts."""

    field: str
    given: str
    """What the text is, as the prompt says it."""
    parts: Mapping[str, TextPart]
    """Agent -> its part, in the order of the text."""
    fit: str
    """How the parts relate. Only an agent that writes both parts reads this."""


KINDS: Mapping[str, WritingTask] = MappingProxyType(
    {
        "tldr": WritingTask(
            field="prompt",
            given="a post",
            parts={
                "summary": TextPart(
                    "Sum it up in one or two plain sentences, and keep to what it says.",
                    "Somebody else retells it in detail; yours is the short version.",
                ),
                "detail": TextPart(
                    "Retell it in detail. Vary your words, and lead from one thought to the next "
                    "with transition words.",
                    "Somebody else writes a summary of one or two sentences; yours should be two "
                    "to three times as long.",
                ),
            },
            fit=(
                "The second should be two to three times as long as the first, with at least "
                "twice as many different words."
            ),
        ),
        "arxiv": WritingTask(
            field="abstract_text",
            given="the abstract of a paper",
            parts={
                "background": TextPart(
                    (
                        "Write the background and motivation for its introduction, "
                        "in 130 to 160 words."
                    ),
                    "Somebody else writes about method and implications: leave those out.",
                ),
                "method": TextPart(
                    (
                        "Write about method and implications for its introduction, "
                        "in 180 to 220 words."
                    ),
                    "Somebody else writes the background and motivation: leave those out.",
                ),
            },
            fit=(
                "Use transition words of many kinds, and about as many different words in the "
                "second as in the first."
            ),
        ),
    }
)


@dataclass(frozen=True)
class WritingState:
    """The state: the source text. There is only one turn."""

    text: str


class WritingEnvironment(Environment[WritingState]):
    """One turn. All agents get the same reward: the scaled levels of `rewards.writing.judge`."""

    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the writing environment."""

        kind: Literal["tldr", "arxiv"] = "tldr"
        """tldr: a post (field `prompt`, as in trl-lib/tldr).
        arxiv: an abstract (field `abstract_text`)."""
        writers: Literal[1, 2] = 2
        """2: one agent per part. 1: one agent, `writer`, writes both parts with
        [PARAGRAPH_SPLIT] between them."""
        style_for_success: float = Field(0.8, ge=0.0, le=0.98)
        """`success` needs full structure, length and vocabulary levels, and at least this style
        level. The maximum style is 0.98. A style of 0.8 requires enough shared words and three
        kinds of transition words."""
        reward: Scaling = Scaling()
        """Maps levels, 0 to 2.98, to rewards."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.kind = KINDS[options.kind]
        self.agents: Sequence[str] = tuple(self.kind.parts) if options.writers == 2 else (WRITER,)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError if the row lacks the field with the text, or the field is empty."""
        name = self.kind.field
        if name not in row:
            raise ConfigError(
                f"a row for writing, kind {self.options.kind}, has no field "
                f"{name!r}{nearest(name, row)}; it has {', '.join(row)}. Set its column in data: "
                f"fields: {{{name}: COLUMN}}"
            )
        text = row[name]
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(
                f"a row for writing has {text!r} as its {name!r}; expected a string that is not "
                "empty"
            )
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()
        return Task(f"{self.options.kind}-{digest}", {name: text})

    def chat_task(self, text: str) -> Task:
        return self.task({self.kind.field: text})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return both parts, in the order of the text."""
        return "\n\n".join(self._parts(texts))

    async def start(self, task: Task, seed: int) -> WritingState:
        return WritingState(task.fields[self.kind.field])

    def observe(self, state: WritingState) -> Mapping[str, Prompt]:
        given = f"Here is {self.kind.given}.\n\n{state.text.strip()}\n\n"
        return {agent: (Message("user", given + asked),) for agent, asked in self._asked().items()}

    async def step(
        self, state: WritingState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        parts = self._parts({agent: reply.text for agent, reply in replies.items()})
        levels, terms = judge(RUBRICS[self.options.kind], *parts)
        full = (
            terms["structure"] + terms["length"] + terms["vocabulary"]
            == STRUCTURE + LENGTH + VOCABULARY
        )
        success = float(full and terms["style"] >= self.options.style_for_success)
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(levels))
        metrics = {**terms, "levels": levels, "success": success}
        return Transition(state, rewards, done=True, metrics=metrics, success=success)

    def alone(self) -> Self:
        """Return the same task for one agent that writes both parts."""
        return type(self)(self.options.model_copy(update={"writers": 1}))

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return both parts in lower case and with single spaces, for a vote.

        None if one part is empty.
        """
        parts = [" ".join(part.lower().split()) for part in self._parts(texts)]
        return "\n".join(parts) if all(parts) else None

    def _asked(self) -> dict[str, str]:
        if self.options.writers == 2:
            return {agent: f"{part.wish} {part.beside}" for agent, part in self.kind.parts.items()}
        first, second = self.kind.parts.values()
        mark = f"Put {SPLIT} between the two, and no headings."
        return {
            WRITER: (
                f"Write two paragraphs.\nThe first: {first.wish}\n"
                f"The second: {second.wish}\n{self.kind.fit} {mark}"
            )
        }

    def _parts(self, texts: Mapping[str, str]) -> tuple[str, str]:
        """Return both parts. Without [PARAGRAPH_SPLIT], a single agent's second part is empty."""
        if self.options.writers == 1:
            first, _, second = spoken(texts[WRITER]).partition(SPLIT)
            return first.strip(), second.strip()
        first, second = (spoken(texts[agent]).strip() for agent in self.kind.parts)
        return first, second
