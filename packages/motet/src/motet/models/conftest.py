"""Model folders that the tests of this package share. Those of `folder_of` are never changed."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from motet.errors import ConfigError
from motet.models import devices
from motet.models.backbone import Backbone
from motet.settings import Lora
from tests.fixtures.adapters import move_away
from tests.fixtures.model_folders import ARCHITECTURES, Architecture, make_model_folder
from tests.fixtures.wide import widely

DEVICES = [
    "cpu",
    *(["cuda"] if devices.cuda_count() else []),
    *(["mps"] if devices.mps_available() else []),
]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function `folder_of(architecture, chat_template=False)`."""

    @cache
    def folder(architecture: Architecture = "qwen3", chat_template: bool = False) -> Path:
        path = tmp_path_factory.mktemp(architecture) / "model"
        return make_model_folder(path, architecture, chat_template=chat_template, seed=1)

    return folder


@pytest.fixture(params=widely(ARCHITECTURES, keep=["qwen3", "gpt2"]))
def architecture(request: pytest.FixtureRequest) -> Architecture:
    return request.param


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def with_adapter() -> Callable[[Path, str], Backbone]:
    """Return a function `with_adapter(folder, device)`.

    It loads a backbone with an adapter "a" that is no longer equal to the base.
    """

    def load(folder: Path, device: str = "cpu") -> Backbone:
        backbone = Backbone.load(folder, device=device)
        backbone.add_adapter("a", Lora(rank=4), seed=7)
        move_away(backbone, "a")
        return backbone

    return load


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model folder that the test may change."""
    return make_model_folder(tmp_path / "m", chat_template=True)


@pytest.fixture
def loaded() -> Callable[[Path], str]:
    """Return a function that loads a model folder and uses, then saves the model.

    An error must be a ConfigError of one line.
    """

    def load(model: Path) -> str:
        """Return "loaded" or "refused"."""
        try:
            backbone = Backbone.load(model, device="cpu")
            tokens = torch.tensor([backbone.tokenizer("the dog")["input_ids"] or [0]])
            backbone.model(input_ids=tokens)
            backbone.save_policy(None, model.parent / "saved")
        except ConfigError as error:
            said = str(error)
            assert said
            assert "\n" not in said, said
            assert len(said) < 2000
            return "refused"
        return "loaded"

    return load
