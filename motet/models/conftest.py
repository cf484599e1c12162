"""Model folders that the tests of this package share: written once, read often, never changed."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from motet.models import devices
from motet.models.backbone import Backbone
from motet.settings import Lora
from tests.fixtures.adapters import move_away
from tests.fixtures.model_folders import ARCHITECTURES, Architecture, make_model_folder

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


@pytest.fixture(params=ARCHITECTURES)
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
