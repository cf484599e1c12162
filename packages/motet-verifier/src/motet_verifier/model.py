"""A verifier: a model that reads a question and an answer.

After every token it predicts the probability that the answer is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file

from motet.core import Chat
from motet.errors import ConfigError, RewardFault, SamplerFault
from motet.models.backbone import Backbone, Policy
from motet.models.compute import Attention, DType
from motet.models.content import text_ids
from motet.models.critic import Critic
from motet.models.folder import inside, library
from motet.models.prompts import check_whole, encode
from motet.models.rows import padded
from motet.safety.reading import WEIGHTS
from motet.settings import Lora
from motet_verifier.folder import ADAPTER, CARD, FORMAT, HEAD, Card, check_folder
from motet_verifier.server_settings import Reads

CHARACTERS_PER_TOKEN = 16
"""Characters per token of context above which a chat is refused before it is tokenized. The length
of the longest token is used instead if it is larger: many vocabularies have runs of 128 spaces.
English has about 4 characters per token. A refused chat could fit the context only with a tokenizer
that drops characters, or that makes one token of any unknown word.
"""


class Unreadable(RewardFault):
    """The verifier cannot read this question and answer.

    They are too long, or have something that its template cannot show.
    """

    cause = "verifier_unreadable"


@dataclass(frozen=True)
class VerifierInput:
    """A question and an answer as tokens.

    The last `answer` tokens are the answer, its end-of-sequence token included.
    """

    tokens: tuple[int, ...]
    answer: int
    steps: tuple[int, ...] = (-1,)
    """Positions of the answer's tokens that end a step. Its last token always ends one."""


