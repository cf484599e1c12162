"""Balancing, compared with results found by hand, on the embedded debate tasks."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from motet.clients.http_client import PATIENCE, EndpointFault, ServerAway
from motet.core import Chat, Fault, Message, Prompt, Task
from motet.environments.debate_tiny import DebateProblem, TinyDebate
from motet.errors import ConfigError, EnvironmentFault, RewardFault
from motet_verifier import balance as module
from motet_verifier.answers import LabelledAnswer, WrittenAnswers, as_chat
from motet_verifier.balance import Balanced, Quota, balance
from motet_verifier.writing import EndpointWriter, argument_for, leaks, order_for

GAME = TinyDebate(TinyDebate.Options())
TASKS = [
    Task(str(problem), asdict(problem))
    for problem in (DebateProblem("12", "+", "39"), DebateProblem("50", "-", "05"))
]


class Says:
    """Writes the texts of its list in order."""

    def __init__(self, *texts: str | Fault) -> None:
        self.texts, self.asked = list(texts), []

    async def write(self, prompts: Sequence[Prompt], keys: Sequence[int]) -> list[str | Fault]:
        self.asked.append((list(prompts), list(keys)))
        said, self.texts = self.texts[: len(prompts)], self.texts[len(prompts) :]
        return said + [""] * (len(prompts) - len(said))


def sampled(task: Task, *texts: str) -> list[LabelledAnswer]:
    right = DebateProblem(**task.fields).answer
    return [
        LabelledAnswer(task.id, as_chat(GAME.question(task)), text, text, text == right, ease=0.25)
        for text in texts
    ]


def run(
    answers: list[LabelledAnswer], writer: Says | None, each: int = 1, tries: int = 2
) -> Balanced:
    return asyncio.run(balance(GAME, TASKS, answers, writer, Quota(each, tries, seed=0)))


def test_the_datasets_own_answer_stands_in_and_what_is_short_is_dropped() -> None:
    found = run([*sampled(TASKS[0], "13", "77", "13"), *sampled(TASKS[1], "55")], writer=None)
    own = found.answers[0]
    assert (own.question, own.text, own.right, own.source, own.ease) == (
        "12+39",
        "41",
        True,
        "gold",
        0.25,
    )
    assert [one.right for one in found.answers] == [True, False]
    assert (found.questions, found.short_of_right, found.short_of_wrong) == (2, 0, 1)


def test_what_is_written_is_labelled_by_what_it_comes_to() -> None:
    writer = Says("00", "x1", "99")
    found = run(sampled(TASKS[1], "55"), writer)
    assert found.written == 1
    assert [(one.text, one.right, one.source) for one in found.answers] == [
        ("55", True, "sampled"),
        ("00", False, "written"),
    ]
    assert len(writer.asked) == 1, "nobody is asked once nothing is missing"
    # asked for a wrong answer, the writer gives the right one: its label is right
    both = run(sampled(TASKS[1], "00"), Says("55"), each=1)
    assert [one.right for one in both.answers] == [True, False]
    assert both.written == 0, "the dataset's own answer was enough"


def test_what_cannot_be_used_is_counted_by_cause() -> None:
    writer = Says(
        "55",
        "no number",
        Fault("sampler", "timeout", "slow"),
        "Here is a rewritten answer: 12",
        " ",
    )
    found = run(sampled(TASKS[1], "55"), writer, tries=5)
    assert found.rejected == {"repeated": 1, "unparsed": 1, "timeout": 1, "leak": 1, "nothing": 1}
    assert (found.answers, found.short_of_wrong, len(writer.asked)) == ([], 1, 5)
    keys = [key for _, asked in writer.asked for key in asked]
    assert len(set(keys)) == 5, "another try is another draw"


def test_the_quota_is_drawn_and_follows_from_the_seed() -> None:
    many = sampled(TASKS[0], "41", *(f"{number:02}" for number in range(10, 40)))
    first, again = run(many, None), run(many, None)
    assert first.answers == again.answers
    other = asyncio.run(balance(GAME, TASKS, many, None, Quota(1, 1, seed=1)))
    assert first.answers[1] != other.answers[1]


def test_an_answer_to_a_question_without_a_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="the answers to '99\\+99'"):
        run(sampled(Task("99+99", asdict(DebateProblem("99", "+", "99"))), "11"), None)


class Unsolved(TinyDebate):
    """Has no solution for subtractions, and cannot grade one text."""

    def solve(self, state, seed):  # type: ignore[no-untyped-def]
        if "-" in str(state):
            raise EnvironmentFault("nobody knows")
        return super().solve(state, seed)

    async def grade(self, task, text):  # type: ignore[no-untyped-def]
        if text == "13":
            raise RewardFault("no grade")
        return await super().grade(task, text)


def test_what_breaks_for_one_question_is_counted_and_takes_no_other_along() -> None:
    answers = [*sampled(TASKS[0], "77"), *sampled(TASKS[1], "54")]
    game = Unsolved(TinyDebate.Options())
    found = asyncio.run(balance(game, TASKS, answers, Says("13", "13"), Quota(1, 2, seed=0)))
    assert [one.question for one in found.answers] == ["12+39"] * 2
    assert (found.questions, found.short_of_right, found.rejected["EnvironmentFault"]) == (2, 1, 1)
    assert found.rejected["RewardFault"] == 2


def test_questions_are_balanced_some_at_a_time_and_counted_as_they_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [*sampled(TASKS[0], "41"), *sampled(TASKS[1], "55")]
    writer, done = Says("11", "22"), []
    whole = run(answers, Says("11", "22"))
    monkeypatch.setattr(module, "AT_ONCE", 1)
    seen = lambda: done.append(len(writer.asked))  # noqa: E731
    found = asyncio.run(balance(GAME, TASKS, answers, writer, Quota(1, 2, seed=0), progress=seen))
    assert done == [1, 2]
    assert found == whole


class Leaves(Says):
    """Writes its texts, and then its server is gone."""

    async def write(self, prompts: Sequence[Prompt], keys: Sequence[int]) -> list[str | Fault]:
        if not self.texts:
            raise ServerAway("gone")
        return await super().write(prompts, keys)


def test_what_was_written_before_a_writer_left_is_used_by_the_next_call(tmp_path: Path) -> None:
    """The first call gets a wrong answer to the first question, and none to the second."""
    answers = [*sampled(TASKS[0], "41"), *sampled(TASKS[1], "55")]
    kept = tmp_path / "balanced.jsonl"
    with pytest.raises(ServerAway):
        asyncio.run(
            balance(
                GAME, TASKS, answers, Leaves("13"), Quota(1, 3, seed=0),
                on_written=WrittenAnswers(kept).add,
            )
        )  # fmt: skip
    earlier = WrittenAnswers(kept).read()
    assert [(one.question, one.text, one.right) for one in earlier] == [("12+39", "13", False)]
    writer = Says("11", "22")
    found = run([*answers, *earlier], writer, tries=1)
    assert [len(prompts) for prompts, _ in writer.asked] == [1], "only for the second question"
    assert "13" in [one.text for one in found.answers]


class Dead:
    """An endpoint whose server is gone."""

    def __init__(self, said_no: bool = False) -> None:
        self.calls, self._said_no = 0, said_no

    async def ask(self, messages: Chat) -> str:
        self.calls += 1
        raise EndpointFault("refused", "status 503 (4 tries)", said_no=self._said_no)


def test_an_expert_that_is_gone_is_asked_so_often_and_no_more() -> None:
    dead = Dead()
    with pytest.raises(ServerAway, match=r"the expert failed in 16 calls in a row.*status 503"):
        asyncio.run(EndpointWriter(dead).write(["?"] * 100, range(100)))  # type: ignore[arg-type]
    assert dead.calls == PATIENCE
    found = asyncio.run(
        EndpointWriter(Dead(said_no=True)).write(["?"] * 100, range(100))  # type: ignore[arg-type]
    )
    assert {one.cause for one in found if isinstance(one, Fault)} == {"refused"}


@pytest.mark.parametrize(
    ("text", "leaking"),
    [
        ("Here is a rewritten solution: 4", True),
        ("Here's another answer.", True),
        ("I deliberately slip here", True),
        ("Rewritten: 5", True),
        ("She has 4 apples and gives away 2. The answer is 2.", False),
        ("Here is how: 2 + 2 = 4", False),
        ("He reads the answer aloud", False),
    ],
)
def test_an_order_that_shows_is_found(text: str, leaking: bool) -> None:
    assert leaks(text) is leaking


def test_what_a_writer_is_asked() -> None:
    chat = (Message("system", "s"), Message("user", "What is 2+2?"))
    right = order_for(chat, ["It is 4.", "2+2=4", "four", "4!"], right=True)
    wrong = order_for(chat, [], right=False)
    assert right[0] == wrong[0] == chat[0]
    assert right[1].content.startswith("What is 2+2?")
    assert "It is 4." in right[1].content
    assert "4!" not in right[1].content, "three examples are enough"
    assert "logic" in wrong[1].content
    assert "known to be right" not in wrong[1].content
    assert order_for("12+39;", ["41"], right=False) == "12+39;", "a model of raw text only goes on"
    assert argument_for(chat, "neutral")[1].content.count("neutral") == 2
