"""All rows of one machine, as JSON and as a page."""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from tables import page, replaced


def machine(device: str) -> str:
    """Return the name of the GPU, or the name that the kernel gives the processor."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    told = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(": ")[2] for line in told if line.startswith("model name")]
    return f"{next(iter(names), platform.processor())}, {os.cpu_count()} cores"


def earlier(file: Path, machine: str, versions: dict[str, str]) -> dict[str, Any]:
    """Return the record to continue.

    This is the last one, or an empty one if that is of another machine or other versions.
    """
    empty = {"machine": machine, "versions": versions, "rows": []}
    if not file.exists():
        return empty
    last = json.loads(file.read_text())
    if last["machine"] != machine or last["versions"] | versions != versions | last["versions"]:
        print(
            f"{file.name} is of another machine or other versions: it is begun anew",
            file=sys.stderr,
        )
        return empty
    return {**last, "versions": last["versions"] | versions}


def save(record: dict[str, Any], file: Path, shown: Path | None) -> None:
    """Write the record, and its tables into the page `shown` if there is one."""
    file.parent.mkdir(exist_ok=True)
    ordered = {key: record[key] for key in ("machine", "date", "versions", "limits", "rows")}
    file.write_text(json.dumps(ordered, indent=1) + "\n")
    if shown is not None:
        shown.write_text(replaced(shown.read_text(), page(record)))
