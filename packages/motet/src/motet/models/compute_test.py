"""A dtype is refused where the device or the training cannot use it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from motet.errors import ConfigError
from motet.models import devices
from motet.models.backbone import Backbone
from motet.models.compute import check_dtype
from tests.fixtures.messages import facts

FIRST = torch.device("cuda:0")


def test_a_dtype_that_cannot_work_is_refused(folder_of: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match=facts("float16 … not supported … cpu")):
        Backbone.load(folder_of(), device="cpu", dtype="float16")
    with pytest.raises(ConfigError, match="got dtype 'int8', expected one of: float32"):
        Backbone.load(folder_of(), dtype="int8")


def test_bfloat16_is_refused_on_a_gpu_that_does_not_compute_in_it_and_float16_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "cuda_name", lambda device: f"Tesla T4 as {device}")
    monkeypatch.setattr(devices, "cuda_computes_bfloat16", lambda device: False)
    check_dtype("float16", FIRST, trainable_full=False)
    with pytest.raises(ConfigError, match=facts("bfloat16 … Tesla T4 … cuda:0 … float32")):
        check_dtype("bfloat16", FIRST, trainable_full=False)
    monkeypatch.setattr(devices, "cuda_computes_bfloat16", lambda device: True)
    check_dtype("bfloat16", FIRST, trainable_full=True)
