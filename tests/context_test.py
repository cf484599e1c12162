"""Every command that uses a model whose context is shortened says so."""

import json
from pathlib import Path

import pytest

import motet
import motet_verifier
from motet.core import Message
from motet_serve.http.http_server import Server
from motet_verifier.answers import LabelledAnswer, write_answers
from motet_verifier.model import Verifier
from motet_verifier.server_settings import VerifierServerSettings
from motet_verifier.settings import VerifierTraining
from tests.fixtures.model_folders import make_model_folder
from tests.small_runs import run_config

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
SAID = "is limited to 48 of 96 tokens"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = make_model_folder(tmp_path / "m", "llama", chat_template=True)
    said = json.loads((folder / "config.json").read_text())
    said["rope_parameters"] = {
        "rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "short_factor": [1.0] * 4,
        "long_factor": [2.0, 5.0, 9.0, 30.0], "original_max_position_embeddings": 48,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def test_evaluation_says_so_once_for_a_model(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    motet.evaluate(run_config(models={"tiny": {"path": str(model), "device": "cpu"}}))
    assert capsys.readouterr().err.count(SAID) == 1


def test_training_a_verifier_and_serving_it_say_so(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = VerifierTraining.model_validate(
        {"model": {"path": str(model), "device": "cpu"}, "epochs": 1, "held_out": 0.5}
    )
    answers = [
        LabelledAnswer(f"q{n // 2}", (Message("user", f"{n // 2}?"),), f"{n}", f"{n}", bool(n % 2))
        for n in range(8)
    ]
    write_answers(tmp_path / "answers.jsonl", answers)
    motet_verifier.train_verifier(settings, tmp_path / "answers.jsonl", tmp_path / "trained")
    assert capsys.readouterr().err.count(SAID) == 1
    Verifier.new(model, lora=None, seed=0, device="cpu").save(tmp_path / "verifier")
    monkeypatch.setattr(Server, "run", lambda server, **_: server._listening())
    for folder in (tmp_path / "trained", tmp_path / "verifier"):
        lines: list[str] = []
        settings = VerifierServerSettings(port=0, device="cpu")
        motet_verifier.serve_verifier(folder, settings=settings, say=lines.append)
        assert [SAID in line for line in lines] == [True, False]
