"""Verifiers for tests: a tiny one with scores far apart, as a folder; and one without a model, that says what it reads."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from motet.core import Chat, Message
from motet.errors import RewardFault
from motet.policies.testing import Architecture, make_model_folder
from motet.verifier.model import Reading, Unreadable, Verifier

POISON = "~"
"""A sign after which the tiny verifier's values are not finite."""


def make_verifier_folder(path: str | Path, architecture: Architecture = "qwen3", *, context: int = 96) -> Path:
    """Writes a random verifier of about 40,000 weights to `path`, and returns it."""
    place = Path(path)
    source = make_model_folder(place / "source", architecture, chat_template=True, seed=1, context=context)
    verifier = Verifier.new(source, lora=None, seed=0, device="cpu")
    critic = verifier.critic
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        nn.init.normal_(critic.head.weight, std=0.3, generator=draw)
        (sign,) = critic.backbone.tokenizer(POISON, add_special_tokens=False)["input_ids"]
        critic.backbone.model.get_input_embeddings().weight[sign] = torch.nan  # type: ignore[operator]
    Verifier(critic, None, {"made_for": "tests"}).save(place / "verifier")
    return place / "verifier"


def chat(answer: str, question: str = "6 * 7?") -> Chat:
    return (Message("user", question), Message("assistant", answer))


class Saying:
    """Scores each answer by the number that it is; some words break it. `batches` are those it was asked for, as answers.

    unreadable: for `encode`. poison: a fault of its batch. memory: what torch raises. mistake: what nobody foresees. While
    `held` is set, batches wait for `release`.
    """

    def __init__(self, *, context_length: int = 96) -> None:
        self.context_length, self.base, self.facts = context_length, None, {"made_for": "tests"}
        self.reads = "end"
        self.critic = SimpleNamespace(backbone=SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32))
        self.batches: list[list[str]] = []
        self.began, self.release = threading.Event(), threading.Event()
        self.release.set()
        self._said: dict[int, str] = {}

    def hold(self) -> None:
        self.began.clear()
        self.release.clear()

    def encode(self, chat: Chat) -> Reading:
        said = chat[-1].content
        if said == "unreadable":
            raise Unreadable("nobody can read that")
        number = len(self._said)
        self._said[number] = said
        return Reading((number, *[0] * len(said)), 1)

    def scores(self, readings: Sequence[Reading]) -> list[float]:
        said = [self._said[reading.tokens[0]] for reading in readings]
        self.batches.append(said)
        self.began.set()
        assert self.release.wait(10)
        if "poison" in said:
            raise RewardFault("not a finite number")
        if "memory" in said:
            raise RuntimeError("out of memory")
        if "mistake" in said:
            raise TypeError("nobody foresaw that")
        return [float(one) for one in said]
