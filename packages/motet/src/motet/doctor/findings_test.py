"""Each finding on a machine that is made up."""

from dataclasses import replace

import pytest

from motet.doctor.findings import GIB, Finding, GpuFacts, MachineFacts, findings
from motet.doctor.versions import Unmet

H100 = GpuFacts("H100", 80 * GIB, 79 * GIB, "570.10")
WHOLE = MachineFacts(
    python=(3, 11, 7),
    system="Linux",
    versions={
        "torch": "2.13.0", "ray": "2.60.0", "vllm": "0.32.0", "math-verify": "0.9.0",
        "bitsandbytes": "0.46.1", "fastapi": "0.136.3", "wandb": "0.20.0",
    },
    gpus=(H100,) * 8,
    torch_cuda="12.8",
    usable_gpus=8,
    sandbox="NAMESPACES",
    hub="reachable",
    disk={"/runs": 500 * GIB},
    memory=512 * GIB,
    shared_memory=64 * GIB,
    cores=64,
    threads=8,
)  # fmt: skip


def of(facts: MachineFacts, part: str) -> Finding:
    """The one finding of a part that is not ok, or its only finding."""
    found = [one for one in findings(facts) if one.part == part]
    worse = [one for one in found if one.status != "ok"]
    (only,) = worse or found
    return only


def without(name: str) -> MachineFacts:
    return replace(WHOLE, versions={k: v for k, v in WHOLE.versions.items() if k != name})


def test_a_machine_with_everything_has_nothing_to_mend():
    found = findings(WHOLE)
    assert {one.status for one in found} == {"ok"}
    assert [one.mend for one in found if one.mend] == []
    assert of(WHOLE, "GPU").found == "8 x H100, 80 GiB, 79 GiB free, driver 570.10, CUDA 12.8"


def test_an_old_python_is_broken():
    found = of(replace(WHOLE, python=(3, 10, 2)), "Python")
    assert (found.status, found.found) == ("broken", "3.10.2")


def test_a_package_that_motet_requires_in_another_version_is_broken():
    unmet = (Unmet("motet", "peft<1,>=0.19", "0.10.0"),)
    found = of(replace(WHOLE, unmet=unmet), "packages")
    assert (found.status, found.found) == ("broken", "peft is 0.10.0")
    assert found.mend == 'pip install "peft<1,>=0.19"'
    missing = of(replace(WHOLE, unmet=(Unmet("motet", "peft<1,>=0.19", None),)), "packages")
    assert missing.found == "peft is not installed"


def test_versions_that_do_not_go_together_are_named_with_both_packages():
    unmet = (Unmet("vllm", "transformers<5.20", "5.23.0"),)
    found = of(replace(WHOLE, unmet=unmet), "versions")
    assert found.status == "costs"
    assert found.found == "vllm 0.32.0 wants transformers<5.20, got 5.23.0"
    assert found.mend == 'pip install "transformers<5.20"'


def test_without_a_gpu_models_run_on_the_cpu():
    found = of(replace(WHOLE, gpus=()), "GPU")
    assert found.status == "costs"
    assert "CPU" in found.costs


def test_gpus_that_torch_was_not_built_for():
    found = of(replace(WHOLE, torch_cuda=None, usable_gpus=None), "GPU")
    assert "without CUDA" in found.costs
    assert found.mend == "pip install --force-reinstall torch"


def test_gpus_with_a_driver_that_is_too_old():
    found = of(replace(WHOLE, usable_gpus=0), "GPU")
    assert "cannot use them" in found.costs
    assert "driver" in found.mend


def test_a_gpu_that_somebody_else_uses():
    busy = replace(H100, free=30 * GIB)
    found = of(replace(WHOLE, gpus=(H100, busy)), "GPU")
    assert found.found == "1 of 2 have less than half of their memory free"


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("ray", 'pip install "motet[cluster]"'),
        ("vllm", 'pip install "motet[cluster]"'),
        ("math-verify", 'pip install "motet[maths]"'),
        ("bitsandbytes", 'pip install "motet[quantized]"'),
        ("fastapi", 'pip install "motet[serve]"'),
        ("wandb", 'pip install "motet[wandb]"'),
    ],
)
def test_each_optional_package_has_a_cost_and_a_command(name, mend):
    found = of(without(name), name)
    assert (found.status, found.found, found.mend) == ("costs", "not installed", mend)
    assert found.costs


def test_vllm_cannot_be_installed_outside_linux():
    found = of(replace(without("vllm"), system="Darwin"), "vllm")
    assert "needs Linux" in found.costs
    assert found.mend == ""


def test_little_shared_memory_matters_to_ray_alone():
    little = replace(WHOLE, shared_memory=64 * 2**20)
    assert "--shm-size" in of(little, "/dev/shm").mend
    alone = replace(without("ray"), shared_memory=64 * 2**20)
    assert not [one for one in findings(alone) if one.part == "/dev/shm"]


@pytest.mark.parametrize(
    ("level", "status", "word"),
    [
        ("LANDLOCK", "ok", "user namespaces"),
        ("SECCOMP", "ok", "Landlock"),
        ("LIMITS", "costs", "refuse"),
        (None, "broken", "do not start"),
    ],
)
def test_the_sandbox_below_its_highest_level(level, status, word):
    found = of(replace(WHOLE, sandbox=level), "sandbox")
    assert found.status == status
    assert word in found.costs


@pytest.mark.parametrize(
    ("state", "status", "shown"),
    [
        ("unreachable", "costs", "https://huggingface.co does not answer"),
        ("offline", "costs", "HF_HUB_OFFLINE is set"),
        (None, "ok", "https://huggingface.co was not asked"),
    ],
)
def test_the_hub(state, status, shown):
    found = of(replace(WHOLE, hub=state), "hub")
    assert (found.status, found.found) == (status, shown)


def test_little_disk_costs_and_none_is_broken():
    little = of(replace(WHOLE, disk={"/runs": 5 * GIB}), "disk /runs")
    assert (little.status, little.found) == ("costs", "5 GiB free")
    none = of(replace(WHOLE, disk={"/runs": GIB // 2}), "disk /runs")
    assert none.status == "broken"


def test_little_memory():
    assert of(replace(WHOLE, memory=2 * GIB), "memory").status == "costs"


def test_more_threads_than_cores():
    found = of(replace(WHOLE, cores=2, threads=8), "threads")
    assert found.costs == "8 threads wait for 2 cores"
    assert found.mend == "export OMP_NUM_THREADS=2"
    assert of(replace(WHOLE, threads=None), "threads").found.endswith("not set")
