"""The virtual environments of the peers.

Each has the peer's published release, Motet's own torch and the versions of constraints.txt. They
are made once, under build/peers. BENCH_PEERS names another folder, with existing environments, or
for new ones.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("BENCH_PEERS", ROOT / "build" / "peers")).resolve()
RELEASES = {"comlrl": "1.4.3", "trl": "1.16.0"}
LIBRARIES = ("torch", "transformers")
EXTRAS = {"trl": ("peft",)}
"""Further packages that a peer needs, in Motet's versions."""
SAY = (
    "import importlib.metadata as m, json, sys; print(json.dumps({name: m.version(name) for "
    "name in sys.argv[1:]}))"
)


OWN = ("motet", "config")
"""The sides that are Motet."""


def python_of(program: str) -> Path:
    """Return the interpreter that runs `program`; for Motet this is the current one."""
    return Path(sys.executable) if program in OWN else FOLDER / program / "bin" / "python"


def own() -> dict[str, str]:
    """Return the versions of the libraries that Motet uses; its peers must use the same."""
    return {library: version(library) for library in LIBRARIES}


def make(peer: str) -> str:
    """Return the release of `peer` in its environment. Makes a missing or incomplete environment.

    Raises: SystemExit if pip fails, or if the environment has other libraries than Motet.
    """
    extras = {extra: version(extra) for extra in EXTRAS.get(peer, ())}
    release, wanted = f"{peer}=={RELEASES[peer]}", {peer: RELEASES[peer], **own(), **extras}
    if _versions(peer, wanted) is None:
        print(
            f"making an environment for {release} in {FOLDER / peer}, once",
            file=sys.stderr,
            flush=True,
        )
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER / peer)], check=True)
        # The package index decides which build of torch (+cpu, +cu...) is installed, as it did for
        # Motet. The versions are compared below.
        packages = [
            "--constraint",
            str(ROOT / "constraints.txt"),
            f"torch=={version('torch').partition('+')[0]}",
            release,
            *extras,
        ]
        command = [str(python_of(peer)), "-m", "pip", "install", "--quiet", *packages]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"{release} could not be installed: see above what pip says")
    found = _versions(peer, wanted)
    if found != wanted:
        raise SystemExit(
            f"{FOLDER / peer} has {found}, expected {wanted}: remove that folder, and it is made "
            "anew"
        )
    return RELEASES[peer]


def _versions(peer: str, packages: Iterable[str]) -> dict[str, str] | None:
    """Return the versions in the environment of `peer`; None if a package is missing."""
    if not python_of(peer).exists():
        return None
    command = [str(python_of(peer)), "-c", SAY, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None
