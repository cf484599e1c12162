"""A verifier: a model that reads a question and an answer, and says after every token how likely the answer is right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from motet.core import Chat
from motet.errors import ConfigError, RewardFault, SamplerFault
from motet.plugins import look_at
from motet.policies.attention_choice import Attention
from motet.policies.backbone import Backbone, Policy
from motet.policies.bounded_text import token_ids
from motet.policies.critic import Critic
from motet.policies.folder import inside, library
from motet.policies.loading import DType
from motet.policies.padding import padded
from motet.policies.prompts import check_whole, encode
from motet.reading import ROWS, WEIGHTS, read_json
from motet.settings import Lora, Settings

Reads: TypeAlias = Literal["end", "mean", "lowest"]
"""What of an answer is its score. end: the value after all of it. mean, lowest: of the values after each of its steps, which are
its lines (Lightman et al. 2023, arXiv 2305.20050; Wang et al. 2024, arXiv 2312.08935): so each step earns its part."""
CHARACTERS_PER_TOKEN = 16
"""A text of more characters per token of context is refused before it is tokenized, or of more than
the longest token has: many vocabularies have runs of 128 spaces. English has about 4. Only
tokenizers that drop characters, or make one token of any unknown word, could have read more."""
CARD, HEAD, ADAPTER = "verifier.json", "head.safetensors", "adapter"
FORMAT: Literal[1] = 1


class Card(Settings):
    """What verifier.json says."""

    format: Literal[1]
    base: str | None
    """Where the frozen base of an adapter was loaded from; null where all weights are here."""
    facts: dict[str, Any]


class Unreadable(RewardFault):
    """The verifier cannot read this question and answer: too long, or nothing its template can show."""

    cause = "verifier_unreadable"


@dataclass(frozen=True)
class Reading:
    """A question and an answer as tokens; the answer is the last `answer` of them, its end included."""

    tokens: tuple[int, ...]
    answer: int
    steps: tuple[int, ...] = (-1,)
    """Which tokens of the answer end a step of it; the last one always does."""


@dataclass(frozen=True)
class Verifier:
    """`base` is where the frozen base of an adapter was loaded from; None where all weights are the verifier's own."""

    critic: Critic
    base: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What its maker says of it: data, options, figures. Plain JSON."""
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
        """On a model of transformers: with an adapter, or where `lora` is None with all of its weights. Its first scores are .5.

        Raises: ConfigError where the model cannot be loaded, or its tokens do not end.
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
                f"model {str(source)!r} has no end-of-sequence token, after which an answer would be judged: set one in its "
                f"tokenizer"
            )
        if lora is not None:
            backbone.add_adapter(ADAPTER, lora, seed)
        # A folder by its whole path: the verifier is served from another one.
        base = str(Path(source).resolve()) if Path(source).is_dir() else str(source)
        return cls(_critic_on(backbone, lora is not None), None if lora is None else base)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", dtype: DType = "float32", reads: Reads = "end") -> Self:
        """What `save` wrote. Raises: ConfigError as `check_folder`, and where head and model do not fit."""
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
            raise ConfigError(f"{place / HEAD} does not fit the model of {place}: train it anew")
        critic.head.load_state_dict(head)
        return cls(critic, card.base, card.facts, reads)

    def save(self, folder: str | Path) -> None:
        """Writes safetensors and JSON: all weights, or the adapter alone and where its base is."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.critic.trunk.save(place if self.base is None else place / ADAPTER)
        save_file(
            {name: weight.cpu().contiguous() for name, weight in self.critic.head.state_dict().items()}, place / HEAD
        )
        card = Card(format=FORMAT, base=self.base, facts=dict(self.facts))
        (place / CARD).write_text(card.model_dump_json(indent=1) + "\n")

    @property
    def context_length(self) -> int:
        """Tokens of question and answer together."""
        return self.critic.backbone.context_length

    def encode(self, chat: Chat) -> Reading:
        """A chat that ends with the assistant's answer, which is judged.

        A model without a chat template reads a user's single question as raw text. Raises: Unreadable.
        """
        if len(chat) < 2 or chat[-1].role != "assistant":
            raise Unreadable(f"a chat of {len(chat)} messages; expected a question and, last, the assistant's answer")
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
                f"question and answer have {length} tokens, expected at most {self.context_length}, the verifier's context"
            )
        return Reading((*before, *said), len(said), (-1,) if self.reads == "end" else self._steps(said))

    def _check_characters(self, chat: Chat) -> None:
        """A tokenizer needs seconds and gigabytes for millions of characters. Raises:
        Unreadable."""
        found = sum(len(message.content) + 1 for message in chat)  # an empty message is read, too
        most = self._characters_per_token * self.context_length
        if found > most:
            raise Unreadable(
                f"question and answer have {found:,} characters, expected at most {most:,}: "
                f"{self._characters_per_token} for each token of {self.context_length}, the verifier's context"
            )

    @cached_property
    def _characters_per_token(self) -> int:
        longest = max(map(len, self.critic.backbone.tokenizer.get_vocab()))  # in letters for bytes, so rather too many
        return max(CHARACTERS_PER_TOKEN, longest)

    def _answer_ids(self, text: str) -> list[int]:
        try:
            return token_ids(self.critic.backbone.tokenizer, text)
        except SamplerFault as error:
            raise Unreadable(str(error)) from error

    def _steps(self, said: Sequence[int]) -> tuple[int, ...]:
        """The last token of every line, empty lines counting with the one before; and the end."""
        ends = ["\n" in text for text in self.critic.backbone.tokenizer.batch_decode([[token] for token in said[:-1]])]
        inner = [place for place, end in enumerate(ends[:-1]) if end and not ends[place + 1]]
        return (*inner, len(said) - 1)

    @torch.inference_mode()
    def values(self, readings: Sequence[Reading]) -> list[tuple[float, ...]]:
        """For each answer, how likely it is right after each of its tokens, in [0, 1]; one batch. Raises: RewardFault."""
        backbone = self.critic.backbone
        tokens_BL, mask_BL = padded([one.tokens for one in readings], backbone.pad_id, "right", backbone.device)
        with self.critic.active():
            values_BL = self.critic.values(tokens_BL, mask_BL).sigmoid()
        if not torch.isfinite(values_BL[mask_BL]).all():
            raise RewardFault("the verifier gave what is not a finite number: compute in float32, or train it anew")
        rows = values_BL.tolist()
        return [
            tuple(row[len(one.tokens) - one.answer : len(one.tokens)]) for row, one in zip(rows, readings, strict=True)
        ]

    def scores(self, readings: Sequence[Reading]) -> list[float]:
        """How likely each answer is right, in [0, 1], as it `reads` its values. Raises: RewardFault."""
        steps = [[own[at] for at in one.steps] for own, one in zip(self.values(readings), readings, strict=True)]
        return [min(own) if self.reads == "lowest" else sum(own) / len(own) for own in steps]

    @property
    def _end(self) -> int:
        backbone = self.critic.backbone
        own = backbone.tokenizer.eos_token_id
        return int(backbone.eos_ids[0] if own is None else own)


def check_folder(folder: str | Path, reads: Reads = "end") -> Card:
    """What a verifier's folder says of it; no weights are read, but their files are whole.

    Raises: ConfigError, also for one that was not trained for what it `reads`.
    """
    place = Path(folder)
    if look_at(place / CARD) != "file":
        raise ConfigError(f"{place} has no {CARD}; expected the folder of a verifier: motet verifier train makes one")
    try:
        said = _json(place, place / CARD)
        if isinstance(said, dict) and said.get("format") != FORMAT:
            raise ConfigError(f"{place / CARD} has format {said.get('format')}, expected {FORMAT}: train it anew")
        card = Card.model_validate(said)
        for plain in place.rglob("*.json"):
            _json(place, plain)
        for weights in {place / HEAD, *place.rglob("*.safetensors")}:
            inside(place, str(weights.relative_to(place)), WEIGHTS)
            with safe_open(weights, "pt"):
                """A file that was cut off does not open."""
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{place / CARD}: {where}: {first['msg']}: train the verifier anew") from error
    except (ValueError, OSError, SafetensorError) as error:
        raise _unreadable(place, error) from error
    if reads != "end" and card.facts.get("loss") == "last":
        raise ConfigError(
            f"reads is {reads}, and the verifier in {place} learnt with loss: last, so its values mean something at the end: "
            f"train one with loss: every, or read the end"
        )
    if card.base is None and not (place / "config.json").is_file():
        raise ConfigError(f"{place} has no config.json, and its {CARD} names no base: copy all of its files")
    if card.base is not None and Path(card.base).is_absolute() and look_at(Path(card.base)) != "folder":
        raise ConfigError(
            f"the verifier in {place} is an adapter on {card.base}, which is not there: bring it back, or name another place "
            f"as base in {CARD}"
        )
    return card


def _json(place: Path, path: Path) -> Any:
    try:
        return read_json(path, ROWS)
    except ConfigError as error:
        raise _unreadable(place, error) from error


def _unreadable(place: Path, error: Exception) -> ConfigError:
    return ConfigError(f"the verifier in {place} cannot be read: {error}: train it anew, or copy it again")


def _critic_on(backbone: Backbone, adapter: bool) -> Critic:
    return Critic.on("verifier", Policy("verifier", backbone, ADAPTER if adapter else None), owns_trunk=True)
