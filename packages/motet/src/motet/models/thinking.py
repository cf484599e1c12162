"""What an agent thinks before it answers: told from its answer, and ended at its budget.

A completion thinks if its prompt ends with the start tag, as many chat templates write it, or if it
begins with this tag itself. What follows the end tag is its answer. Tags may be special tokens,
ordinary text, or both, as in `<|channel|>final<|message|>`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.models.bounded_text import token_ids
from motet.settings import Thinking

THINKING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""The names by which chat templates know what a message of the assistant thought."""
_HEADER = 8
"""Least characters of the end of a prompt that an end tag repeats."""
_LAST = 64
"""Tokens at the end of a prompt in which its start tag is looked for."""


def begins_to_think(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int], thinking: Thinking
) -> bool:
    """Return whether a prompt ends with the start tag."""
    return with_special(tokenizer, prompt[-_LAST:]).rstrip().endswith(thinking.start.rstrip())


def answers_with(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int], thinking: Thinking
) -> str:
    """Return what a completion begins with that answers at once; empty if that is its answer.

    An end tag may repeat the end of the prompt: `<|start|>assistant` of a channel for the answer,
    `<|end|><|start|>assistant<|channel|>final<|message|>`. What follows it begins such an answer.
    """
    tail, end = with_special(tokenizer, prompt[-_LAST:]).rstrip(), thinking.end
    for size in range(min(len(tail), len(end) - 1), _HEADER - 1, -1):
        _, found, rest = end.partition(tail[-size:])
        if found and rest:
            return rest.lstrip()
    return ""


def with_special(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """Return the text of tokens with the special ones among them."""
    return str(tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False))


@dataclass(frozen=True)
class Thought:
    """A completion in two parts."""

    thinking: str
    """Without its tags."""
    answer_from: int
    """The number of the first token of the answer; that of all tokens if there is no answer."""
    begun: str = ""
    """What the token before it already said of the answer."""


def thought_of(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[int],
    tokens: Sequence[int],
    thinking: Thinking,
) -> Thought:
    """Return where a completion of a prompt ends its thinking.

    Without an end tag, all of it is thinking if it began to think, and else all is its answer.
    """
    whole = with_special(tokenizer, tokens)
    begins = begins_to_think(tokenizer, prompt, thinking)
    at_once = "" if begins else answers_with(tokenizer, prompt, thinking)
    end = at_once if at_once and whole.lstrip().startswith(at_once) else thinking.end
    thought, found, _ = whole.partition(end)
    opened = thought.lstrip().startswith(thinking.start.rstrip())
    said = thought.lstrip().removeprefix(thinking.start.rstrip()).strip()
    if not found:
        thinks = begins or opened
        return Thought(said, len(tokens)) if thinks else Thought("", 0)
    low, high = 0, len(tokens)
    while high - low > 1:
        middle = (low + high) // 2
        if end in with_special(tokenizer, tokens[:middle]):
            high = middle
        else:
            low = middle
    return Thought(said, high, with_special(tokenizer, tokens[:high]).partition(end)[2])


def closing_of(tokenizer: PreTrainedTokenizerBase, thinking: Thinking) -> str:
    """Return what is put in at the limit of the thinking."""
    if thinking.closing is not None:
        return thinking.closing
    first = tokenizer.added_tokens_decoder.get(token_ids(tokenizer, thinking.end)[0])
    return thinking.end if first is not None and first.special else f"\n{thinking.end}\n\n"


@dataclass
class Thinker:
    """One completion while it is sampled: whether it thinks, and what must come next."""

    tokenizer: PreTrainedTokenizerBase
    thinking: Thinking
    state: Literal["before", "thinks", "answers"]
    """before: it has not said yet whether it thinks."""
    at_once: str = ""
    """What it begins with if it answers at once; empty if that is its answer."""
    answer_from: int = 0
    forced: tuple[int, int] | None = None
    """As in a Completion."""
    to_come: list[int] = field(default_factory=list)
    """The tokens that are put in next."""

    @classmethod
    def of(
        cls, tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int], thinking: Thinking
    ) -> "Thinker":
        if begins_to_think(tokenizer, prompt, thinking):
            return cls(tokenizer, thinking, "thinks")
        return cls(tokenizer, thinking, "before", answers_with(tokenizer, prompt, thinking))

    def window(self, length: int) -> int:
        """Return how many of its `length` last tokens `read` needs."""
        # A token of a tag is at least one byte.
        return length if self.state == "before" else len(self.thinking.end.encode()) + 1

    def read(self, last: Sequence[int], length: int) -> None:
        """Read a new token.

        Args:
            last: the last tokens: `window` of them or more. The new one is at the end.
            length: how many tokens there are.
        """
        if self.to_come:
            del self.to_come[0]
            if not self.to_come:
                self._answers(length)
            return
        if self.state == "before":
            self._begin(with_special(self.tokenizer, last).lstrip(), length)
        if self.state == "thinks":
            tail = last[-self.window(length) :]
            if self.thinking.end in with_special(self.tokenizer, tail):
                self._answers(length)
            elif self.thinking.max_tokens is not None and length >= self.thinking.max_tokens:
                self.to_come = token_ids(self.tokenizer, closing_of(self.tokenizer, self.thinking))
                self.forced = (length, length + len(self.to_come))

    def _begin(self, text: str, place: int) -> None:
        start = self.thinking.start.rstrip()
        if text.startswith(start):
            self.state = "thinks"
        elif self.at_once and text.startswith(self.at_once):
            self._answers(place)
        elif not start.startswith(text) and not self.at_once.startswith(text):
            self._answers(0)

    def _answers(self, place: int) -> None:
        self.state, self.answer_from = "answers", place
