"""Behaviour on a machine with GPUs, as far as a CPU can test it: a fake replaces `torch.cuda`."""

import asyncio
import ctypes
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import motet
from motet.batch import Rows
from motet.core import SampleRequest
from motet.errors import ConfigError, OutOfMemory
from motet.models import attention, decode, devices, memory
from motet.models.attention import attend
from motet.models.backbone import Backbone, Policy
from motet.models.decode import DecodeRequest, Rules, draw
from motet.models.devices import CudaMemory, resolve_device
from motet.models.forward import forward
from motet.models.rows import padded
from motet.models.sampler import LocalSampler
from motet.settings import Decode
from tests.fixtures.messages import facts, says

GIB = 2**30
FIRST = torch.device("cuda:0")
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that sets what the modules of this package see.

    Example: `machine(cuda=2, mps=False)`.
    """

    def pretend(cuda: int = 0, mps: bool = False) -> None:
        monkeypatch.setattr(devices, "cuda_count", lambda: cuda)
        monkeypatch.setattr(devices, "mps_available", lambda: mps)
        monkeypatch.setattr(
            devices, "cuda_memory", lambda device: CudaMemory(GIB, 16 * GIB, 12 * GIB)
        )

    return pretend


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the code paths for accelerators, on the CPU."""
    monkeypatch.setattr(devices, "is_cpu", lambda device: False)


# ------------------------------------------------------------------------------------ what is there


def test_auto_is_cuda_then_mps_then_cpu(machine: Machine) -> None:
    machine(cuda=2, mps=True)
    assert resolve_device("auto") == torch.device("cuda")
    machine(mps=True)
    assert resolve_device("auto") == torch.device("mps")
    machine()
    assert resolve_device("auto") == torch.device("cpu")


def test_a_device_that_is_not_there_is_refused() -> None:
    assert resolve_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(
        ConfigError,
        match=facts("'cuda:99' … does not exist … auto … cpu"),
    ):
        resolve_device("cuda:99")


def test_each_of_two_gpus_is_there_and_a_third_is_not(machine: Machine) -> None:
    machine(cuda=2)
    assert [resolve_device(name).index for name in ("cuda", "cuda:0", "cuda:1")] == [None, 0, 1]
    with pytest.raises(
        ConfigError,
        match=facts("'cuda:2' … does not exist … auto, cuda, cuda:0, cuda:1, cpu"),
    ):
        resolve_device("cuda:2")


def test_mps_is_a_device_where_it_is_there_alone(machine: Machine) -> None:
    machine(mps=True)
    assert resolve_device("mps") == torch.device("mps")
    machine(cuda=1)
    with pytest.raises(
        ConfigError,
        match=facts("'mps' … does not exist … auto, cuda, cuda:0, cpu"),
    ):
        resolve_device("mps")


def test_without_a_gpu_there_are_none() -> None:
    assert devices.cuda_count() >= 0
    assert devices.is_cpu(torch.device("cpu"))
    assert not any(devices.is_cpu(torch.device(name)) for name in ("cuda:0", "mps"))


# --------------------------------------------------------------------------------- too little of it


def test_a_gpu_that_is_full_says_how_full_in_one_line(machine: Machine) -> None:
    machine(cuda=1)
    said = (
        "CUDA out of memory. Tried to allocate 2.00 GiB.\nIf reserved but "
        "unallocated memory is large try ..."
    )
    with (
        pytest.raises(OutOfMemory) as caught,
        memory.oom_hint("playing 3 answers", "lower x", FIRST),
    ):
        raise torch.OutOfMemoryError(said)
    assert "\n" not in str(caught.value)
    assert says(
        caught.value,
        "cuda:0 … playing 3 answers … 1.0 of 16.0 GiB free … 12.0 GiB held … "
        "Tried to allocate 2.00 GiB … lower x … motet train CONFIG --dry-run",
    )


def test_of_mps_nothing_is_asked_that_cuda_alone_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(devices, "cuda_memory")
    with (
        pytest.raises(
            OutOfMemory,
            match=facts("mps … out of memory … playing … MPS backend out of memory … x"),
        ),
        memory.oom_hint("playing", "x", torch.device("mps")),
    ):
        raise torch.OutOfMemoryError("MPS backend out of memory")


