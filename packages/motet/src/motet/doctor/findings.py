"""What the facts about a machine mean for Motet: findings, their cost, and how to mend them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from motet.doctor.versions import Unmet

GIB = 2**30
OLDEST_PYTHON = (3, 11)
LITTLE_DISK, NO_DISK = 20 * GIB, GIB
LITTLE_SHARED_MEMORY = 2 * GIB
LITTLE_MEMORY = 4 * GIB


@dataclass(frozen=True)
class GpuFacts:
    """One GPU, as its driver describes it. Memory in bytes."""

    name: str
    memory: int
    free: int
    driver: str


@dataclass(frozen=True)
class MachineFacts:
    """What was asked of a machine. Sizes are in bytes."""

    python: tuple[int, int, int]
    system: str
    """The operating system, such as Linux."""
    versions: Mapping[str, str]
    """Installed package -> version."""
    unmet: tuple[Unmet, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()
    torch_cuda: str | None = None
    """The CUDA version that torch is built for. None: a build without CUDA."""
    usable_gpus: int | None = None
    """The number of GPUs that torch can use. None: it was not asked."""
    sandbox: str | None = None
    """The level of protection, such as NAMESPACES. None: the sandbox does not start."""
    hub: Literal["reachable", "unreachable", "offline"] | None = None
    """offline: HF_HUB_OFFLINE is set. None: it was not asked."""
    hub_address: str = "https://huggingface.co"
    disk: Mapping[str, int] = field(default_factory=dict)
    """Folder -> free bytes."""
    memory: int | None = None
    shared_memory: int | None = None
    """Free bytes in /dev/shm. None: there is none."""
    cores: int = 1
    """CPU cores that this process may use."""
    threads: int | None = None
    """OMP_NUM_THREADS. None: not set."""


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


def findings(facts: MachineFacts) -> list[Finding]:
    """Return what the facts mean, one finding per part and per problem."""
    return [
        _python(facts),
        *_packages(facts),
        *_gpus(facts),
        *_cluster(facts),
        *_extras(facts),
        _sandbox(facts),
        _hub(facts),
        *_sizes(facts),
        _threads(facts),
    ]


def _python(facts: MachineFacts) -> Finding:
    found = ".".join(map(str, facts.python))
    if facts.python[:2] < OLDEST_PYTHON:
        need = "Motet needs Python 3.11 or newer"
        return Finding("Python", "broken", found, need, "make PYTHON=python3.12 install")
    return Finding("Python", "ok", f"{found}, {facts.system}")


def _packages(facts: MachineFacts) -> Iterator[Finding]:
    """What Motet requires, and then versions of other packages that do not go together."""
    own = [one for one in facts.unmet if one.package == "motet"]
    for one in own:
        got = "is not installed" if one.installed is None else f"is {one.installed}"
        costs = f"Motet requires {one.requirement}"
        mend = f'pip install "{one.requirement}"'
        yield Finding("packages", "broken", f"{_name(one)} {got}", costs, mend)
    if not own:
        shown = ("torch", "transformers", "peft", "datasets")
        versions = [f"{name} {facts.versions[name]}" for name in shown if name in facts.versions]
        yield Finding("packages", "ok", ", ".join(versions))
    for one in facts.unmet:
        if one.package == "motet":
            continue
        got = "which is not installed" if one.installed is None else f"got {one.installed}"
        yield Finding(
            "versions",
            "costs",
            f"{one.package} {facts.versions.get(one.package, '')} wants {one.requirement}, {got}",
            f"{one.package} may fail when it is imported",
            f'pip install "{one.requirement}"',
        )


def _name(unmet: Unmet) -> str:
    return unmet.requirement.partition("[")[0].split("<")[0].split(">")[0].split("=")[0]


def _gpus(facts: MachineFacts) -> Iterator[Finding]:
    if not facts.gpus:
        costs = "models run on the CPU: small ones in seconds per step; see docs/performance.md"
        yield Finding("GPU", "costs", "none", costs)
        return
    kinds: dict[str, list[GpuFacts]] = {}
    for gpu in facts.gpus:
        kinds.setdefault(gpu.name, []).append(gpu)
    shown = "; ".join(
        f"{len(each)} x {name}, {each[0].memory / GIB:.0f} GiB, "
        f"{min(gpu.free for gpu in each) / GIB:.0f} GiB free"
        for name, each in kinds.items()
    )
    shown = f"{shown}, driver {facts.gpus[0].driver}"
    if facts.torch_cuda is None:
        costs = "torch is a build without CUDA, so no GPU is used"
        yield Finding("GPU", "costs", shown, costs, "pip install --force-reinstall torch")
    elif not facts.usable_gpus:
        costs = f"torch is built for CUDA {facts.torch_cuda} and cannot use them"
        mend = f"update the driver to one for CUDA {facts.torch_cuda}, or install an older torch"
        yield Finding("GPU", "costs", shown, costs, mend)
    else:
        yield Finding("GPU", "ok", f"{shown}, CUDA {facts.torch_cuda}")
    busy = [gpu for gpu in facts.gpus if gpu.free < 0.5 * gpu.memory]
    if busy:
        yield Finding(
            "GPU",
            "costs",
            f"{len(busy)} of {len(facts.gpus)} have less than half of their memory free",
            "another process holds it, and a run may stop for lack of memory",
            "nvidia-smi shows the processes",
        )


def _cluster(facts: MachineFacts) -> Iterator[Finding]:
    costs = {
        "ray": "no `cluster:` section: every model shares one process",
        "vllm": "no `samplers.engine: vllm`: Motet's own sampler samples",
    }
    for name, cost in costs.items():
        if name in facts.versions:
            yield Finding(name, "ok", facts.versions[name])
        elif facts.system != "Linux" and name == "vllm":
            yield Finding(name, "costs", "not installed", f"{cost}; vLLM needs Linux")
        else:
            yield Finding(name, "costs", "not installed", cost, 'pip install "motet[cluster]"')
    shared = facts.shared_memory
    if "ray" in facts.versions and shared is not None and shared < LITTLE_SHARED_MEMORY:
        yield Finding(
            "/dev/shm",
            "costs",
            f"{shared / GIB:.1f} GiB free",
            "Ray keeps its objects on the disk instead, which is slow",
            "in a container: docker run --shm-size=8g",
        )


def _extras(facts: MachineFacts) -> Iterator[Finding]:
    rows = (
        ("math-verify", "maths", "answers in mathematics are compared by Motet's own rules"),
        ("bitsandbytes", "quantized", "no models in 8 or 4 bits, no adamw_8bit"),
        ("fastapi", "serve", "`motet verifier serve` does not start"),
        ("wandb", "wandb", "no logging to Weights & Biases"),
    )
    for name, extra, cost in rows:
        if name in facts.versions:
            yield Finding(name, "ok", facts.versions[name])
        else:
            yield Finding(name, "costs", "not installed", cost, f'pip install "motet[{extra}]"')


def _sandbox(facts: MachineFacts) -> Finding:
    level = facts.sandbox
    if level is None:
        costs = "environments that run code do not start"
        return Finding("sandbox", "broken", "does not start", costs, "motet needs fork and pipes")
    shown = level.lower()
    if level == "LIMITS":
        return Finding(
            "sandbox",
            "costs",
            shown,
            "environments that run code refuse this level",
            "run on Linux where the container allows seccomp, or accept less protection with "
            "sandbox.minimum_level=limits",
        )
    if level == "NAMESPACES":
        return Finding("sandbox", "ok", shown)
    missing = "Landlock and user namespaces" if level == "SECCOMP" else "user namespaces"
    costs = f"enough for every environment; {missing} would be a second wall"
    return Finding("sandbox", "ok", shown, costs)


def _hub(facts: MachineFacts) -> Finding:
    if facts.hub is None:
        return Finding("hub", "ok", f"{facts.hub_address} was not asked")
    if facts.hub == "reachable":
        return Finding("hub", "ok", f"{facts.hub_address} answers")
    cost = "only models and datasets that are folders here or in the cache"
    if facts.hub == "offline":
        return Finding("hub", "costs", "HF_HUB_OFFLINE is set", cost, "unset HF_HUB_OFFLINE")
    mend = "set HTTPS_PROXY or HF_ENDPOINT, or copy the cache (HF_HOME) from another machine"
    return Finding("hub", "costs", f"{facts.hub_address} does not answer", cost, mend)


def _sizes(facts: MachineFacts) -> Iterator[Finding]:
    for folder, free in facts.disk.items():
        shown, mend = f"{free / GIB:.0f} GiB free", f"free space in {folder}"
        if free < NO_DISK:
            cost = "checkpoints and episodes cannot be written"
            yield Finding(f"disk {folder}", "broken", shown, cost, mend)
        elif free < LITTLE_DISK:
            cost = "a checkpoint takes 12 bytes per trained weight: 84 GB for a full 7B policy"
            yield Finding(f"disk {folder}", "costs", shown, cost, mend)
        else:
            yield Finding(f"disk {folder}", "ok", shown)
    if facts.memory is not None:
        few = facts.memory < LITTLE_MEMORY
        cost = "too little for models above 0.1B parameters" if few else ""
        shown = f"{facts.memory / GIB:.0f} GiB"
        yield Finding("memory", "costs" if few else "ok", shown, cost)


def _threads(facts: MachineFacts) -> Finding:
    shown = f"{facts.cores} cores, OMP_NUM_THREADS " + (
        "not set" if facts.threads is None else str(facts.threads)
    )
    if facts.threads is not None and facts.threads > facts.cores:
        cost = f"{facts.threads} threads wait for {facts.cores} cores"
        mend = f"export OMP_NUM_THREADS={facts.cores}"
        return Finding("threads", "costs", shown, cost, mend)
    return Finding("threads", "ok", shown)
