"""A file of answers that is written part by part.

If the process is killed at any moment, the same command continues and produces the same file.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from motet.errors import ConfigError
from motet.safety.reading import read_json
from motet_verifier.answers import LabelledAnswer, read_answers, write_answers

SAMPLING, ARGUING = "sampling", "arguing"


def check_free(file: Path) -> None:
    """Raises: ConfigError if the file exists and no sampling began it."""
    if file.exists() and not _note_of(file, SAMPLING).is_file():
        raise ConfigError(
            f"{file} exists; expected a file that does not exist: choose another name, or delete it"
        )


def counted(causes: dict[str, int], cause: str) -> None:
    """Add one to the count of this cause."""
    causes[cause] = causes.get(cause, 0) + 1


@dataclass
class Counts:
    """How many answers were kept, repeated, unparsed or faulty."""

    right: int = 0
    wrong: int = 0
    repeated: int = 0
    """Answers that were already given to the same question."""
    unparsed: int = 0
    """Answers from which no final answer could be parsed. They are not kept."""
    faults: int = 0
    """Games that failed, texts that could not be obtained, and answers that could not be graded."""
    causes: dict[str, int] = field(default_factory=dict)


class AnswerLog:
    """The answers so far, and a note file beside them that records the progress.

    Both are on disk after every part. The answers are written first, so the file never has fewer
    answers than the note says. If it has more, they belong to an unfinished part, and are made
    again.
    """

    def __init__(
        self, file: Path, kind: str, asked: Mapping[str, Any], begun: list[LabelledAnswer]
    ) -> None:
        """`begun` are the answers that exist before the first part of this kind."""
        self._file, self._note, self._asked = (
            file,
            _note_of(file, kind),
            json.loads(json.dumps(asked)),
        )
        self._answers = begun
        self.done, self.counts, self._closed = 0, Counts(), False
        """Number of finished parts."""
        self._said: dict[str, list[int]] = {}
        """Question -> [number of right answers sampled for it, number of all answers
        sampled for it]."""
        if self._note.is_file():
            self._resume()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write_note()
        self._seen = {(answer.question, answer.text) for answer in self._answers}

    @classmethod
    def of_samples(cls, file: Path, asked: Mapping[str, Any]) -> Self:
        """Open the log of a sampling run.

        Raises: ConfigError if the file exists but was not begun by the same sampling.
        """
        check_free(file)
        if not _note_of(file, SAMPLING).is_file():
            # left over from a file that was deleted
            _note_of(file, ARGUING).unlink(missing_ok=True)
        return cls(file, SAMPLING, asked, [])

    @classmethod
    def of_arguments(cls, file: Path, asked: Mapping[str, Any]) -> Self:
        """Open the log of an arguing run, which appends to the sampled answers.

        Raises: ConfigError if the file was begun with other arguments.
        """
        return cls(file, ARGUING, asked, read_answers(file))

    def take(self, answer: LabelledAnswer) -> None:
        """Count an answer, and keep it unless the same answer to the question exists already."""
        if answer.source == "sampled":
            said = self._said.setdefault(answer.question, [0, 0])
            said[0] += answer.right
            said[1] += 1
        key = (answer.question, answer.text)
        if key in self._seen:
            self.counts.repeated += 1
            return
        self._seen.add(key)
        self._answers.append(answer)
        if answer.right:
            self.counts.right += 1
        else:
            self.counts.wrong += 1

    def fault(self, cause: str) -> None:
        self.counts.faults += 1
        counted(self.counts.causes, cause)

    def part_done(self) -> None:
        self.done += 1
        write_answers(self._file, self._answers)
        self._write_note()

    def close(self) -> None:
        """Store in every answer the ease of its question, which is known only at the end.

        A closed log is not written again.
        """
        if self._closed:
            return
        ease = {question: right / said for question, (right, said) in self._said.items()}
        ease = {
            answer.question: answer.ease for answer in self._answers if answer.ease is not None
        } | ease
        write_answers(
            self._file,
            [replace(answer, ease=ease.get(answer.question)) for answer in self._answers],
        )
        self._closed = True
        self._write_note()

    # -------------------------------------------------------------------------------- the note file

    def _write_note(self) -> None:
        note = {
            "asked": self._asked,
            "done": self.done,
            "answers": len(self._answers),
            "said": self._said,
            "counts": asdict(self.counts),
            "closed": self._closed,
        }
        beside = self._note.with_name(f"{self._note.name}.part")
        beside.write_text(json.dumps(note), encoding="utf-8")
        beside.replace(self._note)

    def _resume(self) -> None:
        try:
            note = read_json(self._note)
            asked, self.done, count = note["asked"], note["done"], note["answers"]
            self._said, self.counts, self._closed = (
                note["said"],
                Counts(**note["counts"]),
                note["closed"],
            )
        except (ConfigError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self._note} is not valid; expected the progress of {self._file.name}: delete "
                "both files and start again"
            ) from error
        if asked != self._asked:
            raise ConfigError(
                f"{self._file} was started with other tasks or settings; expected the same ones "
                f"to continue it: choose another file name, or delete it and {self._note.name}"
            )
        there = read_answers(self._file) if count and self._file.exists() else []
        if len(there) < count:
            raise ConfigError(
                f"{self._file} has {len(there)} answers; expected at least {count}, as "
                f"{self._note.name} says: restore it, or delete both files and start again"
            )
        self._answers = there[:count]


def _note_of(file: Path, kind: str) -> Path:
    return file.with_name(f"{file.name}.{kind}.json")