@dataclass(frozen=True)
class Verifier:
    """A critic that scores answers.

    `base` is the source of the frozen base model of an adapter. It is None if all weights are the
    verifier's own.
    """

    critic: Critic
    base: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Information from its author: data, options, metrics. Plain JSON."""
    reads: Reads = "end"

    @classmethod
    def new(
        cls,
        source: str | Path,
        *,
        lora: Lora | None,
        seed: int,
        device: str = "auto",
        dtype: DType = "float32",
        checkpointing: bool = False,
        attention: Attention = "auto",
    ) -> Self:
        """Create a verifier from a transformers model. Its first scores are .5.

        It trains an adapter, or all weights if `lora` is None.
        Raises: ConfigError if the model cannot be loaded, or if it has no end-of-sequence token.
        """
        backbone = Backbone.load(
            source,
            device=device,
            dtype=dtype,
            trainable_full=lora is None,
            checkpointing=checkpointing,
            attention=attention,
        )
        if not backbone.eos_ids:
            raise ConfigError(
                f"model {str(source)!r} has no end-of-sequence token; expected one, because the "
                "score is read there: set one in its tokenizer"
            )
        if lora is not None:
            backbone.add_adapter(ADAPTER, lora, seed)
        # Store a place with its absolute path, because the verifier is served from another folder.
        base = str(Path(source).resolve()) if Path(source).exists() else str(source)
        return cls(_critic_on(backbone, lora is not None), None if lora is None else base)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        dtype: DType = "float32",
        reads: Reads = "end",
    ) -> Self:
        """Load what `save` wrote.

        Raises: ConfigError as `check_folder`, and if head and model do not fit together.
        """
        place, card = Path(folder), check_folder(folder, reads)
        backbone = Backbone.load(card.base or place, device=device, dtype=dtype)
        if card.base is not None:
            backbone.load_adapter(ADAPTER, place / ADAPTER)
        critic = _critic_on(backbone, card.base is not None)
        with library(f"verifier {str(folder)!r}", f"a {HEAD} that motet verifier train wrote"):
            head = load_file(inside(place, HEAD, WEIGHTS))
        if {name: weight.shape for name, weight in head.items()} != {
            name: weight.shape for name, weight in critic.head.state_dict().items()
        }:
            raise ConfigError(
                f"{place / HEAD} does not fit the model of {place}: train the verifier again"
            )
        critic.head.load_state_dict(head)
        return cls(critic, card.base, card.facts, reads)

    def save(self, folder: str | Path) -> None:
        """Write safetensors and JSON: all weights, or only the adapter and its base model's
        source."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.critic.trunk.save(place if self.base is None else place / ADAPTER)
        save_file(
            {
                name: weight.cpu().contiguous()
                for name, weight in self.critic.head.state_dict().items()
            },
            place / HEAD,
        )
        card = Card(format=FORMAT, base=self.base, facts=dict(self.facts))
        (place / CARD).write_text(card.model_dump_json(indent=1) + "\n")

    @property
    def context_length(self) -> int:
        """Maximum number of tokens of question and answer together."""
        return self.critic.backbone.context_length

    def encode(self, chat: Chat) -> VerifierInput:
        """Encode a chat whose last message is the assistant's answer, which is judged.

        If the model has no chat template, a single user message is read as a raw string.
        Raises: Unreadable.
        """
        if len(chat) < 2 or chat[-1].role != "assistant":
            raise Unreadable(
                f"got a chat of {len(chat)} messages; expected a question, then the assistant's "
                "answer"
            )
        self._check_characters(chat)
        tokenizer, asked = self.critic.backbone.tokenizer, tuple(chat[:-1])
        raw = tokenizer.chat_template is None and [message.role for message in asked] == ["user"]
        try:
            check_whole([chat[-1].content])
            before = encode(tokenizer, asked[0].content if raw else asked)
        except SamplerFault as error:
            raise Unreadable(str(error)) from error
        said = (*self._answer_ids(chat[-1].content), self._end)
        length = len(before) + len(said)
        if length > self.context_length:
            raise Unreadable(
                f"question and answer have {length} tokens; expected at most "
                f"{self.context_length}, the verifier's context"
            )
        return VerifierInput(
            (*before, *said), len(said), (-1,) if self.reads == "end" else self._steps(said)
        )

    def _check_characters(self, chat: Chat) -> None:
        """Refuse very long chats.

        A tokenizer needs seconds and gigabytes for millions of characters.
        Raises: Unreadable.
        """
        # an empty message counts as one character
        found = sum(len(message.content) + 1 for message in chat)
        most = self._characters_per_token * self.context_length
        if found > most:
            raise Unreadable(
                f"question and answer have {found:,} characters; expected at most {most:,}: "
                f"{self._characters_per_token} for each token of {self.context_length}, the "
                "verifier's context"
            )

    @cached_property
    def _characters_per_token(self) -> int:
        # Counted in the letters that stand for bytes, so this is an upper bound.
        longest = max(map(len, self.critic.backbone.tokenizer.get_vocab()))
        return max(CHARACTERS_PER_TOKEN, longest)

    def _answer_ids(self, text: str) -> list[int]:
        try:
            return text_ids(self.critic.backbone.tokenizer, text)
        except SamplerFault as error:
            raise Unreadable(str(error)) from error

    def _steps(self, said: Sequence[int]) -> tuple[int, ...]:
        """Return the position of the last token of every line, and that of the end.

        Empty lines belong to the line before them.
        """
        ends = [
            "\n" in text
            for text in self.critic.backbone.tokenizer.batch_decode(
                [[token] for token in said[:-1]]
            )
        ]
        inner = [place for place, end in enumerate(ends[:-1]) if end and not ends[place + 1]]
        return (*inner, len(said) - 1)

    @torch.inference_mode()
    def values(self, readings: Sequence[VerifierInput]) -> list[tuple[float, ...]]:
        """Return for each answer the probability that it is right, after each of its tokens.

        All inputs form one batch. Raises: RewardFault.
        """
        backbone = self.critic.backbone
        tokens_BL, mask_BL = padded(
            [one.tokens for one in readings], backbone.pad_id, "right", backbone.device
        )
        with self.critic.active():
            values_BL = self.critic.values(tokens_BL, mask_BL).sigmoid()
        if not torch.isfinite(values_BL[mask_BL]).all():
            raise RewardFault(
                "the verifier gave a score that is not a finite number: compute in float32, or "
                "train it again"
            )
        rows = values_BL.tolist()
        return [
            tuple(row[len(one.tokens) - one.answer : len(one.tokens)])
            for row, one in zip(rows, readings, strict=True)
        ]

    def scores(self, readings: Sequence[VerifierInput]) -> list[float]:
        """Return the score of each answer in [0, 1], computed from its values as `reads` says.

        Raises: RewardFault.
        """
        steps = [
            [own[at] for at in one.steps]
            for own, one in zip(self.values(readings), readings, strict=True)
        ]
        return [min(own) if self.reads == "lowest" else sum(own) / len(own) for own in steps]

    @property
    def _end(self) -> int:
        backbone = self.critic.backbone
        own = backbone.tokenizer.eos_token_id
        return int(backbone.eos_ids[0] if own is None else own)


def _critic_on(backbone: Backbone, adapter: bool) -> Critic:
    return Critic.on(
        "verifier", Policy("verifier", backbone, ADAPTER if adapter else None), owns_trunk=True
    )
