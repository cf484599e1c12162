"""A team learns the same from a verifier in the process and from one behind a server."""

import json
import re
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from motet_verifier.model import Verifier
from tests.fixtures.model_folders import make_model_folder
from tests.fork_server import ForkedProcess
from tests.small_runs import LORA, ROOT, TINY, rows, weights

pytestmark = [
    pytest.mark.wide,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A random verifier whose scores are far apart."""
    place = tmp_path_factory.mktemp("judge")
    source = make_model_folder(place / "source", "qwen3", chat_template=True, seed=1, context=256)
    verifier = Verifier.new(source, lora=None, seed=0, device="cpu")
    nn.init.normal_(
        verifier.critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(2)
    )
    verifier.save(place / "judge")
    return place / "judge"


@pytest.fixture(scope="module")
def address(judge):
    """The address at which it is served."""
    code = "from motet.commands.main import main; main()"
    said = [
        sys.executable,
        "-c",
        code,
        "verifier",
        "serve",
        str(judge),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    with ForkedProcess(said, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        found = re.search(r"is served at (http://\S+) ", server.stdout.readline())
        yield found[1]
        server.terminate()


def config(verifier):
    return json.loads(json.dumps({
        "name": "paid",
        "threads": 1,
        "environment": {"name": "debate_tiny", "score": "verifier"},
        "models": {"tiny": {"embedded": {**TINY, "context": 256}, "device": "cpu"}},
        "policies": LORA,
        "team": {"a": "p", "b": "q"},
        "decode": {"max_new_tokens": 6},
        "rollout": {"samples": [4, 2]},
        "optimizer": {"learning_rate": 1e-3},
        "train": {"steps": 3, "tasks_per_step": 4},
        "evaluation": {"tasks": 8},
        "report": {"tensorboard": False},
        "verifier": verifier,
    }))  # fmt: skip


def test_rewards_of_a_server_train_as_those_of_the_process_do(judge, address, train, tmp_path):
    local = train(config({"folder": str(judge), "device": "cpu"}), runs=tmp_path / "local")
    served = train(config({"base_url": address, "batch_size": 3}), runs=tmp_path / "served")
    untrained = train(config({"constant": 0.5}), runs=tmp_path / "constant")
    first, other = rows(local), rows(served)
    assert [row.keys() for row in first] == [row.keys() for row in other]
    for one, two in zip(first, other, strict=True):
        assert two == pytest.approx(one, abs=1e-5)
    assert len({row["play/reward"] for row in first if "play/reward" in row}) == 3
    assert weights(local).keys() == weights(served).keys()
    moved = []
    for name in weights(local):
        mine, theirs, still = (load_file(run / "team" / name) for run in (local, served, untrained))
        for key, tensor in mine.items():
            torch.testing.assert_close(theirs[key], tensor, atol=1e-5, rtol=0.0)
            moved.append(float((still[key] - tensor).abs().max()))
    assert max(moved) > 1e-4  # the rewards' effect is much larger than the tolerance
