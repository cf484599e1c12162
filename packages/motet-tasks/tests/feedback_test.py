"""Whole runs with feedback between turns: their records show what agents read, and what
they never do."""

import ast
import asyncio
import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import motet
from codejudge import Sandbox
from motet.algorithms import resolve
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Fault,
    OnAnswer,
    Prompt,
    Sampled,
    SampleRequest,
    Scores,
    Task,
    Team,
    walk,
)
from motet.credit.assign import assign_credit
from motet.rollout.collect import collect
from motet.rollout.record import read_episodes, write_episode
from motet.settings import Decode, Plan
from motet_tasks.coding.generation import CodeGeneration
from motet_tasks.coding.problems import read_problem
from tests.fixtures.messages import facts, says
from tests.fixtures.model_folders import make_model_folder
from tests.fixtures.wide import widely
from tests.fork_server import ForkedProcess
from tests.small_runs import ROOT, contents, episodes, run_config, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

ROWS = [
    {
        "task_id": "own/twice",
        "prompt": 'def twice(x):\n    """Twice x.\n\n    >>> twice(3)\n    6\n    """\n',
        "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "test": (
            "def check(candidate):\n    assert candidate(41) == 82\n    assert candidate(-7) "
            "== -14\n"
        ),
    },
    {
        "task_id": "own/last",
        "prompt": (
            'def last(xs):\n    """The last of xs, None where there is none.\n\n    >>> '
            'last([1, 2])\n    2\n    """\n'
        ),
        "entry_point": "last",
        "canonical_solution": "    return xs[-1] if xs else None\n",
        "test": (
            "def check(candidate):\n    assert candidate([8, 9]) == 9\n    assert "
            "candidate([]) is None\n"
        ),
    },
]
HUMANEVAL = ROOT.parent / "shared" / "data" / "humaneval" / "test.jsonl"
PAIR = {"helper": "p", "main": "q"}
REVISE = {
    "helper": "Revise the function `aux`: write all of it again",
    "main": ": write all of it again",
}


# ------------------------------------------------------------------------------------ the small run


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a context for long prompts."""
    return make_model_folder(
        tmp_path_factory.mktemp("reader") / "model", chat_template=True, context=8192, seed=2
    )


@pytest.fixture
def coding(tmp_path: Path, reader: Path):
    """`coding(feedback, game={}, **sections)` returns the config of a two-turn run.

    It has two problems, with two joint actions per turn.
    """
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def config(
        feedback: Mapping[str, Any], game: Mapping[str, Any] | None = None, **sections: Any
    ) -> dict[str, Any]:
        source = {"path": str(rows)}
        return run_config(
            environment={"name": "code_generation", "feedback": feedback, **(game or {})},
            data={"train": source, "eval": source},
            models={"tiny": {"path": str(reader), "device": "cpu"}},
            team=PAIR,
            decode={"max_new_tokens": 6},
            rollout={"samples": [2, 2]},
            train={"steps": 1, "tasks_per_step": 2, "max_fault_share": 1.0},
            sandbox={"workers": 1},
            **sections,
        )

    return config


def second_prompts(run: Path) -> list[tuple[str, Prompt]]:
    """Return (agent, its prompt) of every second turn in the training records."""
    roots = [episode.root for episode in episodes(run) if episode.root is not None]
    rounds = [round_ for root in roots for _, round_ in walk(root) if round_.turn == 1]
    return [pair for round_ in rounds for pair in round_.prompts.items()]


def whole(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def news(run: Path) -> list[str]:
    """Return the last message of each second prompt: helper's, main's, helper's, ..."""
    return [prompt[-1].content for _, prompt in second_prompts(run)]


# ---------------------------------------------------------------------------- modes that ask nobody

OWN = """
async def tell(attempt):
    assert set(attempt.codes) == set(attempt.replies) == {"helper", "main"}
    return {"helper": f"helper got {attempt.share:.0%}", "main": "main is told this"}

def sometimes(attempt):
    if "twice" in attempt.problem:
        raise LookupError("no advice")
    return "go on"
"""


