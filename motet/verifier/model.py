"""A verifier: a model that reads a question and an answer, and says after every token how likely the answer is right."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file

from motet.core import Chat
from motet.errors import ConfigError, RewardFault
from motet.policies.backbone import Backbone, Policy
from motet.policies.critic import Critic
from motet.policies.loading import DType
from motet.policies.padding import padded
from motet.policies.prompts import BadPrompt, check_whole, encode
from motet.settings import Lora

CARD, HEAD, ADAPTER = "verifier.json", "head.safetensors", "adapter"
FORMAT = 1


class Unreadable(RewardFault):
    """The verifier cannot read this question and answer: too long, or nothing its template can show."""

    cause = "verifier_unreadable"


@dataclass(frozen=True)
class Reading:
    """A question and an answer as tokens; the answer is the last `answer` of them, its end included."""

    tokens: tuple[int, ...]
    answer: int


@dataclass(frozen=True)
class Verifier:
    """`base` is where the frozen base of an adapter was loaded from; None where all weights are the verifier's own."""

    critic: Critic
    base: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What its maker says of it: data, options, figures. Plain JSON."""

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
    ) -> Self:
        """On a model of transformers: with an adapter, or where `lora` is None with all of its weights. Its first scores are .5.

        Raises: ConfigError where the model cannot be loaded, or its tokens do not end.
        """
        backbone = Backbone.load(
            source, device=device, dtype=dtype, trainable_full=lora is None, checkpointing=checkpointing
        )
        if not backbone.eos_ids:
            raise ConfigError(
                f"model {str(source)!r} has no end-of-sequence token, after which an answer would be judged: set one in its "
                f"tokenizer"
            )
        if lora is not None:
            backbone.add_adapter(ADAPTER, lora, seed)
        return cls(_critic_on(backbone, lora is not None), None if lora is None else str(source))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", dtype: DType = "float32") -> Self:
        """What `save` wrote. Raises: ConfigError where it is not one."""
        place = Path(folder)
        if not (place / CARD).is_file():
            raise ConfigError(
                f"{place} has no {CARD}; expected the folder of a verifier: motet verifier train makes one"
            )
        try:
            card = json.loads((place / CARD).read_text())
            head = load_file(place / HEAD)
        except (ValueError, OSError) as error:
            raise ConfigError(f"the verifier in {place} cannot be read: {error}") from error
        if card.get("format") != FORMAT:
            raise ConfigError(f"{place / CARD} has format {card.get('format')}, expected {FORMAT}: train it anew")
        backbone = Backbone.load(card["base"] or place, device=device, dtype=dtype)
        if card["base"] is not None:
            backbone.load_adapter(ADAPTER, place / ADAPTER)
        critic = _critic_on(backbone, card["base"] is not None)
        if {name: weight.shape for name, weight in head.items()} != {
            name: weight.shape for name, weight in critic.head.state_dict().items()
        }:
            raise ConfigError(f"{place / HEAD} does not fit the model of {place}: train it anew")
        critic.head.load_state_dict(head)
        return cls(critic, card["base"], card["facts"])

    def save(self, folder: str | Path) -> None:
        """Writes safetensors and JSON: all weights, or the adapter alone and where its base is."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self.critic.trunk.save(place if self.base is None else place / ADAPTER)
        save_file(
            {name: weight.cpu().contiguous() for name, weight in self.critic.head.state_dict().items()}, place / HEAD
        )
        card = {"format": FORMAT, "base": self.base, "facts": dict(self.facts)}
        (place / CARD).write_text(json.dumps(card, indent=1) + "\n")

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
        tokenizer, asked = self.critic.backbone.tokenizer, tuple(chat[:-1])
        raw = tokenizer.chat_template is None and [message.role for message in asked] == ["user"]
        try:
            check_whole([chat[-1].content])
            before = encode(tokenizer, asked[0].content if raw else asked)
        except BadPrompt as error:
            raise Unreadable(str(error)) from error
        said = (*tokenizer(chat[-1].content, add_special_tokens=False)["input_ids"], self._end)
        length = len(before) + len(said)
        if length > self.context_length:
            raise Unreadable(
                f"question and answer have {length} tokens, expected at most {self.context_length}, the verifier's context"
            )
        return Reading((*before, *said), len(said))

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
        """How likely each answer is right, in [0, 1]: the value at its end."""
        return [values[-1] for values in self.values(readings)]

    @property
    def _end(self) -> int:
        backbone = self.critic.backbone
        own = backbone.tokenizer.eos_token_id
        return int(backbone.eos_ids[0] if own is None else own)


def _critic_on(backbone: Backbone, adapter: bool) -> Critic:
    return Critic.on("verifier", Policy("verifier", backbone, ADAPTER if adapter else None), owns_trunk=True)
