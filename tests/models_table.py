"""The table of docs/models.md: train one step of every architecture, and list its capabilities.

python -m tests.models_table    # tries all of them and writes the page

It takes about two minutes on two cores.
"""

import asyncio
import json
import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from motet.batch import pack, policy_objective
from motet.core import Completion, SampleId, ScoreRequest, TrainSample
from motet.errors import ConfigError
from motet.models.backbone import Backbone, Policy
from motet.models.decode import DecodeRequest, decode
from motet.models.forward import score_requests
from motet.models.learner import LocalLearner
from motet.settings import Algorithm, Decode, Lora, Optimizer
from tests.architectures import KINDS, make

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN, END = (
    "<!-- measured: `python -m tests.models_table` writes this part -->",
    "<!-- /models -->",
)
HEAD = (
    "architecture",
    "model class",
    "full",
    "LoRA",
    "no padding",
    "shared prompts",
    "logits in parts",
)
PROMPTS, EACH = ([5, 60, 200], [42]), 2

Training = Literal["full", "lora"]


@dataclass(frozen=True)
class Tried:
    """The result for one architecture."""

    kind: str
    model: str
    capabilities: tuple[bool, ...] = ()
    """As in the last columns of `HEAD`; empty if the model is refused."""
    refused: str = ""
    """The reason why it cannot be used."""
    refused_lora: str = ""
    """The reason why LoRA on all linear layers cannot be used."""

    @property
    def note(self) -> str:
        """The mark of its footnote."""
        return f"[^{self.kind.replace(' ', '-')}]"

    def row(self) -> str:
        if self.refused:
            return f"- **{self.kind}** (`{self.model}`): {self.refused}."
        lora = f"not on all linear layers {self.note}" if self.refused_lora else "yes"
        cells = (
            self.kind,
            f"`{self.model}`",
            "yes",
            lora,
            *("yes" if able else "" for able in self.capabilities),
        )
        return f"| {' | '.join(cells)} |"


def tried(kind: str, folder: Path) -> Tried:
    """Train in both ways. Raises: AssertionError if one does not work and was not refused."""
    source = make(kind, folder / "model")
    (model,) = json.loads((source / "config.json").read_text())["architectures"]
    try:
        backbone = _step(source, "full", folder / "full")
    except ConfigError as error:
        cause = str(error).removeprefix(f"model {str(source)!r} ").removeprefix(f"({model}) ")
        return Tried(kind, model, refused=re.sub(r" \(by \d+%.*?\)", "", cause))
    able = (backbone.packs_sequences, backbone.shares_prompts, backbone.capabilities.ends_in_head)
    try:
        _step(source, "lora", folder / "lora")
    except ConfigError as error:
        return Tried(kind, model, able, refused_lora=str(error))
    return Tried(kind, model, able)


def _step(source: Path, training: Training, folder: Path) -> Backbone:
    """Sample, update once, save, load again, and score the same."""
    backbone = Backbone.load(source, device="cpu", trainable_full=training == "full")
    adapter = None
    if training == "lora":
        backbone.add_adapter(adapter := "p", Lora(rank=4), seed=0)
    policy = Policy("p", backbone, adapter)
    requests = [
        DecodeRequest("p", of, Decode(max_new_tokens=6), key=row)
        for of in range(len(PROMPTS))
        for row in range(EACH)
    ]
    with policy.active():
        answers = decode(backbone, PROMPTS, requests)
        before = _scored(backbone, requests, answers)
    for answer, logprobs in zip(answers, before, strict=True):
        assert all(
            math.isclose(one, other, abs_tol=1e-4)
            for one, other in zip(answer.logprobs, logprobs, strict=True)
        )
    learner = LocalLearner([policy], {"p": Optimizer(learning_rate=1e-2)}, 1)
    samples = [
        _sample(number, request, answer)
        for number, (request, answer) in enumerate(zip(requests, answers, strict=True))
    ]
    for batch in pack(samples, 10**6, "token_mean", {"p": 1}):
        asyncio.run(learner.accumulate(batch, policy_objective(Algorithm())))
    figures = asyncio.run(learner.step(["p"]))["p"]
    assert figures["grad_norm"] > 0
    with policy.active():
        after = _scored(backbone, requests, answers)
    # The gradient raises rewarded answers and lowers the others.
    pulled = [
        (-1.0) ** row * (sum(late) - sum(early))
        for row, (early, late) in enumerate(zip(before, after, strict=True))
    ]
    assert sum(pulled) > 0, (before, after)
    policy.save(folder)
    again = Backbone.load(folder if training == "full" else source, device="cpu")
    if training == "lora":
        again.load_adapter("p", folder)
    with again.policy(adapter):
        for early, late in zip(after, _scored(again, requests, answers), strict=True):
            assert all(
                math.isclose(one, other, abs_tol=1e-4)
                for one, other in zip(early, late, strict=True)
            )
    return backbone


def _scored(
    backbone: Backbone, requests: list[DecodeRequest], answers: list[Completion]
) -> list[tuple[float, ...]]:
    asked = zip(requests, answers, strict=True)
    return score_requests(
        backbone,
        [
            ScoreRequest("p", tuple(PROMPTS[request.prompt]), answer.tokens, 1.0)
            for request, answer in asked
        ],
    )


def _sample(number: int, request: DecodeRequest, answer: Completion) -> TrainSample:
    return TrainSample(
        SampleId("e", (), "agent", number),
        turn=0,
        prompt_tokens=tuple(PROMPTS[request.prompt]),
        completion=answer,
        advantage=(-1.0) ** number,
        share=0.25,
    )


def page(found: list[Tried]) -> str:
    """Return the measured part of the page."""
    works, refused = ([one for one in found if bool(one.refused) is no] for no in (False, True))
    head = [f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD))]
    lines = [
        f"{len(works)} architectures train, {len(refused)} are refused.",
        "",
        *head,
        *(one.row() for one in works),
    ]
    lines += ["", "### Refused, and why", "", *(one.row() for one in refused), ""]
    return "\n".join(
        lines + [f"{one.note}: {one.refused_lora}." for one in works if one.refused_lora]
    )


def main() -> None:
    torch.set_num_threads(1)
    found = []
    for kind in sorted(KINDS):
        with tempfile.TemporaryDirectory() as folder:
            found.append(tried(kind, Path(folder)))
        print(found[-1].row(), flush=True)
    text = PAGE.read_text()
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n\n{page(found)}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
