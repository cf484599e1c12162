"""A local Ray, and vLLM engines that all tests share: an engine takes a minute to start."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from motet.models.backbone import Backbone, Policy
from motet.models.tiny import make_tiny
from motet.settings import Lora, TinyModel
from motet_cluster.actors import started
from tests.fixtures.adapters import move_away
from tests.vllm.engines import RealEngines, real_engines

Kind = Literal["full", "lora"]


@pytest.fixture(scope="module")
def local_ray() -> Iterator[ExitStack]:
    """A Ray for the tests of a module, and a stack that ends before it."""
    with started(None, 8), ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with tied embeddings, whose tokens are far from equally likely."""
    corpus = [f"# add {number}\ndef f(x):\n    return x + {number}\n" for number in range(200)]
    folder = tmp_path_factory.mktemp("base") / "model"
    return make_tiny(folder, corpus, TinyModel(initializer_range=0.1), seed=1)


@pytest.fixture(scope="session")
def policies_of(base: Path) -> Callable[[Kind, str], dict[str, Policy]]:
    """`policies_of(kind, dtype)` loads one full policy, or two adapters on one base."""

    def load(kind: Kind, dtype: str) -> dict[str, Policy]:
        full = kind == "full"
        backbone = Backbone.load(base, device="cpu", dtype=dtype, trainable_full=full)  # type: ignore[arg-type]
        if full:
            return {"main": Policy("main", backbone)}
        for seed, name in enumerate(("aux", "main")):
            backbone.add_adapter(name, Lora(rank=8), seed)
            move_away(backbone, name)
        backbone.sync_from_master()
        return {name: Policy(name, backbone, name) for name in ("aux", "main")}

    return load


@pytest.fixture(scope="module")
def engines_of(
    local_ray: ExitStack, base: Path, policies_of: Callable[[Kind, str], dict[str, Policy]]
) -> Callable[[Kind, str], RealEngines]:
    """`engines_of(kind, dtype)` returns a sampler with a real engine, started once per module."""

    @cache
    def start(kind: Kind, dtype: str) -> RealEngines:
        found = real_engines(local_ray, str(base), policies_of(kind, dtype), dtype)
        asyncio.run(found.publisher.load())
        return found

    return start