@pytest.mark.parametrize(
    ("mode", "to_helper", "to_main"),
    [
        pytest.param("plain", "", "", marks=pytest.mark.wide),
        pytest.param(
            "passed",
            "Result: not all tests passed.\n\n",
            "Result: not all tests passed.\n\n",
            marks=pytest.mark.wide,
        ),
        pytest.param(
            "level_passed",
            "Levels:\n1. does not hold\n2. not all",
            "Levels:\n1. does not hold\n2. not all",
            marks=pytest.mark.wide,
        ),
        (
            "level_feedback",
            "Your part:\n- Problem: `aux` is not defined",
            "Your part:\n- Problem: `",
        ),
        ("own.py:tell", "helper got 0%\n\n", "main is told this\n\n"),
    ],
)
def test_a_run_records_what_each_agent_was_told(train, coding, tmp_path, mode, to_helper, to_main):
    (tmp_path / "own.py").write_text(OWN)
    run = train(coding({"mode": mode.replace("own.py", f"{tmp_path}/own.py")}))
    found = news(run)
    assert len(found) == 8  # two tasks, two joint actions each, two agents
    assert all(text.startswith(to_helper) and REVISE["helper"] in text for text in found[0::2])
    assert all(text.startswith(to_main) and REVISE["main"] in text for text in found[1::2])
    assert all("`aux`" not in text for text in found[1::2])
    assert summary(run)["heldout"]["after"]["faults"] == 0


def test_what_an_authors_function_raises_is_a_counted_fault_of_its_joint_action(
    train, coding, tmp_path
):
    (tmp_path / "own.py").write_text(OWN)
    run = train(coding({"mode": f"{tmp_path}/own.py:sometimes"}))
    after = summary(run)["heldout"]["after"]
    assert after["causes"] == {"environment/LookupError": 1}
    assert {text.partition("\n")[0] for text in news(run)} == {"go on"}


# ---------------------------------------------------------------------------------------- an expert


