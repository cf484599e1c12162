"""What the home gives to vLLM's NCCL sender. No NCCL runs here: it needs two GPUs."""

from collections.abc import Callable
from typing import Any

import pytest

from motet.models.backbone import Policy
from motet_cluster.home import NcclSender
from motet_cluster.vllm_engine import VllmEngine
from tests.vllm.conftest import Kind

pytestmark = pytest.mark.slow


def test_the_sender_gets_the_policy_and_all_engines(
    monkeypatch: pytest.MonkeyPatch, policies_of: Callable[[Kind, str], dict[str, Policy]]
) -> None:
    from vllm.distributed.weight_transfer import base, factory, nccl_engine

    told: dict[str, Any] = {}

    def trainer_init(info: Any, *, client: Any, source: Any) -> Any:
        told.update(info=info, client=client, source=source)

    monkeypatch.setattr(factory.WeightTransferTrainerFactory, "trainer_init", trainer_init)
    policy = policies_of("full", "float32")["main"]
    engines = [object(), object()]
    NcclSender(policy, engines, gpus=2)
    assert isinstance(told["info"], nccl_engine.NCCLTrainerInitInfo)
    # The home, and two workers of each engine.
    assert (told["info"].world_size, told["info"].rank) == (5, 0)
    assert told["client"].handles == engines
    sent = {name: tensor.shape for name, tensor in told["source"]}
    own = dict(policy.backbone.model.named_parameters())
    assert sent == {name: weight.shape for name, weight in own.items()}
    assert all(
        callable(getattr(VllmEngine, verb))
        for verb in vars(base.VLLMWeightSyncClient)
        if verb.endswith(("_weights", "_update", "_engine"))
    )
