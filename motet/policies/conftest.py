"""Model folders that the tests of this room share: written once, read by many, never changed."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from motet.policies import devices
from motet.policies.backbone import Backbone
from motet.policies.testing import ARCHITECTURES, Architecture, make_model_folder
from motet.settings import Lora

DEVICES = [
    "cpu",
    *(["cuda"] if devices.cuda_count() else []),
    *(["mps"] if devices.mps_available() else []),
]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`folder_of(architecture, chat_template=False)`."""

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
    """`with_adapter(folder, device)`: a backbone with an adapter "a" that is no longer equal to the base."""

    def load(folder: Path, device: str = "cpu") -> Backbone:
        backbone = Backbone.load(folder, device=device)
        backbone.add_adapter("a", Lora(rank=4), seed=7)
        move_away(backbone, "a")
        return backbone

    return load


def move_away(backbone: Backbone, adapter: str) -> None:
    """Gives an adapter's second factors something other than 0, as training would."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in backbone.parameters_of(adapter):
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.device)
