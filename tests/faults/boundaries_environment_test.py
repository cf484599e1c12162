"""Environments that raise or never return, and tokenizers that fail.

Each failure is counted by its cause, and never becomes a reward.
"""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from transformers import PreTrainedTokenizerBase

import motet
from motet.models import prompts
from motet.user_code import retries
from motet.user_code.timeouts import within
from tests.faults.boundary_games import HERE, causes, check_figures, recorded, seconds, small
from tests.fixtures.messages import facts, says
from tests.small_runs import ROOT, contents, rows, summary, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.slow,
]
TABLE = "Faults injected"


def told(tell, what: str, found, took, checkpoint: str = "") -> None:
    counted = ", ".join(f"{cause} x{count}" for cause, count in sorted(found.items())) or "none"
    tell(
        TABLE,
        injected=what,
        ended="finished",
        faults=counted,
        seconds=took(),
        checkpoint=checkpoint,
    )


@pytest.mark.parametrize("harm", [1, 2])
@pytest.mark.parametrize("place", ["start", "observe", "step", "close"])
def test_what_an_environment_raises_is_counted_and_the_survivors_teach(train, tell, place, harm):
    config = small("Harmed", game={"raises": place, "harm": harm}, train={"max_fault_share": 1.0})
    with seconds() as took:
        run = train(config)
    found = causes(run)
    assert set(found) == {"environment/LookupError"}
    check_figures(run)
    assert any(one.fault is None for one in recorded(run))
    before = rows(run), weights(run), contents(run / "episodes")
    train(config, resume=True)
    assert before == (rows(run), weights(run), contents(run / "episodes"))
    told(
        tell, f"environment raises in {place}, seed {harm}", found, took, "resumed: nothing changed"
    )


@pytest.mark.parametrize("place", ["start", "step"])
def test_an_environment_that_lost_a_connection_is_asked_again(
    train, tell, monkeypatch, tmp_path, place
):
    waits = []
    monkeypatch.setattr(
        retries, "_pause", lambda seconds: waits.append(seconds) or asyncio.sleep(0)
    )
    with seconds() as took:
        run = train(small("Harmed", game={"raises": place, "passes": True}))
    sound = train(small("Harmed"), runs=tmp_path / "sound")
    assert len(waits) >= 2
    assert set(waits) == {0.5}
    assert causes(run) == {}
    assert (rows(run), weights(run), contents(run / "episodes")) == (
        rows(sound), weights(sound), contents(sound / "episodes")
    )  # fmt: skip
    told(
        tell,
        f"environment loses its connection in {place}, {len(waits)} times",
        causes(run),
        took,
        "as unbroken",
    )


HANGS = [("awaits", place) for place in ("start", "step", "close")]
HANGS += [("sleeps", place) for place in ("start", "observe", "step", "close")]
HANGS += [(how, "step") for how in ("computes", "reads", "searches")]


@pytest.mark.parametrize(("how", "place"), HANGS)
def test_an_environment_that_never_ends_is_a_fault_after_its_limit(train, tell, place, how):
    limits = {"rollout": {"timeout_seconds": 0.3}, "train": {"steps": 2, "max_fault_share": 1.0}}
    with seconds() as took:
        run = train(small("Harmed", game={"hangs": place, "how": how}, **limits))
    found = causes(run)
    assert set(found) == {"environment/timeout"}
    check_figures(run)
    faults = [one.fault for one in recorded(run) if one.fault is not None]
    messages = [one.message for one in faults if one.cause == "timeout"]
    assert all(
        "did not end within 0.3 s" in text and "rollout.timeout_seconds" in text
        for text in messages
    )
    told(tell, f"environment {how} for ever in {place}", found, took)


@pytest.mark.parametrize("reward", ["hanging_reward", "sleeping_reward"])
def test_a_reward_that_never_ends_is_a_fault_after_its_limit(train, tell, reward):
    config = small(
        "Harmed",
        reward={"name": f"{HERE}:{reward}"},
        rollout={"timeout_seconds": 0.3, "samples": [2]},
        train={"steps": 1, "max_fault_share": 1.0},
    )
    with seconds() as took:
        run = train(config)
    odd = [one for one in recorded(run) if one.task.fields["number"] % 2]
    assert odd
    assert all(one.fault is not None and one.fault.cause == "timeout" for one in odd)
    assert summary(run)["heldout"]["after"]["reward"] == 0.25
    told(tell, f"{reward} never ends", {"environment/timeout": len(odd)}, took)


@pytest.mark.parametrize(
    ("how", "place"), [("awaits", "start"), ("sleeps", "start"), ("sleeps", "observe")]
)
def test_an_environment_that_never_ends_before_the_run_begins_is_one_line(train, tell, how, place):
    game = {"hangs": place, "how": how, "share": 1.0, "spared": -1}
    with (
        seconds() as took,
        pytest.raises(motet.MotetError, match=rf"{place} did not end within 0\.3 s"),
    ):
        train(small("Harmed", game=game, rollout={"timeout_seconds": 0.3}))
    tell(
        TABLE,
        injected=f"environment {how} for ever at first",
        ended="stopped, one line",
        faults="",
        seconds=took(),
    )


