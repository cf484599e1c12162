"""Sampling with a scripted sampler, on the embedded debate tasks."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from motet.core import Completion, Fault, OnAnswer, Sampled, SampleRequest, Team
from motet.core.seeding import derive
from motet.environments.debate_tiny import DebateProblem, TinyDebate
from motet.errors import ConfigError, EnvironmentFault, RewardFault
from motet.settings import Decode, Plan
from motet_verifier import sample as module
from motet_verifier.answer_log import Counts
from motet_verifier.answers import read_answers
from motet_verifier.sample import Sampling, argue, sample
from tests.fixtures.fake_rollouts import Talk
from tests.fixtures.messages import facts

GAME = TinyDebate(TinyDebate.Options())
TASKS = GAME.tasks("train")[:6]
TEAM = Team({"a": ("a",), "b": ("b",)}, {"a": Decode(), "b": Decode()})


class Guesses:
    """Samples two digits that follow from the key.

    Half of the time they are right, and sometimes they cannot be parsed.
    """

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
            Sampled(
                (1,),
                tuple(
                    Completion(request.policy, self._says(request, key), "stop")
                    for key in request.keys
                ),
            )
            for request in requests
        ]

    def _says(self, request: SampleRequest, key: int) -> str:
        left, operation, right = request.prompt[:2], request.prompt[2], request.prompt[3:5]
        kind = derive(key, "kind") % 8
        return (
            "hm"
            if kind == 0
            else DebateProblem(left, operation, right).answer
            if kind < 5
            else f"{derive(key) % 100:02}"
        )


def run(
    file: Path, sampler: Guesses, agents: Sequence[str] = ("a", "b"), seed: int = 0, games: int = 4
) -> Counts:
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
    assert (
        len({(one.question, one.text) for one in answers})
        == len(answers)
        == counts.right + counts.wrong
    )
    tasks = {task.id: DebateProblem(**task.fields).answer for task in TASKS}
    assert all(one.right == (one.text == tasks[one.question]) for one in answers)
    assert {one.agent for one in answers} == {"a", "b"}
    # Half of the parsed answers are right, and all right answers are identical. The ease counts all
    # sampled answers, not only those kept.
    assert all(0.2 < one.ease < 0.95 for one in answers)
    assert sum(one.right for one in answers) == len({one.question for one in answers if one.right})


def test_sampling_that_was_cut_off_goes_on_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    whole = run(tmp_path / "whole.jsonl", Guesses())
    for breaks_at in (1, 4, 9):
        file = tmp_path / f"{breaks_at}.jsonl"
        with pytest.raises(KeyboardInterrupt):
            run(file, Guesses(breaks_at))
        later = Guesses()
        assert run(file, later) == whole
        assert later.calls == 12 - 2 * ((breaks_at - 1) // 2), (
            "parts that were finished are not sampled again"
        )
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
    with pytest.raises(
        ConfigError,
        match=facts("answers.jsonl … other tasks or settings … another file name … delete it"),
    ):
        run(file, Guesses(), seed=1)
    (tmp_path / "mine.jsonl").write_text("precious")
    with pytest.raises(ConfigError, match=facts("mine.jsonl exists … another name … delete it")):
        run(tmp_path / "mine.jsonl", Guesses())
    assert (tmp_path / "mine.jsonl").read_text() == "precious"


def test_an_environment_without_questions_and_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=facts("Talk … no question … no grade … question(task)")):
        asyncio.run(
            sample(
                Talk(),
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
    """Writes an argument for every other prompt; for some an unparsable text, for some a Fault."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.calls, self._breaks_at = 0, breaks_at

    async def write(self, prompts: Sequence[object], keys: Sequence[int]) -> list[str | Fault]:
        self.calls += 1
        if self.calls == self._breaks_at:
            raise KeyboardInterrupt
        broken = Fault("sampler", "timeout", "too slow")
        return [
            "11" if number % 2 == 0 else ("hm" if number % 4 == 1 else broken)
            for number in range(len(prompts))
        ]