@pytest.mark.parametrize(
    ("has", "computes"),
    [
        ({"avx512_f": True, "avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({}, False),
    ],
)
def test_a_cpu_computes_bfloat16_where_it_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, has: dict[str, bool], computes: bool
) -> None:
    monkeypatch.setattr(devices, "cpu_capabilities", lambda: has)
    assert devices.computes_bfloat16(torch.device("cpu")) is computes
    assert not devices.computes_bfloat16(torch.device("mps"))
    monkeypatch.setattr(devices, "cuda_computes_bfloat16", lambda device: not computes)
    assert devices.computes_bfloat16(FIRST) is not computes


def test_what_a_cpu_can_do_is_asked_of_pytorch() -> None:
    found = devices.cpu_capabilities()
    assert all(isinstance(name, str) for name in found)
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    if "avx512_bf16" in found:
        assert found["avx512_bf16"] == ("avx512_bf16" in flags)


# -------------------------------------------------------------------------------- the ways of a GPU


class Layer(torch.nn.Module):
    is_causal = True
    num_key_value_groups = 2


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 5])
def test_attention_gives_values_and_gradients_as_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, masked: bool, length: int
) -> None:
    draws = torch.Generator().manual_seed(0)
    parts = [
        torch.randn(shape, generator=draws)
        for shape in ((2, 4, length, 8), (2, 2, 7, 8), (2, 2, 7, 8))
    ]
    if length > 1 and not masked:
        parts[1:] = [part[:, :, :length] for part in parts[1:]]
    seen = (
        torch.ones(length, 7, dtype=torch.bool).tril(7 - length).expand(2, 1, -1, -1)
        if masked
        else None
    )
    found = []
    for on_cpu in (True, False):
        monkeypatch.setattr(devices, "is_cpu", lambda device, on_cpu=on_cpu: on_cpu)
        leaves = [part.clone().requires_grad_() for part in parts]
        out, _ = attend(Layer(), *leaves, seen)
        (out * torch.arange(out.numel()).view(out.shape)).sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_draws_of_a_whole_batch_are_those_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.Generator().manual_seed(0)
    logits_BV, uniform_B = torch.randn((9, 50), generator=draws), torch.rand(9, generator=draws)
    rules = Rules.of(
        [Decode(temperature=0.8, top_p=0.9)] * 9, [False] * 8 + [True], torch.device("cpu")
    )
    monkeypatch.setattr("motet.models.decode.CELLS", 100)
    in_parts = draw(logits_BV, uniform_B, rules)
    monkeypatch.setattr(devices, "is_cpu", lambda device: False)
    for one, other in zip(in_parts, draw(logits_BV, uniform_B, rules), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("shared", [False, True])
def test_log_probabilities_of_sampling_are_those_of_learning(
    folder_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(decode, "SHARED", 1 if shared else 10**9)
    backbone = Backbone.load(folder_of("llama"), device="cpu")
    assert backbone.model.config._attn_implementation == attention.NAME
    assert backbone.packs_sequences
    prompts = [[5, 60, 200], [17, 9, 270, 33, 8, 61]]
    requests = [
        DecodeRequest("p", of, Decode(max_new_tokens=8), key) for key, of in enumerate((0, 0, 1, 1))
    ]
    answers = decode.decode(backbone, prompts, requests)
    here = backbone.device
    rows = Rows(
        *padded(prompts, backbone.pad_id, "left", here),
        torch.tensor([request.prompt for request in requests]),
        *padded([answer.tokens for answer in answers], backbone.pad_id, "right", here),
    )
    with torch.no_grad():
        logp_BL, _ = forward(backbone, rows, torch.ones(4))
    for answer, logp_L in zip(answers, logp_BL, strict=True):
        assert logp_L[: len(answer.tokens)].tolist() == pytest.approx(answer.logprobs, abs=1e-4)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_sampling_has_a_thread_beside_the_one_that_learns_however_many_compute(
    folder_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sampler = LocalSampler({"a": Policy("a", Backbone.load(folder_of(), device="cpu"))})
    seen, decoded = set(), sampler._decode

    def spy(open_: object, batch: list) -> None:
        seen.add(threading.get_ident())
        decoded(open_, batch)

    sampler._decode = spy
    request = SampleRequest((0,), "a", "the quick", Decode(max_new_tokens=2), (1,))
    asyncio.run(sampler.sample([request]))
    assert len(seen) == 1
    assert threading.get_ident() not in seen


# ----------------------------------------------------------------------------------------- one door


def test_no_other_module_speaks_to_a_gpu() -> None:
    package = Path(motet.__file__).parent
    asks = re.compile(
        r"\btorch\.(cuda|backends\.mps|mps)\b|from torch import .*\bcuda\b|import torch\.cuda"
    )
    there = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(asks.search(line) for line in path.read_text().splitlines())
    }
    assert there == {"models/devices.py", "models/devices_test.py"}


# --------------------------------------------------------------------------------- the CPU's memory

FREED = """
import torch
from pathlib import Path
from motet.models import devices

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [torch.ones(size, dtype=torch.uint8) for _ in range(40) for size in (16 * 2**20, 1000)]
blocks = [block for block in blocks if len(block) == 1000]
freed = resident()
devices.SPARE = 10**12
devices.give_back(torch.device("cpu"))
kept = resident()
devices.SPARE = 256 * 2**20
devices.give_back(torch.device("cuda"))
elsewhere = resident()
devices.give_back(torch.device("cpu"))
print(freed - kept, freed - elsewhere, freed - resident())
"""
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""glibc takes blocks of up to 32 MB from its heap, and returns nothing by itself. Left alone it may
or may not do so: that depends on where the small blocks happen to lie."""


@pytest.mark.wide
@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="another C library keeps its memory otherwise",
)
def test_what_was_freed_goes_back_to_the_system_where_it_is_much():
    said = subprocess.run(
        [sys.executable, "-c", FREED],
        env={**os.environ, **KEPT},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    little, elsewhere, much = map(int, said.split())
    assert abs(little) < 2**20
    assert abs(elsewhere) < 2**20
    assert much > 500 * 2**20
