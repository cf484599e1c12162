"""doctor: what this machine has of what Motet uses."""

from pathlib import Path

from motet.doctor.findings import Finding, findings
from motet.doctor.machine import ask_machine


def doctor(*, runs: str | Path = "runs", ask_hub: bool = True) -> list[Finding]:
    """Return what this machine has, what each missing thing costs, and how to mend it.

    Args:
        runs: the folder that contains the run folders.
        ask_hub: whether to send a request to the hub.
    """
    return findings(ask_machine(Path(runs), ask_hub))
