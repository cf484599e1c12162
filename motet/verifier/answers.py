"""Answers to questions and whether they are right, one JSON line each: what a verifier learns from.

{"question": "gsm8k-7", "prompt": [{"role": "user", "content": "..."}], "text": "... \\boxed{12}", "answer": "12",
 "right": true, "source": "sampled", "agent": "alice", "temperature": 0.7, "ease": 0.25}
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from motet.core import Chat, Message, Prompt
from motet.errors import ConfigError

Source: TypeAlias = Literal["sampled", "argued", "gold", "written"]
"""Sampled at a turn of a game; argued for a label that was given; the dataset's own; written because more were wanted."""


@dataclass(frozen=True)
class Answer:
    """One text that answers a question, and whether it is right by the gold answer."""

    question: str
    """The task's id."""
    prompt: Chat
    """The question as a verifier reads it."""
    text: str
    answer: str
    """What the text comes to, spelt one way."""
    right: bool
    source: Source = "sampled"
    agent: str | None = None
    temperature: float | None = None
    ease: float | None = None
    """The share of right answers among all that were sampled to this question, repeated ones too."""

    @property
    def chat(self) -> Chat:
        """What a verifier reads."""
        return (*self.prompt, Message("assistant", self.text))

    def line(self) -> str:
        """As JSON."""
        prompt = [{"role": message.role, "content": message.content} for message in self.prompt]
        said = {
            "question": self.question,
            "prompt": prompt,
            "text": self.text,
            "answer": self.answer,
            "right": self.right,
        }
        known = {"source": self.source, "agent": self.agent, "temperature": self.temperature, "ease": self.ease}
        return json.dumps(
            {**said, **{name: value for name, value in known.items() if value is not None}}, ensure_ascii=False
        )


def as_chat(question: Prompt) -> Chat:
    """A raw text is what a user asks."""
    return (Message("user", question),) if isinstance(question, str) else question


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    class _Message(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        role: Literal["system", "user", "assistant"]
        content: str

    question: str
    prompt: Annotated[list[_Message], Field(min_length=1)]
    text: str
    answer: str
    right: bool
    source: Source = "sampled"
    agent: str | None = None
    temperature: float | None = None
    ease: float | None = Field(default=None, ge=0.0, le=1.0)

    def read(self) -> Answer:
        fields: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        return Answer(**{**fields, "prompt": tuple(Message(one.role, one.content) for one in self.prompt)})


def read_answers(path: str | Path) -> list[Answer]:
    """Raises: ConfigError naming the line that is none."""
    place = Path(path)
    if not place.is_file():
        raise ConfigError(f"{place} does not exist; expected a file of answers: motet verifier sample writes one")
    return list(_read(place))


def _read(place: Path) -> Iterator[Answer]:
    with place.open(encoding="utf-8") as lines:
        for number, line in enumerate(_decoded(lines, place), start=1):
            try:
                yield _Line.model_validate_json(line).read()
            except ValidationError as error:
                first = error.errors(include_url=False, include_context=False)[0]
                where = ".".join(map(str, first["loc"])) or "the line"
                raise ConfigError(f"{place}:{number} is no answer: {where}: {first['msg']}") from error


def _decoded(lines: Iterable[str], place: Path) -> Iterator[str]:
    try:
        yield from (line for line in lines if line.strip())
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{place} is not UTF-8 ({error.reason} at byte {error.start}); expected JSON lines"
        ) from error


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Replaces the file at once, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    beside.write_text("".join(f"{answer.line()}\n" for answer in answers), encoding="utf-8")
    beside.replace(path)


def by_question(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Question -> its answers, in the order of the file."""
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.question, []).append(answer)
    return found
