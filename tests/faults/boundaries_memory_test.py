"""Devices without free memory.

The error is one line: what needed memory, how much, and which settings need less.
"""

import json

import pytest
import torch

import motet
from motet.errors import OutOfMemory
from motet.models import learner, memory, sampler
from tests.faults.boundary_games import seconds, small
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.small_runs import contents, rows, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
TABLE = "Faults injected"
CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 "
    "GiB\nmore lines"
)
PLACES = {
    "playing": (
        sampler,
        "decode",
        r"sampling \d+ answers of up to \d+ tokens.*train\.rows_per_batch \(256\).*"
        r"tokens_per_batch",
    ),
    "scoring": (
        sampler,
        "score_requests",
        r"scoring \d+ texts of up to \d+ tokens.*lower train\.token_budget \(16384\)",
    ),
    "learning": (
        learner,
        "forward",
        (
            r"training on \d+ answers of up to \d+ tokens to \d+ "
            r"prompts.*train\.token_budget.*checkpointing: true"
        ),
    ),
    "measuring": (
        learner,
        "forward",
        r"reading \d+ answers of up to \d+ tokens.* again.*train\.token_budget",
    ),
}


@pytest.mark.parametrize("what", widely(PLACES, keep=["learning"]))
def test_too_little_memory_names_the_knobs_and_the_sizes_and_the_run_goes_on(
    train, tell, tmp_path, monkeypatch, what
):
    module, name, message = PLACES[what]
    config = small("Harmed", algorithm={"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1})
    unbroken = train(config, runs=tmp_path / "unbroken")
    whole, called = getattr(module, name), []

    def full(*given, **named):
        called.append(1)
        if len(called) == {"playing": 12, "learning": 2}.get(what, 4):
            raise torch.OutOfMemoryError(CUDA)
        return whole(*given, **named)

    with monkeypatch.context() as patch, seconds() as took:
        patch.setattr(module, name, full)
        with pytest.raises(OutOfMemory, match=message) as caught:
            train(config)
    assert "\n" not in str(caught.value)
    assert "Tried to allocate 2.00 GiB" in str(caught.value)
    run = train(config, resume=True)
    assert json.dumps(rows(run)) == json.dumps(rows(unbroken))
    assert contents(run / "episodes") == contents(unbroken / "episodes")
    assert weights(run) == weights(unbroken)
    told = {"ended": "stopped, one line", "checkpoint": "resumed to the same bytes"}
    tell(TABLE, injected=f"out of memory while {what}", seconds=took(), **told)


def test_the_processors_own_allocator_is_understood():
    with (
        pytest.raises(
            OutOfMemory,
            match=facts("cpu … out of memory … trying … allocate memory … turn the knob"),
        ),
        memory.oom_hint("trying", "turn the knob", torch.device("cpu")),
    ):
        torch.empty(2**50, dtype=torch.uint8)


def test_another_error_stays_what_it_is():
    with (
        pytest.raises(RuntimeError, match="shapes differ"),
        memory.oom_hint("trying", "", torch.device("cpu")),
    ):
        raise RuntimeError("shapes differ")
    assert not issubclass(OutOfMemory, motet.ConfigError)
