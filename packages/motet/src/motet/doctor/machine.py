"""Ask this machine for the facts of `MachineFacts`. Takes about a second without a GPU.

vLLM and Ray are not imported: their versions come from the metadata of the installed packages.
torch is imported only if there is a GPU.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from codejudge import Level, Sandbox
from motet.doctor.findings import GpuFacts, MachineFacts
from motet.doctor.versions import (
    CHECKED,
    EXTRAS,
    installed_requirements,
    installed_versions,
    required_names,
    unmet_requirements,
)
from motet.errors import MotetError

SMI_SECONDS = 10.0
HUB_SECONDS = 3.0


def ask_machine(runs: Path, ask_hub: bool = True) -> MachineFacts:
    """Return the facts about this machine.

    Args:
        runs: the folder that contains the run folders; it need not exist.
        ask_hub: whether to send a request to the hub.
    """
    requirements = installed_requirements(CHECKED)
    versions = installed_versions([*CHECKED, *EXTRAS, *required_names(requirements)])
    gpus, cuda = nvidia_gpus(), torch_cuda()
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return MachineFacts(
        python=sys.version_info[:3],
        system=platform.system(),
        versions=versions,
        unmet=tuple(unmet_requirements(requirements, versions)),
        gpus=gpus,
        torch_cuda=cuda,
        usable_gpus=_usable_gpus() if gpus and cuda is not None else None,
        sandbox=sandbox_level(),
        hub=hub_state(address) if ask_hub else None,
        hub_address=address,
        disk={str(folder): free for folder, free in _free_disk(runs)},
        memory=_memory(),
        shared_memory=shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None,
        cores=_cores(),
        threads=int(threads) if threads.isdecimal() else None,
    )


def nvidia_gpus() -> tuple[GpuFacts, ...]:
    """Return the GPUs that the driver's nvidia-smi lists. Empty without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    try:
        said = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=SMI_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return parsed_gpus(said)


def parsed_gpus(said: str) -> tuple[GpuFacts, ...]:
    """Read lines `name, total MiB, free MiB, driver`. Lines of another form are left out."""
    found = []
    for line in said.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[1].isdecimal() and parts[2].isdecimal():
            total, free = (int(part) * 2**20 for part in parts[1:3])
            found.append(GpuFacts(parts[0], total, free, parts[3]))
    return tuple(found)


def torch_cuda() -> str | None:
    """Return the CUDA version that the installed torch is built for, without importing it."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version = Path(spec.origin).with_name("version.py")
    if not version.is_file():
        return None
    found = re.search(r"^cuda\b[^=]*= '([\d.]+)'", version.read_text(encoding="utf-8"), re.M)
    return found[1] if found else None


def _usable_gpus() -> int:
    from motet.models import devices

    return devices.cuda_count()


def sandbox_level() -> str | None:
    """Return the name of the level that the sandbox reaches here. None: it does not start."""
    try:
        with Sandbox(1, minimum=Level.LIMITS) as sandbox:
            return sandbox.level.name
    except (MotetError, OSError):
        return None


def hub_state(address: str) -> Literal["reachable", "unreachable", "offline"]:
    """Send one request to the hub. An answer of any status counts as reachable."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "offline"
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=HUB_SECONDS):
            return "reachable"
    except urllib.error.HTTPError:
        return "reachable"
    except (OSError, ValueError):
        return "unreachable"


def _free_disk(runs: Path) -> list[tuple[Path, int]]:
    """Return the folders of runs and of the hub's cache with their free bytes; one of a disk."""
    cache = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    found: list[tuple[Path, int]] = []
    devices = set()
    for wanted in (runs.absolute(), Path(cache).absolute()):
        there = next(folder for folder in (wanted, *wanted.parents) if folder.exists())
        device = there.stat().st_dev
        if device not in devices:
            devices.add(device)
            found.append((wanted, shutil.disk_usage(there).free))
    return found


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
