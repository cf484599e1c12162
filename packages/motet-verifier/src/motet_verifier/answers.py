r"""Labelled answers, one JSON object per line: the training data of a verifier.

{"question": "gsm8k-7", "prompt": [{"role": "user", "content": "..."}],
 "text": "... \\boxed{12}", "answer": "12", "right": true, "source": "sampled",
 "agent": "alice", "temperature": 0.7, "ease": 0.25}
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from motet.core import Chat, Message, Prompt
from motet.errors import ConfigError
from motet.safety.reading import ROWS, open_regular

AnswerSource: TypeAlias = Literal["sampled", "argued", "gold", "written"]
"""Where an answer comes from. sampled: a turn of a game. argued: an argument for a given label.
gold: the dataset's own answer. written: a writer was asked for it.
"""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class LabelledAnswer:
    """One answer to a question, and whether it is right according to the gold answer."""

    question: str
    """The task's id."""
    prompt: Annotated[Chat, Field(min_length=1)]
    """The question as the verifier reads it."""
    text: str
    answer: str
    """The final answer of the text, in a canonical spelling."""
    right: bool
    source: AnswerSource = "sampled"
    agent: str | None = None
    temperature: float | None = None
    ease: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of right answers among all answers sampled for this question, repeated ones included.
    """

    @property
    def chat(self) -> Chat:
        """The chat that a verifier reads: the question, then the answer."""
        return (*self.prompt, Message("assistant", self.text))

    def line(self) -> bytes:
        """Return the answer as one line of JSON."""
        return _LINE.dump_json(self, exclude_none=True)


_LINE = TypeAdapter(LabelledAnswer)


def as_chat(question: Prompt) -> Chat:
    """Return the question as a chat. A raw string becomes a user message."""
    return (Message("user", question),) if isinstance(question, str) else question


def read_answers(path: str | Path) -> list[LabelledAnswer]:
    """Read a file of answers.

    Raises: ConfigError, which names the line, if a line is not a valid answer.
    """
    place = Path(path)
    try:
        with open_regular(place, ROWS) as lines:
            return list(_read(place, lines))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{place} does not exist; expected a file of answers: write one with motet verifier "
            "sample"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be read ({error.strerror}); expected a file of answers"
        ) from error


def some_answers(path: str | Path) -> list[LabelledAnswer]:
    """Read a file of answers that must not be empty.

    Raises: ConfigError as `read_answers`, and also if the file has no answers.
    """
    answers = read_answers(path)
    if not answers:
        raise ConfigError(
            f"{path} has no answers; expected one per line: sample more tasks, or choose another "
            "file"
        )
    return answers


def _read(place: Path, lines: Iterable[bytes]) -> Iterator[LabelledAnswer]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _LINE.validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise ConfigError(
                f"{place}:{number} is not an answer: {where}: {first['msg']}"
            ) from error


def write_answers(path: Path, answers: Iterable[LabelledAnswer]) -> None:
    """Replace the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    with beside.open("wb") as lines:
        lines.writelines(answer.line() + b"\n" for answer in answers)
    beside.replace(path)


class WrittenAnswers:
    """The answers that were written for a file so far: in FILE.written, until the file is whole.

    An interrupted call has not paid for them in vain.
    """

    def __init__(self, file: Path) -> None:
        self.path = file.with_name(f"{file.name}.written")

    def read(self) -> list[LabelledAnswer]:
        """Return those of an earlier call. A line that was being written is left out.

        Raises: as `read_answers`.
        """
        if not self.path.is_file():
            return []
        whole = self.path.read_bytes().rpartition(b"\n")
        self.path.write_bytes(b"".join(whole[:2]))
        return read_answers(self.path)

    def add(self, answers: Iterable[LabelledAnswer]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as lines:
            lines.writelines(answer.line() + b"\n" for answer in answers)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def by_question(answers: Sequence[LabelledAnswer]) -> dict[str, list[LabelledAnswer]]:
    """Return question -> its answers, in the order of the file."""
    found: dict[str, list[LabelledAnswer]] = {}
    for answer in answers:
        found.setdefault(answer.question, []).append(answer)
    return found
