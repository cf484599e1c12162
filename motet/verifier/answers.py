"""Answers to questions and whether they are right, one JSON line each: what a verifier learns from.

{"question": "gsm8k-7", "prompt": [{"role": "user", "content": "..."}], "text": "... \\boxed{12}", "answer": "12",
 "right": true, "source": "sampled", "agent": "alice", "temperature": 0.7, "ease": 0.25}
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from motet.core import Chat, Message, Prompt
from motet.errors import ConfigError
from motet.reading import ROWS, open_regular

Source: TypeAlias = Literal["sampled", "argued", "gold", "written"]
"""Sampled at a turn of a game; argued for a label that was given; the dataset's own; written because more were wanted."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class Answer:
    """One text that answers a question, and whether it is right by the gold answer."""

    question: str
    """The task's id."""
    prompt: Annotated[Chat, Field(min_length=1)]
    """The question as a verifier reads it."""
    text: str
    answer: str
    """What the text comes to, spelt one way."""
    right: bool
    source: Source = "sampled"
    agent: str | None = None
    temperature: float | None = None
    ease: float | None = Field(default=None, ge=0.0, le=1.0)
    """The share of right answers among all that were sampled to this question, repeated ones too."""

    @property
    def chat(self) -> Chat:
        """What a verifier reads."""
        return (*self.prompt, Message("assistant", self.text))

    def line(self) -> bytes:
        """As JSON."""
        return _LINE.dump_json(self, exclude_none=True)


_LINE = TypeAdapter(Answer)


def as_chat(question: Prompt) -> Chat:
    """A raw text is what a user asks."""
    return (Message("user", question),) if isinstance(question, str) else question


def read_answers(path: str | Path) -> list[Answer]:
    """Raises: ConfigError naming the line that is none."""
    place = Path(path)
    try:
        with open_regular(place, ROWS) as lines:
            return list(_read(place, lines))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{place} does not exist; expected a file of answers: motet verifier sample writes one"
        ) from error
    except OSError as error:
        raise ConfigError(f"{place} cannot be read ({error.strerror}); expected a file of answers") from error


def some_answers(path: str | Path) -> list[Answer]:
    """The same, where nothing can be done without any. Raises: ConfigError for a file without answers, too."""
    answers = read_answers(path)
    if not answers:
        raise ConfigError(f"{path} has no answers; expected one in every line: sample more tasks, or name another file")
    return answers


def _read(place: Path, lines: Iterable[bytes]) -> Iterator[Answer]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _LINE.validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise ConfigError(f"{place}:{number} is no answer: {where}: {first['msg']}") from error


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Replaces the file at once, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    with beside.open("wb") as lines:
        lines.writelines(answer.line() + b"\n" for answer in answers)
    beside.replace(path)


def by_question(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Question -> its answers, in the order of the file."""
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.question, []).append(answer)
    return found
