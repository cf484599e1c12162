"""Balance the data: equally many right and wrong answers per question.

Otherwise a verifier could learn from the question alone. Missing answers are added: first the
dataset's own answer, then answers of a writer that is asked for another right answer, or for a
plausible wrong one. The label of a text follows from its final answer, never from the request.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from motet.core import Environment, Fault, Grades, Prompt, Solves, Task
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.rollout.faults import attempt
from motet_verifier.answer_log import counted
from motet_verifier.answers import LabelledAnswer, as_chat, by_question
from motet_verifier.candidates import grades_of
from motet_verifier.sample import AT_ONCE
from motet_verifier.writing import AnswerWriter, leaks, order_for


@dataclass(frozen=True)
class Quota:
    """How many answers a question needs: `each` right and `each` wrong ones.

    The writer is asked at most `tries` times for each missing answer.
    """

    each: int
    tries: int
    seed: int


@dataclass
class Balanced:
    """The balanced answers, question by question, and counts of what was rejected."""

    answers: list[LabelledAnswer] = field(default_factory=list)
    questions: int = 0
    short_of_right: int = 0
    """Number of questions that were dropped because right answers were missing."""
    short_of_wrong: int = 0
    written: int = 0
    """Number of written answers that were used."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Number of rejected texts by cause: leak, unparsed, repeated, other_label, nothing, or the
    cause of a fault.
    """


async def balance(
    environment: Environment[Any],
    tasks: Sequence[Task],
    answers: Sequence[LabelledAnswer],
    writer: AnswerWriter | None,
    quota: Quota,
    *,
    progress: Callable[[], None] = lambda: None,
    on_written: Callable[[Sequence[LabelledAnswer]], None] = lambda answers: None,
) -> Balanced:
    """Select `each` right and `each` wrong answers to every question that has, or can get, so many.

    `tasks` has the task of every question. Without a writer, only the dataset's own answer is
    added. The result follows from the seed. `progress` is called once per question, and
    `on_written` with the answers that were just written and can be used. Raises: ConfigError if a
    question has no task, or if the environment cannot grade answers.
    """
    grades = grades_of(environment)
    known = {task.id: task for task in tasks}
    questions = by_question(answers)
    strange = [question for question in questions if question not in known]
    if strange:
        raise ConfigError(
            f"the answers to {strange[0]!r} have no task ({len(strange)} such questions); "
            "expected the tasks that the answers were sampled on: use the same config and split"
        )
    pools = [
        _Pool(known[question], grades.question(known[question]), said, quota)
        for question, said in questions.items()
    ]
    found = Balanced(questions=len(pools))
    for start in range(0, len(pools), AT_ONCE):
        some = pools[start : start + AT_ONCE]
        for pool in some:
            await _own_answer(environment, grades, pool, found.rejected)
        for tried in range(quota.tries if writer is not None else 0):
            assert writer is not None
            on_written(await _write_round(grades, writer, some, tried, quota.seed, found.rejected))
        for pool in some:
            found.short_of_right += pool.missing(True) > 0
            found.short_of_wrong += pool.missing(False) > 0
            found.answers += pool.chosen()
            progress()
    found.written = sum(answer.source == "written" for answer in found.answers)
    return found


class _Pool:
    """The answers to one question."""

    def __init__(
        self, task: Task, question: Prompt, said: Sequence[LabelledAnswer], quota: Quota
    ) -> None:
        self.task, self.question, self._quota = task, question, quota
        self._ease = said[0].ease
        self._answers: dict[str, LabelledAnswer] = {}
        for answer in said:
            self._answers.setdefault(answer.text, answer)

    def of(self, right: bool) -> list[LabelledAnswer]:
        return [answer for answer in self._answers.values() if answer.right is right]

    def missing(self, right: bool) -> int:
        return max(0, self._quota.each - len(self.of(right)))

    def has(self, text: str) -> bool:
        return text in self._answers

    def add(self, answer: LabelledAnswer) -> None:
        self._answers.setdefault(answer.text, replace(answer, ease=self._ease))

    def chosen(self) -> list[LabelledAnswer]:
        """Sample the quota of right and of wrong answers. Empty if there are too few of either."""
        if self.missing(True) or self.missing(False):
            return []
        draw = random.Random(derive(self._quota.seed, "balance", self.task.id))
        return [
            answer
            for right in (True, False)
            for answer in draw.sample(self.of(right), self._quota.each)
        ]


async def _own_answer(
    environment: Environment[Any], grades: Grades, pool: _Pool, rejected: dict[str, int]
) -> None:
    """Add the dataset's own answer if right ones are missing and the environment has one."""
    if not pool.missing(True) or not isinstance(environment, Solves):
        return
    texts = await attempt(_solved(environment, pool.task))
    if isinstance(texts, Fault):
        counted(rejected, texts.cause)
        return
    for text in dict.fromkeys(texts):
        grade = await attempt(grades.grade(pool.task, text))
        if isinstance(grade, Fault):
            counted(rejected, grade.cause)
        elif grade.right and grade.answer is not None:
            pool.add(
                LabelledAnswer(
                    pool.task.id, as_chat(pool.question), text, grade.answer, True, "gold"
                )
            )


async def _solved(environment: Environment[Any], task: Task) -> list[str]:
    assert isinstance(environment, Solves)
    state = await environment.start(task, 0)
    try:
        return list(environment.solve(state, 0).values())
    finally:
        await environment.close(state)


async def _write_round(
    grades: Grades,
    writer: AnswerWriter,
    pools: Sequence[_Pool],
    tried: int,
    seed: int,
    rejected: dict[str, int],
) -> list[LabelledAnswer]:
    """Ask the writer once for every missing answer to these questions, in one call. Returns the
    answers that can be used."""
    orders = [
        (pool, right, number)
        for pool in pools
        for right in (True, False)
        for number in range(pool.missing(right))
    ]
    if not orders:
        return []
    prompts = [
        order_for(pool.question, [one.text for one in pool.of(True)], right)
        for pool, right, _ in orders
    ]
    keys = [
        derive(seed, "write", pool.task.id, right, number, tried) for pool, right, number in orders
    ]
    used: list[LabelledAnswer] = []
    for (pool, _, _), text in zip(orders, await writer.write(prompts, keys), strict=True):
        judged = await _judged(grades, pool, text)
        if isinstance(judged, str):
            counted(rejected, judged)
        else:
            pool.add(judged)
            used.append(judged)
    return used


async def _judged(grades: Grades, pool: _Pool, text: str | Fault) -> LabelledAnswer | str:
    """Return a written text with the label that its final answer gives it, or the reason if it is
    rejected."""
    if isinstance(text, Fault):
        return text.cause
    if not text.strip():
        return "nothing"
    if leaks(text):
        return "leak"
    if pool.has(text):
        return "repeated"
    grade = await attempt(grades.grade(pool.task, text))
    if isinstance(grade, Fault):
        return grade.cause
    if grade.answer is None:
        return "unparsed"
    if not pool.missing(grade.right):
        return "other_label"
    return LabelledAnswer(
        pool.task.id, as_chat(pool.question), text, grade.answer, grade.right, "written"
    )
