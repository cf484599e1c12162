"""Folders and short runs that several reports read."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from motet.api.loaded import LoadedRun
from tests.reports.small_teams import TWO, trained
from tests.reports.tiny_models import random_model, tokenizer


@pytest.fixture(scope="session")
def tok() -> PreTrainedTokenizerFast:
    return tokenizer()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, tok: PreTrainedTokenizerFast) -> Path:
    """A random model with tied embeddings and a ChatML template."""
    return random_model(tmp_path_factory.mktemp("random") / "model", tok)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> LoadedRun:
    """Three steps of two agents, each with an adapter, at temperature .7, with a KL term.

    Four tasks; step 3 begins the second pass over them. Every step is kept as a checkpoint.
    """
    rows = [{"q": name} for name in ("sea", "snow and rain", "sun", "moon")]
    return trained(
        tmp_path_factory.mktemp("pair"), folder, "decode.temperature=0.7",
        "algorithm.kl_in=loss", "algorithm.kl_coefficient=0.01", "train.checkpoint_every=1",
        "train.keep_every=1", rows=rows, agents=TWO, steps=3,
    )  # fmt: skip
