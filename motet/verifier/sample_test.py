"""Sampling with a sampler that says what it is told to, on the embedded debate."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from motet.core import Completion, Fault, OnAnswer, Sampled, SampleRequest, Team
from motet.environments.debate_tiny import Problem, TinyDebate
from motet.errors import ConfigError
from motet.seeding import derive
from motet.settings import Decode, Plan
from motet.verifier import sample as module
from motet.verifier.answers import read_answers
from motet.verifier.sample import Counts, Sampling, argue, sample

GAME = TinyDebate(TinyDebate.Options())
TASKS = GAME.tasks("train")[:6]
TEAM = Team({"a": ("a",), "b": ("b",)}, {"a": Decode(), "b": Decode()})


class Guesses:
    """Says two digits that follow from the key; half of the time the right ones, and now and then nothing that can be read."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.calls, self._breaks_at, self.temperatures = 0, breaks_at, set()

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        self.calls += 1
        if self.calls == self._breaks_at:
            raise KeyboardInterrupt
        self.temperatures |= {request.decode.temperature for request in requests}
        return [
            Sampled((1,), tuple(Completion(request.policy, self._says(request, key), "stop") for key in request.keys))
            for request in requests
        ]

    def _says(self, request: SampleRequest, key: int) -> str:
        left, operation, right = request.prompt[:2], request.prompt[2], request.prompt[3:5]
        kind = derive(key, "kind") % 8
        return "hm" if kind == 0 else Problem(left, operation, right).answer if kind < 5 else f"{derive(key) % 100:02}"


def run(file: Path, sampler: Guesses, agents: Sequence[str] = ("a", "b"), seed: int = 0, games: int = 4) -> Counts:
    wanted = Sampling((0.5, 1.5), games, frozenset(agents), seed)
    return asyncio.run(sample(GAME, TASKS, sampler, TEAM, Plan(samples=(1, 1)), wanted, file))


def test_every_answer_of_every_turn_is_labelled_and_stands_once(tmp_path: Path) -> None:
    sampler = Guesses()
    counts = run(tmp_path / "answers.jsonl", sampler)
    answers = read_answers(tmp_path / "answers.jsonl")
    said = 6 * 2 * 4 * 2 * 2  # tasks, temperatures, games, agents, turns
    assert counts.right + counts.wrong + counts.repeated + counts.unparsed == said
    assert counts.unparsed > 0
    assert (counts.faults, sampler.temperatures) == (0, {0.5, 1.5})
    assert len({(one.question, one.text) for one in answers}) == len(answers) == counts.right + counts.wrong
    tasks = {task.id: Problem(**task.fields).answer for task in TASKS}
    assert all(one.right == (one.text == tasks[one.question]) for one in answers)
    assert {one.agent for one in answers} == {"a", "b"}
    # Half of what can be read is right, and right answers are all alike: the share is of what was said, not of what stands there.
    assert all(0.2 < one.ease < 0.95 for one in answers)
    assert sum(one.right for one in answers) == len({one.question for one in answers if one.right})


def test_sampling_that_was_cut_off_goes_on_to_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    whole = run(tmp_path / "whole.jsonl", Guesses())
    for breaks_at in (1, 4, 9):
        file = tmp_path / f"{breaks_at}.jsonl"
        with pytest.raises(KeyboardInterrupt):
            run(file, Guesses(breaks_at))
        later = Guesses()
        assert run(file, later) == whole
        assert later.calls == 12 - 2 * ((breaks_at - 1) // 2), "parts that were finished are not sampled again"
        assert file.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert run(file, done := Guesses()) == whole
    assert done.calls == 0
    assert file.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_only_the_named_agents_are_listened_to(tmp_path: Path) -> None:
    run(tmp_path / "answers.jsonl", Guesses(), agents=("b",))
    assert {one.agent for one in read_answers(tmp_path / "answers.jsonl")} == {"b"}


def test_a_file_of_something_else_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    run(file, Guesses())
    with pytest.raises(ConfigError, match="was begun with other tasks or settings"):
        run(file, Guesses(), seed=1)
    (tmp_path / "mine.jsonl").write_text("precious")
    with pytest.raises(ConfigError, match="exists; expected a file that is not there"):
        run(tmp_path / "mine.jsonl", Guesses())
    assert (tmp_path / "mine.jsonl").read_text() == "precious"


class Bare:
    pass


def test_an_environment_without_questions_and_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Bare has no question and no mark; a verifier needs question\(task\)"):
        asyncio.run(
            sample(
                Bare(),
                [],
                Guesses(),
                TEAM,
                Plan(),
                Sampling((1.0,), 1, frozenset("a"), 0),
                tmp_path / "x",
            )
        )


class Labelled(TinyDebate):
    labels = ("11", "22")


class Argues:
    async def write(self, prompts: Sequence[object], keys: Sequence[int]) -> list[str | None]:
        return ["11" if number % 2 == 0 else ("hm" if number % 4 == 1 else None) for number in range(len(prompts))]


def test_every_label_is_argued_for_and_counts_as_what_it_comes_to(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    run(file, Guesses())
    before = len(read_answers(file))
    counts = asyncio.run(argue(Labelled(TinyDebate.Options()), TASKS, Argues(), file, 0))
    added = read_answers(file)[before:]
    assert (counts.unparsed, counts.causes) == (3, {"nothing": 3})
    assert len(added) == counts.right + counts.wrong == 6 - counts.repeated
    assert all((one.text, one.source) == ("11", "argued") and one.ease is not None for one in added)
    with pytest.raises(ConfigError, match="has no closed set of labels to argue for"):
        asyncio.run(argue(GAME, TASKS, Argues(), file, 0))
    assert json.loads(file.read_text().splitlines()[-1])["source"] == "argued"