@pytest.fixture(scope="module")
def expert(reader: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Return (base_url, log) of a server with a tiny model, in its own process."""
    log = tmp_path_factory.mktemp("expert") / "log.jsonl"
    script = ROOT / "tests" / "openai_server.py"
    server = ForkedProcess(
        [sys.executable, str(script), str(reader), str(log)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1", log
    finally:
        server.kill()
        server.wait()


KEY = "sk-nobody-may-read-this"


@pytest.mark.wide
def test_an_experts_edits_reach_the_agents_and_its_key_no_file(train, coding, expert, monkeypatch):
    base_url, log = expert
    monkeypatch.setenv("EXPERT_KEY", KEY)
    # no proxy is there: requests to this machine do not use it
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    settings = {
        "base_url": base_url,
        "model": "tiny",
        "key_variable": "EXPERT_KEY",
        "max_tokens": 12,
    }
    run = train(coding({"mode": "expert_edits"}, expert=settings))
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    answers = {line["answer"].strip() for line in asked}
    found = news(run)
    assert len(found) == 8
    for text in found:
        assert text.startswith("An expert proposes these edits:\n\n")
        assert any(answer in text for answer in answers)
    assert {line["asked"]["max_tokens"] for line in asked} == {12}
    (question,) = asked[-1]["asked"]["messages"]
    assert '"helper": "..."' in question["content"]
    assert any(row["prompt"].strip() in question["content"] for row in ROWS)
    files = contents(run)
    assert [name for name, text in files.items() if KEY.encode() in text] == []
    assert b"key_variable: EXPERT_KEY" in files["config.yaml"]
    assert summary(run)["heldout"]["after"]["faults"] == 0


def test_a_dead_expert_is_counted_and_no_silence(train, coding, expert):
    base_url, _ = expert
    unknown = {"base_url": f"{base_url}/nowhere", "model": "tiny"}
    run = train(coding({"mode": "expert_edits"}, expert=unknown))
    assert summary(run)["heldout"]["after"]["causes"] == {"environment/expert_refused": 2}
    for episode in episodes(run):  # if all joint actions fail, the task fails
        assert episode.root is None
        assert (episode.fault.where, episode.fault.cause) == ("environment", "expert_refused")
        assert "nowhere/chat/completions answered with status 404" in episode.fault.message


@pytest.mark.parametrize("cause", ["unreachable", "timeout"])
def test_an_expert_that_is_away_is_counted_by_its_cause(coding, cause):
    # it accepts connections and never answers
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        if cause == "unreachable":
            silent.close()
        away = {"base_url": address, "model": "tiny", "retries": 0, "timeout_seconds": 0.5}
        figures = motet.evaluate(coding({"mode": "expert_edits"}, expert=away), show="silent")
    assert figures.causes == {f"environment/expert_{cause}": 2}
    assert figures.reward is None


@pytest.mark.parametrize(
    ("expert", "message"),
    [
        (None, "no expert … expert: {base_url"),
        (
            {"key_variable": "NO_SUCH_KEY"},
            "expert.key_variable … NO_SUCH_KEY … not set",
        ),
        ({"key_variable": "BAD_KEY"}, "BAD_KEY … valid key"),
    ],
)
def test_an_expert_that_cannot_be_asked_is_refused_before_any_work(
    coding, monkeypatch, tmp_path, expert, message
):
    monkeypatch.setenv("BAD_KEY", "schlüssel\x07")
    section = (
        None if expert is None else {"base_url": "http://localhost:1/v1", "model": "tiny", **expert}
    )
    with pytest.raises(motet.ConfigError, match=facts(message)) as caught:
        motet.train(
            coding({"mode": "expert_edits"}, expert=section), runs=tmp_path / "runs", show="silent"
        )
    assert "schl" not in str(caught.value)
    assert not (tmp_path / "runs" / "run" / "episodes").exists()


# ----------------------------------------------------------------------------------------- a person


def test_a_person_gives_feedback_to_a_played_task(coding, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("count from zero\nmain: call aux\n\n"))
    episode = motet.play(coding({}), interactive="feedback", show="silent")
    assert episode.root is not None
    second = episode.root.outcomes[0].next
    assert second is not None
    assert whole(second.prompts["helper"]).count("count from zero\n\nRevise") == 1
    assert "count from zero\ncall aux\n\nRevise" in whole(second.prompts["main"])
    screen = capsys.readouterr().out
    assert "The problem:\ndef twice(x):" in screen
    assert "a line `helper: ...` only for helper. End with an empty line.\n> " in screen


def test_a_person_who_leaves_is_a_fault_that_says_what_to_do(coding, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    episode = motet.play(coding({"mode": "human"}), show="silent")
    assert episode.fault is not None
    assert episode.fault.cause == "person_left"
    assert says(episode.fault.message, "terminal … another feedback.mode")


def test_training_on_a_persons_feedback_needs_a_terminal(coding, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("no terminal\n\n"))
    with pytest.raises(
        motet.ConfigError, match=facts("feedback.mode … no terminal … in a terminal … mode")
    ):
        motet.train(coding({"mode": "human"}), runs=tmp_path, show="silent")


def test_feedback_is_given_only_between_turns(coding):
    with pytest.raises(motet.ConfigError, match=facts("one turn … more … rollout.samples=[1,1]")):
        motet.play(coding({}), ["rollout.samples=[1]"], interactive="feedback", show="silent")


# ------------------------------------------------------------------------------ no test that grades


class Scripted:
    """A core.Sampler that answers with `say(task, agent, turn, sample)`."""

    def __init__(self, say: Callable[[str, str, int, int], str]) -> None:
        self.say = say

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        return [self._answered(request) for request in requests]

    def _answered(self, request: SampleRequest) -> Sampled:
        episode, path, turn, agent = request.id
        # the index of the first turn's answer that this path continues
        first = [path[0]] if path else range(len(request.keys))
        texts = [self.say(episode.partition(":")[2], agent, turn, index) for index in first]
        return Sampled(
            (1,),
            tuple(Completion(request.policy, text, "stop", 0, (1,), (-1.0,)) for text in texts),
        )


def played(
    rows: Sequence[Mapping[str, Any]],
    say: Callable[[Task], Callable[[str, int, int], str]],
    samples: tuple[int, ...],
    **options: Any,
) -> list[Episode]:
    """Play code generation on `rows`. The team answers with `say(task)(agent, turn, sample)`."""
    with Sandbox(2) as sandbox:
        game = CodeGeneration(
            CodeGeneration.Options(**options), sandbox=sandbox, turns=len(samples)
        )
        tasks = [game.task(row) for row in rows]
        voices = {task.id: say(task) for task in tasks}
        sampler = Scripted(lambda task, agent, turn, sample: voices[task](agent, turn, sample))
        return asyncio.run(collect(game, tasks, sampler, TEAM, Plan(samples=samples), 0, "played"))


TEAM = Team({"helper": ("p",), "main": ("q",)}, {"helper": Decode(), "main": Decode()})


def fails(task: Task) -> Callable[[str, int, int], str]:
    """Return programs that reveal their input.

    One returns it, one raises with it, one has a syntax error.
    """
    name = task.fields["entry_point"]
    mains = [
        f"def {name}(*xs):\n    return aux(*xs), xs",
        f"def {name}(*xs):\n    assert not xs, xs\n    return 1",
        f"def {name}(:",
    ]
    return lambda agent, turn, sample: (
        "def aux(*xs):\n    return xs" if agent == "helper" else mains[sample]
    )


def asserted(text: str) -> str | None:
    """Normalise a test to Python's own spelling, whatever its layout; None if it is no test."""
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    return ast.unparse(statement) if isinstance(statement, ast.Assert) else None


def check_that_no_test_is_told(rows: Sequence[Mapping[str, Any]], found: Sequence[Episode]) -> int:
    """Check that no prompt of any turn has a grading test, beyond the task's own text.

    Returns how many examples of that text the feedback repeated.
    """
    repeated = 0
    for row, episode in zip(rows, found, strict=True):
        assert episode.fault is None
        assert episode.root is not None
        problem = read_problem(row)
        own = {ast.unparse(ast.parse(example)) for example in problem.examples}
        graded = {
            asserted(re.sub(r"\bcandidate\b", problem.entry_point, case.text))
            for case in problem.suite.cases
        }
        secret = [test for test in graded - {None} if not any(test in example for example in own)]
        for _, round_ in walk(episode.root):
            for text in (
                whole(prompt).replace(problem.text, "") for prompt in round_.prompts.values()
            ):
                lines = [
                    line.partition(": ")[2] for line in text.splitlines() if line.startswith("- ")
                ]
                shown = {asserted(line) for line in lines} - {None}
                assert shown <= own
                assert [test for test in secret if test in text] == []
                assert "candidate" not in text
                repeated += len(shown)
    return repeated


def test_no_test_that_grades_is_told_by_default():
    repeated = check_that_no_test_is_told(ROWS, played(ROWS, fails, (3, 1)))
    assert repeated == 8  # one example in each of 2 tasks, for 2 of 3 programs, to 2 agents


def test_a_test_is_told_where_the_options_say_so():
    """This proves that the search finds such a test."""
    found = played(ROWS[:1], fails, (1, 1), feedback={"sandbox_slice": 1})
    assert found[0].root is not None
    (second,) = [round_ for _, round_ in walk(found[0].root) if round_.turn == 1]
    assert all(
        "- Failed: assert twice(41) == 82\n" in whole(prompt) for prompt in second.prompts.values()
    )
    assert all("twice(-7)" not in whole(prompt) for prompt in second.prompts.values())
    with pytest.raises(AssertionError):
        check_that_no_test_is_told(ROWS[:1], found)


@pytest.mark.skipif(not HUMANEVAL.is_file(), reason=f"no HumanEval rows at {HUMANEVAL}")
def test_no_test_of_humaneval_is_told_by_default():
    rows = [json.loads(line) for line in HUMANEVAL.read_text().splitlines()]
    assert check_that_no_test_is_told(rows, played(rows, fails, (3, 1))) > 4 * len(rows) * 0.5


def test_no_test_that_grades_stands_in_any_prompt_of_a_run(train, coding):
    prompts = [whole(prompt) for _, prompt in second_prompts(train(coding({})))]
    assert len(prompts) == 8
    assert all("twice(3)" in text or "last([1, 2])" in text for text in prompts)
    assert not [
        text
        for text in prompts
        for secret in ("41", "82", "-14", "[8, 9]", "None where there is none)")
        if secret in text
    ]


# --------------------------------------------------------------------------------- the page in docs


@pytest.mark.parametrize("mode", ["level_passed", "level_feedback"])
def test_the_page_on_feedback_shows_what_an_agent_reads(mode):
    page = (ROOT / "docs" / "feedback.md").read_text()
    prompt = (
        'def twice(x):\n    """Twice x.\n\n    >>> twice(2)\n    4\n    >>> twice(-2)\n    '
        '-4\n    """\n'
    )
    parts = {"helper": "def aux(x): return abs(x)", "main": "def twice(x): return x + abs(x)"}
    (episode,) = played(
        [{**ROWS[0], "prompt": prompt}],
        lambda task: lambda agent, *_: parts[agent],
        (1, 1),
        feedback={"mode": mode},
    )
    assert parts["main"] in page
    assert episode.root is not None
    second = episode.root.outcomes[0].next
    assert second is not None
    assert f"```\n{second.prompts['main'][-1].content}\n```" in page


# ---------------------------------------------------------------------------- repeated last rewards

NEARLY = (
    ("nothing", "nothing"),
    ("def aux(x):\n    return x", "def twice(x):\n    return x"),
    # fails only for negative numbers
    ("def aux(x):\n    return x", "def twice(x):\n    y = aux(x)\n    return y + abs(y)"),
)
"""Answers of helper and main at turn one that do not solve the task."""
SOLUTION = {
    "helper": "def aux(x):\n    return x",
    "main": "def twice(x):\n    y = aux(x)\n    return y + y",
}
"""A solution that reaches every reward level.

A solution that reaches fewer, such as a main that only calls the helper, may earn less than a good
attempt.
"""


def solves_late(task: Task) -> Callable[[str, int, int], str]:
    """Sample 0 solves the task at once.

    The others answer with an item of NEARLY at turn one, and with the same solution at turn two.
    """

    def say(agent: str, turn: int, sample: int) -> str:
        if sample == 0 or turn == 1:
            return SOLUTION[agent]
        return NEARLY[sample - 1][0 if agent == "helper" else 1]

    return say


@pytest.mark.parametrize(
    "reward", widely([{}, {"shift": -4.0}, {"scale": 10.0, "shift": 1.0}], keep=[{"shift": -4.0}])
)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_solving_at_turn_one_never_earns_less_than_solving_at_turn_two(tmp_path, reward, gamma):
    path = tmp_path / "episodes.jsonl"
    with path.open("w") as file:
        for episode in played(ROWS[:1], solves_late, (4, 1), reward=reward):
            write_episode(file, episode)
    recorded = read_episodes(path).episodes
    (root,) = [episode.root for episode in recorded]
    assert [outcome.end for outcome in root.outcomes] == ["done", None, None, None]
    solved = [root.outcomes[0], *(outcome.next.outcomes[0] for outcome in root.outcomes[1:])]
    assert [outcome.terms["success"] for outcome in solved] == [1.0] * 4

    def returns(repeat_last_reward: bool) -> list[float]:
        algorithm = resolve(
            "mareinforce", {"repeat_last_reward": repeat_last_reward, "gamma": gamma}
        )
        samples = assign_credit(recorded, Scores(), algorithm, CreditState(), TEAM, turns=2).samples
        return [
            sample.advantage for sample in samples if sample.turn == 0 and sample.id.agent == "main"
        ]

    early, *late = returns(repeat_last_reward=True)
    assert early >= max(late)
    assert late == sorted(late)
    early, *late = returns(repeat_last_reward=False)
    assert (early < max(late)) == ("shift" not in reward or reward["shift"] > 0)