@pytest.mark.parametrize(("how", "code"), [("a thread", 0), ("a pool", 0), ("is deaf", 1)])
def test_a_command_ends_whatever_its_environment_does(motet_command, tell, how, code):
    """A thread cannot be ended, but nothing waits for it.

    C code that ignores signals is ended with the process, which reports that.
    """
    game = {"hangs": "step", "how": how}
    limits = {"rollout": {"timeout_seconds": 0.3}, "train": {"steps": 1, "max_fault_share": 1.0}}
    with seconds() as took:
        ended, run = motet_command(small("Harmed", game=game, **limits))
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert says(ended.stderr, "error: step … cannot be interrupted") == (code == 1)
    found = {}
    if code == 0:
        found = causes(run)
        assert set(found) == {"environment/timeout"}
    told(tell, f"environment is in {how} for ever: exit {code}", found, took)


def test_an_evaluation_counts_a_step_that_never_ends(tell):
    config = small(
        "Harmed", game={"hangs": "step", "how": "sleeps"}, rollout={"timeout_seconds": 0.3}
    )
    with seconds() as took:
        counted = motet.evaluate(config, show="silent").causes
    assert set(counted) == {"environment/timeout"}
    told(tell, "environment sleeps in step, evaluated", counted, took)


@pytest.fixture
def motet_command(tmp_path):
    def train(config):
        (tmp_path / "run.yaml").write_text(json.dumps(config))
        line = ["train", str(tmp_path / "run.yaml"), "--runs", str(tmp_path / "runs")]
        ended = subprocess.run(
            [sys.executable, "-c", "from motet.commands.main import main; main()", *line],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return ended, tmp_path / "runs" / "run"

    return train


def test_without_a_limit_it_would_wait():
    async def forever() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await within(None, "step", lambda: asyncio.Event().wait())

    asyncio.run(forever())


# --------------------------------------------------------------------------------------- tokenizers


def test_a_tokenizer_that_fails_at_a_prompt_costs_that_game(train, tell, monkeypatch):
    whole = prompts._ids

    def fails(tokenizer, prompt):
        if "1 " in str(prompt)[:8]:  # the prompts of tasks 1 and 101
            raise ValueError("unknown sign")
        return whole(tokenizer, prompt)

    monkeypatch.setattr(prompts, "_ids", fails)
    with seconds() as took:
        run = train(small("Harmed", train={"max_fault_share": 1.0, "steps": 2}))
    found = causes(run)
    assert set(found) == {"sampler/tokenizer"}
    lost = [one for one in recorded(run) if one.fault is not None]
    assert {one.task.fields["number"] for one in lost} == {1, 101}
    assert "ValueError: unknown sign" in lost[0].fault.message
    check_figures(run)
    told(tell, "tokenizer raises at some prompts", found, took)


@pytest.mark.parametrize("stop", [(), ("~",)])
def test_a_tokenizer_that_fails_at_an_answer_costs_what_asked_for_it(
    train, tell, monkeypatch, stop
):
    whole = PreTrainedTokenizerBase.batch_decode

    def fails(self, sequences, *more, **settings):
        if any(len(row) == 3 and row[0] % 16 == 0 for row in sequences):
            raise UnicodeError("no such token")
        return whole(self, sequences, *more, **settings)

    monkeypatch.setattr(PreTrainedTokenizerBase, "batch_decode", fails)
    with seconds() as took:
        run = train(
            small(
                "Harmed", decode={"max_new_tokens": 3, "stop": stop}, train={"max_fault_share": 1.0}
            )
        )
    found = causes(run)
    assert set(found) == {"sampler/tokenizer"}
    check_figures(run)
    survivors = [one for one in recorded(run) if one.root is not None]
    drawn = [
        answer for one in survivors for answers in one.root.samples.values() for answer in answers
    ]
    assert drawn
    assert not [
        answer for answer in drawn if len(answer.tokens) == 3 and answer.tokens[0] % 16 == 0
    ]
    told(
        tell,
        f"tokenizer raises at some answers{', with stop strings' if stop else ''}",
        found,
        took,
    )


# --------------------------------------------------------------------------------- what stops a run


def test_more_faults_than_allowed_end_in_one_line_and_pay_nothing(train, tell, tmp_path):
    config = small("Harmed", game={"raises": "step", "share": 1.0, "spared": -1})
    with (
        seconds() as took,
        pytest.raises(motet.MotetError, match=facts("100% … joint actions failed")),
    ):
        train(config, [], runs=tmp_path / "runs")
    told_lines = (tmp_path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
    assert all("play/reward" not in json.loads(line) for line in told_lines)
    tell(
        TABLE,
        injected="every step raises",
        ended="stopped, one line",
        faults="100%",
        seconds=took(),
        checkpoint="",
    )
