"""As many right as wrong answers to every question, so that nothing can be learnt from the question alone.

What is missing is written: first the dataset's own answer, then what a writer says when it is asked for another right answer, or
for a plausible wrong one. What a text is labelled follows from what it comes to, never from what was asked for.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from motet.core import Fault, Prompt, Task
from motet.errors import ConfigError
from motet.rollout.faults import attempt
from motet.seeding import derive
from motet.verifier.answer_log import counted
from motet.verifier.answers import Answer, as_chat, by_question
from motet.verifier.sample import AT_ONCE, check_markable
from motet.verifier.writing import Writer, leaks, order_for


@dataclass(frozen=True)
class Quota:
    """`each` right and `each` wrong answers to a question. The writer is asked at most `tries` times for one that is missing."""

    each: int
    tries: int
    seed: int


@dataclass
class Balanced:
    """The answers, question by question, and what became of the others."""

    answers: list[Answer] = field(default_factory=list)
    questions: int = 0
    short_of_right: int = 0
    """Questions that were dropped because right answers were missing."""
    short_of_wrong: int = 0
    written: int = 0
    """Written answers that could be used."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Why others could not: leak, unparsed, repeated, other_label, nothing, or the cause of a fault."""


async def balance(
    environment: Any,
    tasks: Sequence[Task],
    answers: Sequence[Answer],
    writer: Writer | None,
    quota: Quota,
    *,
    progress: Callable[[], None] = lambda: None,
) -> Balanced:
    """`each` right and `each` wrong answers to every question of which there are, or can be written, so many.

    `tasks` has the task of every question; without a writer nothing is written but the dataset's own answer. All follows from
    the seed. `progress` is called once per question.
    Raises: ConfigError where a question has no task, or the environment cannot say what is right.
    """
    check_markable(environment)
    known = {task.id: task for task in tasks}
    questions = by_question(answers)
    strange = [question for question in questions if question not in known]
    if strange:
        raise ConfigError(
            f"no task has the id {strange[0]!r} of an answer ({len(strange)} such questions); expected the tasks the answers "
            f"were sampled on: use the same config and split"
        )
    pools = [
        _Pool(known[question], environment.question(known[question]), said, quota)
        for question, said in questions.items()
    ]
    found = Balanced(questions=len(pools))
    for start in range(0, len(pools), AT_ONCE):
        some = pools[start : start + AT_ONCE]
        for pool in some:
            await _own_answer(environment, pool, found.rejected)
        for tried in range(quota.tries if writer is not None else 0):
            assert writer is not None
            await _write_round(environment, writer, some, tried, quota.seed, found.rejected)
        for pool in some:
            found.short_of_right += pool.missing(True) > 0
            found.short_of_wrong += pool.missing(False) > 0
            found.answers += pool.chosen()
            progress()
    found.written = sum(answer.source == "written" for answer in found.answers)
    return found


class _Pool:
    """What is known of one question."""

    def __init__(self, task: Task, question: Prompt, said: Sequence[Answer], quota: Quota) -> None:
        self.task, self.question, self._quota = task, question, quota
        self._ease = said[0].ease
        self._answers: dict[str, Answer] = {}
        for answer in said:
            self._answers.setdefault(answer.text, answer)

    def of(self, right: bool) -> list[Answer]:
        return [answer for answer in self._answers.values() if answer.right is right]

    def missing(self, right: bool) -> int:
        return max(0, self._quota.each - len(self.of(right)))

    def has(self, text: str) -> bool:
        return text in self._answers

    def add(self, answer: Answer) -> None:
        self._answers.setdefault(answer.text, replace(answer, ease=self._ease))

    def chosen(self) -> list[Answer]:
        """The quota of both, drawn at random; nothing where either is short."""
        if self.missing(True) or self.missing(False):
            return []
        draw = random.Random(derive(self._quota.seed, "balance", self.task.id))
        return [answer for right in (True, False) for answer in draw.sample(self.of(right), self._quota.each)]


async def _own_answer(environment: Any, pool: _Pool, rejected: dict[str, int]) -> None:
    """The dataset's own answer, where right ones are missing and the environment has one."""
    if not pool.missing(True) or not hasattr(environment, "solve"):
        return
    texts = await attempt(_solved(environment, pool.task))
    if isinstance(texts, Fault):
        counted(rejected, texts.cause)
        return
    for text in dict.fromkeys(texts):
        mark = await attempt(environment.mark(pool.task, text))
        if isinstance(mark, Fault):
            counted(rejected, mark.cause)
        elif mark.right and mark.answer is not None:
            pool.add(Answer(pool.task.id, as_chat(pool.question), text, mark.answer, True, "gold"))


async def _solved(environment: Any, task: Task) -> list[str]:
    state = await environment.start(task, 0)
    try:
        return list(environment.solve(state, 0).values())
    finally:
        await environment.close(state)


async def _write_round(
    environment: Any, writer: Writer, pools: Sequence[_Pool], tried: int, seed: int, rejected: dict[str, int]
) -> None:
    """Asks once for every answer that is missing to these questions, in one call."""
    orders = [
        (pool, right, number) for pool in pools for right in (True, False) for number in range(pool.missing(right))
    ]
    if not orders:
        return
    prompts = [order_for(pool.question, [one.text for one in pool.of(True)], right) for pool, right, _ in orders]
    keys = [derive(seed, "write", pool.task.id, right, number, tried) for pool, right, number in orders]
    for (pool, _, _), text in zip(orders, await writer.write(prompts, keys), strict=True):
        why = await _judged(environment, pool, text)
        if why is not None:
            counted(rejected, why)


async def _judged(environment: Any, pool: _Pool, text: str | Fault) -> str | None:
    """Takes a written text into the pool by what it comes to; or says why not."""
    if isinstance(text, Fault):
        return text.cause
    if not text.strip():
        return "nothing"
    if leaks(text):
        return "leak"
    if pool.has(text):
        return "repeated"
    mark = await attempt(environment.mark(pool.task, text))
    if isinstance(mark, Fault):
        return mark.cause
    if mark.answer is None:
        return "unparsed"
    if not pool.missing(mark.right):
        return "other_label"
    pool.add(Answer(pool.task.id, as_chat(pool.question), text, mark.answer, mark.right, "written"))
    return None
