"""Exported weights are the policy's own, and the noise of a rehearsal leaves no trace."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from motet.models.backbone import Backbone, Policy
from motet.models.tiny import make_tiny
from motet.settings import Lora, TinyModel
from motet_cluster.home import disturb, exported, undisturb
from motet_cluster.shards import HomeRanks, meeting_store
from tests.fork_server import run_ranks

SHAPE = TinyModel(hidden_size=32, layers=1, heads=2, kv_heads=1, feed_forward=32, vocabulary=258)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny") / "m", ["a b"], SHAPE, seed=3)


def full(folder: Path, dtype: str = "float32") -> Policy:
    backbone = Backbone.load(folder, device="cpu", dtype=dtype, trainable_full=True)  # type: ignore[arg-type]
    return Policy("p", backbone)


def adapter(folder: Path) -> Policy:
    backbone = Backbone.load(folder, device="cpu")
    backbone.add_adapter("p", Lora(rank=2), seed=1)
    return Policy("p", backbone, "p")


def test_a_full_policy_is_exported_as_its_checkpoint(folder: Path) -> None:
    policy = full(folder)
    files = exported(policy)
    assert list(files) == ["model.safetensors"]
    tensors = load(files["model.safetensors"])
    own = dict(policy.backbone.model.named_parameters())
    assert tensors.keys() == own.keys()
    assert all(torch.equal(tensors[name], own[name]) for name in own)


def test_an_adapter_is_exported_without_its_base(folder: Path) -> None:
    files = exported(adapter(folder))
    assert list(files) == ["adapter_config.json", "adapter_model.safetensors"]
    assert all(".lora_" in name for name in load(files["adapter_model.safetensors"]))


@pytest.mark.parametrize("kind", ["full", "bfloat16", "adapter"])
def test_noise_moves_every_weight_and_is_taken_back_to_the_bit(folder: Path, kind: str) -> None:
    policy = adapter(folder) if kind == "adapter" else full(folder, kind.replace("full", "float32"))
    before = exported(policy)
    weights = [weight.detach().clone() for weight in policy.parameters()]
    kept = disturb(policy, seed=0)
    for weight, old in zip(policy.parameters(), weights, strict=True):
        moved = float((weight.detach() - old).square().mean().sqrt())
        size = float(old.square().mean().sqrt())
        # Noise of a fifth of the weights' size; of 0.02 on a matrix of zeros.
        assert moved == pytest.approx(0.2 * size if size else 0.02, rel=0.5)
    assert exported(policy) != before
    undisturb(policy, kept)
    assert exported(policy) == before


def test_the_noise_follows_from_the_seed(folder: Path) -> None:
    first, second, other = full(folder), full(folder), full(folder)
    disturb(first, seed=0)
    disturb(second, seed=0)
    disturb(other, seed=1)
    assert exported(first) == exported(second) != exported(other)


def _two(rank: int, meet: str, folder: Path, out: Path) -> None:
    torch.set_num_threads(1)
    policy = full(folder, "bfloat16")
    policy.backbone.shard(HomeRanks(rank, 2, meet, 300.0, torch.device("cpu")))
    start = exported(policy)
    kept = disturb(policy, seed=0)
    noisy = exported(policy)
    undisturb(policy, kept)
    again = exported(policy)
    if rank:
        assert start == noisy == again == {}
    else:
        assert start == again
        (out / "start").write_bytes(start["model.safetensors"])
        (out / "noisy").write_bytes(noisy["model.safetensors"])


@pytest.mark.wide
def test_two_processes_export_and_disturb_what_one_does(folder: Path, tmp_path: Path) -> None:
    store = meeting_store("127.0.0.1")
    meet = f"127.0.0.1:{store.port}"
    run_ranks(_two, meet, folder, tmp_path)
    policy = full(folder, "bfloat16")
    for name in ("start", "noisy"):
        found, expected = load((tmp_path / name).read_bytes()), load(exported(policy).popitem()[1])
        assert found.keys() == expected.keys()
        assert all(torch.allclose(found[key], expected[key], atol=1e-6) for key in found)
        disturb(policy, seed=0)
