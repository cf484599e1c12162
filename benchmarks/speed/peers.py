"""The environments of the peers: each its published release, on Motet's own torch and on the versions of constraints.txt.

They are made once, under build/peers. BENCH_PEERS names another folder, with ready ones in it or to be made there.
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
"""What a peer needs besides, of Motet's own versions."""
SAY = "import importlib.metadata as m, json, sys; print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"


def python_of(program: str) -> Path:
    """The interpreter that runs `program`; for Motet this one."""
    return Path(sys.executable) if program == "motet" else FOLDER / program / "bin" / "python"


def own() -> dict[str, str]:
    """What Motet runs on, and its peers are to run on."""
    return {library: version(library) for library in LIBRARIES}


def make(peer: str) -> str:
    """The release of `peer` in its environment, which is made where it is absent or half made.

    Raises: SystemExit where pip fails, or where the environment has other libraries than Motet.
    """
    extras = {extra: version(extra) for extra in EXTRAS.get(peer, ())}
    release, wanted = f"{peer}=={RELEASES[peer]}", {peer: RELEASES[peer], **own(), **extras}
    if _versions(peer, wanted) is None:
        print(f"making an environment for {release} in {FOLDER / peer}, once", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER / peer)], check=True)
        # Which build of torch (+cpu, +cu...) comes is decided where pip looks, as it was for Motet, and compared below.
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
        raise SystemExit(f"{FOLDER / peer} has {found}, expected {wanted}: remove that folder, and it is made anew")
    return RELEASES[peer]


def _versions(peer: str, packages: Iterable[str]) -> dict[str, str] | None:
    """Those that the environment of `peer` has; None where something is missing."""
    if not python_of(peer).exists():
        return None
    command = [str(python_of(peer)), "-c", SAY, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None
