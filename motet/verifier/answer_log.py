"""A file of answers while it is made, part by part: killed at any moment, it is gone on with and becomes the same."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from motet.errors import ConfigError
from motet.reading import read_json
from motet.verifier.answers import Answer, read_answers, write_answers

SAMPLING, ARGUING = "sampling", "arguing"


def counted(causes: dict[str, int], cause: str) -> None:
    """One more of this."""
    causes[cause] = causes.get(cause, 0) + 1


@dataclass
class Counts:
    """What became of everything that was said."""

    right: int = 0
    wrong: int = 0
    repeated: int = 0
    """Said before to the same question."""
    unparsed: int = 0
    """Answered nothing that could be read, so they are no data."""
    faults: int = 0
    """Games that broke, texts that could not be had, and answers that could not be judged."""
    causes: dict[str, int] = field(default_factory=dict)


class AnswerLog:
    """The answers so far, and in a note beside the file how far that is; both are on disk after every part.

    The answers are written first, so the file never has fewer than the note says; what it has more belongs to a part that was
    not finished, and is made again.
    """

    def __init__(self, file: Path, kind: str, asked: Mapping[str, Any], begun: list[Answer]) -> None:
        """`begun` are the answers that were there before, where nothing was made of this kind yet."""
        self._file, self._note, self._asked = file, _note_of(file, kind), json.loads(json.dumps(asked))
        self._answers = begun
        self.done, self.counts, self._closed = 0, Counts(), False
        """Parts that are finished."""
        self._said: dict[str, list[int]] = {}
        """Question -> how many right answers were sampled to it, and how many in all."""
        if self._note.is_file():
            self._go_on()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write_note()
        self._seen = {(answer.question, answer.text) for answer in self._answers}

    @classmethod
    def of_samples(cls, file: Path, asked: Mapping[str, Any]) -> Self:
        """Raises: ConfigError where the file is of something else."""
        if not _note_of(file, SAMPLING).is_file():
            if file.exists():
                raise ConfigError(f"{file} exists; expected a file that is not there: name another, or delete it")
            _note_of(file, ARGUING).unlink(missing_ok=True)  # of a file that was deleted
        return cls(file, SAMPLING, asked, [])

    @classmethod
    def of_arguments(cls, file: Path, asked: Mapping[str, Any]) -> Self:
        """Behind what was sampled. Raises: ConfigError where others were begun."""
        return cls(file, ARGUING, asked, read_answers(file))

    def take(self, answer: Answer) -> None:
        """Counts an answer, and keeps it if it was not given before."""
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
        """Says of every answer how easy its question is; this is known at the end. What is closed is not written again."""
        if self._closed:
            return
        ease = {question: right / said for question, (right, said) in self._said.items()}
        ease = {answer.question: answer.ease for answer in self._answers if answer.ease is not None} | ease
        write_answers(self._file, [replace(answer, ease=ease.get(answer.question)) for answer in self._answers])
        self._closed = True
        self._write_note()

    # ------------------------------------------------------------------------------------------------ the note

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

    def _go_on(self) -> None:
        try:
            note = read_json(self._note)
            asked, self.done, count = note["asked"], note["done"], note["answers"]
            self._said, self.counts, self._closed = note["said"], Counts(**note["counts"]), note["closed"]
        except (ConfigError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self._note} is no note of ours; it says how far {self._file.name} has come: delete both to begin anew"
            ) from error
        if asked != self._asked:
            raise ConfigError(
                f"{self._file} was begun with other tasks or settings; expected the same, to go on with it: name another file, "
                f"or delete it and {self._note.name}"
            )
        there = read_answers(self._file) if count and self._file.exists() else []
        if len(there) < count:
            raise ConfigError(
                f"{self._file} has {len(there)} answers, and by {self._note.name} it had {count}: bring it back, or delete both "
                f"to begin anew"
            )
        self._answers = there[:count]


def _note_of(file: Path, kind: str) -> Path:
    return file.with_name(f"{file.name}.{kind}.json")
