"""`motet chat` and `motet serve` with vLLM engines, beside Motet's own sampler."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import OpenAI

import motet
import motet_serve
from motet_serve.settings import SampledBy
from tests.cluster.conftest import placed, terminated
from tests.fixtures.messages import facts
from tests.served_team import Command
from tests.small_runs import LORA, run_config

pytest.importorskip("vllm", reason="vllm is not installed: make test-vllm")
pytestmark = pytest.mark.slow
QUESTIONS = ["12+39", "70-25", "80+11"]
HIGH = {"learning_rate": 0.05}
"""The adapters move so far that the base alone answers otherwise."""


def variety(task: motet.Task, texts: Mapping[str, str]) -> float:
    """A reward that random texts differ in."""
    return float(sum(len(set(text)) for text in texts.values()))


def debate(**sections: Any) -> dict[str, Any]:
    """A run whose team can be asked. vLLM on a CPU needs heads of width 32."""
    model = {"embedded": {"layers": 1, "initializer_range": 0.3}, "device": "cpu"}
    return run_config(
        environment={"name": "debate_tiny"},
        models={"tiny": model},
        decode={"max_new_tokens": 8},
        rollout={"samples": [2, 2]},
        reward={"name": f"{__file__}:variety"},
        **sections,
    )


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trained two adapters on one base."""
    runs = tmp_path_factory.mktemp("adapters")
    motet.train(debate(policies=LORA, optimizer=HIGH), runs=runs, show="silent")
    return runs / "run"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trained all weights of two policies."""
    runs = tmp_path_factory.mktemp("full")
    motet.train(debate(), runs=runs, show="silent")
    return runs / "run"


def said(team: Path, engine: SampledBy, *overrides: str) -> list[str]:
    """Return what every agent says to the questions when it takes the most likely tokens."""
    lines: list[str] = []
    unanswered = motet_serve.chat(
        team, overrides, lines=QUESTIONS, temperature=0.0, show_messages=True, engine=engine,
        write=lines.append, complain=lines.append, show="silent",
    )  # fmt: skip
    assert unanswered == 0, lines
    return lines


def test_adapters_of_a_run_and_of_its_export_answer_as_with_the_own_sampler(
    adapters: Path, tmp_path: Path
) -> None:
    own = said(adapters, "own")
    assert own != said(adapters / "config.yaml", "own"), "the adapters change the answers"
    assert said(adapters, "vllm") == own
    motet_serve.export_team(adapters, tmp_path / "out")
    assert said(tmp_path / "out", "vllm") == own


def test_full_policies_answer_as_with_the_own_sampler(full: Path) -> None:
    assert said(full, "vllm") == said(full, "own")


def answer(client: OpenAI, question: str, **settings: Any) -> str:
    asked = [{"role": "user", "content": question}]
    found = client.chat.completions.create(model="team", messages=asked, **settings)  # type: ignore[call-overload]
    return str(found.choices[0].message.content)


def test_the_server_answers_streams_and_survives_the_death_of_an_engine(full: Path) -> None:
    greedy = [line for line in said(full, "own") if line.startswith("team> ")]
    server = Command("serve", str(full), "--engine", "vllm", "--port", "0")
    try:
        with server.client() as client:
            for question, line in zip(QUESTIONS, greedy, strict=True):
                assert line == f"team> {answer(client, question, temperature=0).rstrip()}"
                # The most likely token alone is left, however hot the rest is.
                hot = answer(client, question, temperature=2, top_p=1e-6)
                assert line == f"team> {hot.rstrip()}"
            asked = [(QUESTIONS[seed % 3], seed) for seed in range(24)]
            alone = [answer(client, question, seed=seed) for question, seed in asked]
            assert len(set(alone)) > 12
            with ThreadPoolExecutor(24) as threads:
                beside = [threads.submit(answer, client, one, seed=seed) for one, seed in asked]
            assert [one.result() for one in beside] == alone
            pieces = client.chat.completions.create(
                model="team/a", messages=[{"role": "user", "content": "12+39"}], seed=1, stream=True
            )
            assert "".join(piece.choices[0].delta.content or "" for piece in pieces)

            engines = placed(server.process.pid, "VllmEngine")
            assert len(engines) == 2
            below = psutil.Process(server.process.pid).children(recursive=True)
            engines[0].kill()
            assert [answer(client, question, seed=seed) for question, seed in asked] == alone
        code, complaints = server.stop()
        assert (code, "Traceback" in complaints) == (0, False), complaints
        assert not terminated(below)
    finally:
        server.process.kill()
        server.process.communicate()


def test_a_temperature_that_vllm_refuses_is_refused_before_anything_starts(full: Path) -> None:
    with pytest.raises(motet.ConfigError, match=facts("team … temperature 3 … 0.01 to 2")):
        motet_serve.chat(full, lines=[], engine="vllm", temperature=3.0, show="silent")