def test_every_label_is_argued_for_and_counts_as_what_it_comes_to(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    run(file, Guesses())
    before = len(read_answers(file))
    counts = asyncio.run(argue(Labelled(TinyDebate.Options()), TASKS, Argues(), file, 0))
    added = read_answers(file)[before:]
    assert (counts.unparsed, counts.causes) == (3, {"timeout": 3})
    assert len(added) == counts.right + counts.wrong == 6 - counts.repeated
    assert all((one.text, one.source) == ("11", "argued") and one.ease is not None for one in added)
    with pytest.raises(ConfigError, match=facts("no fixed … labels … --argue")):
        asyncio.run(argue(GAME, TASKS, Argues(), file, 0))
    assert json.loads(file.read_text().splitlines()[-1])["source"] == "argued"


def argued(file: Path, writer: Argues) -> Counts:
    run(file, Guesses())
    return asyncio.run(argue(Labelled(TinyDebate.Options()), TASKS, writer, file, 0))


def test_arguing_that_was_cut_off_goes_on_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    counts = argued(tmp_path / "whole.jsonl", Argues())
    whole = (tmp_path / "whole.jsonl").read_bytes()
    file = tmp_path / "cut.jsonl"
    with pytest.raises(KeyboardInterrupt):
        argued(file, Argues(breaks_at=3))
    assert argued(file, later := Argues()) == counts
    assert (later.calls, file.read_bytes()) == (1, whole)
    run(file, Guesses())
    assert file.read_bytes() == whole, "the command without arguments takes none away"
    assert argued(file, done := Argues()) == counts
    assert (done.calls, file.read_bytes()) == (0, whole)


def killed_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process just before the `moment`-th time that a file is replaced."""
    moments = iter(range(1, 1000))
    replaced = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if next(moments) == moment:
            raise KeyboardInterrupt
        return replaced(self, target)

    monkeypatch.setattr(Path, "replace", replace)


def test_whenever_it_is_killed_the_same_command_goes_on_and_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    counts = argued(tmp_path / "whole.jsonl", Argues())
    whole = (tmp_path / "whole.jsonl").read_bytes()
    kills = 0
    for moment in range(1, 100):
        file = tmp_path / f"{moment}.jsonl"
        with monkeypatch.context() as patched:
            killed_at(moment, patched)
            try:
                argued(file, Argues())
                break
            except KeyboardInterrupt:
                kills += 1
        assert argued(file, Argues()) == counts, moment
        assert file.read_bytes() == whole, moment
    # a note file at each start; an answer file and a note for each of the six and the three parts,
    # and at both ends
    assert kills == (1 + 2 * 6 + 2) + (1 + 2 * 3 + 2)


def test_what_was_begun_by_another_team_is_not_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    wanted = Sampling((0.5,), 1, frozenset("ab"), 0, of="one team")
    asyncio.run(sample(GAME, TASKS, Guesses(), TEAM, Plan(samples=(1, 1)), wanted, file))
    other = replace(wanted, of="another")
    with pytest.raises(
        ConfigError,
        match=facts("answers.jsonl … other tasks or settings … another file name … delete it"),
    ):
        asyncio.run(sample(GAME, TASKS, Guesses(), TEAM, Plan(samples=(1, 1)), other, file))


@pytest.mark.parametrize(
    "note", ["", "{", "[]", "null", "{}", '{"asked": 1, "done": 0, "answers": 0}']
)
def test_a_note_that_is_none_is_one_line(tmp_path: Path, note: str) -> None:
    file = tmp_path / "answers.jsonl"
    run(file, Guesses())
    (tmp_path / "answers.jsonl.sampling.json").write_text(note)
    with pytest.raises(ConfigError, match=r"answers\.jsonl\.sampling\.json is not valid"):
        run(file, Guesses())


@pytest.mark.parametrize("there", [None, "", "half"])
def test_a_file_that_lost_answers_is_not_gone_on_with(tmp_path: Path, there: str | None) -> None:
    file = tmp_path / "answers.jsonl"
    run(file, Guesses())
    lines = file.read_text().splitlines(keepends=True)
    if there is None:
        file.unlink()
    else:
        file.write_text("".join(lines[: len(lines) // 2]) if there else "")
    with pytest.raises(
        ConfigError,
        match=rf"expected at least {len(lines)}, as answers\.jsonl\.sampling\.json says: restore",
    ):
        run(file, Guesses())


class Breaking(TinyDebate):
    """Its second turn fails if `a` says a multiple of 5, and it cannot grade some texts."""

    async def step(self, state, replies, seed):  # type: ignore[no-untyped-def]
        if replies["a"].text.isdecimal() and int(replies["a"].text) % 5 == 0:
            raise EnvironmentFault("odd")
        return await super().step(state, replies, seed)

    async def grade(self, task, text):  # type: ignore[no-untyped-def]
        if text.endswith("3"):
            raise RewardFault("no grade")
        return await super().grade(task, text)


def test_games_that_break_on_the_way_and_marks_that_fail_are_counted(tmp_path: Path) -> None:
    wanted = Sampling((1.0,), 8, frozenset("ab"), 0)
    game = Breaking(TinyDebate.Options())
    file = tmp_path / "answers.jsonl"
    counts = asyncio.run(sample(game, TASKS, Guesses(), TEAM, Plan(samples=(1, 1)), wanted, file))
    assert set(counts.causes) == {"EnvironmentFault", "RewardFault"}
    assert counts.faults == sum(counts.causes.values())
    assert not [one for one in read_answers(file) if one.text.endswith("3")]
