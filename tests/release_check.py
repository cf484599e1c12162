"""The first hour of a new user with the wheels of this repository: `make release-check`.

All wheels are built, and installed alone in a fresh environment of each Python that is there, with
the versions of constraints.txt. Then the commands of a newcomer run in an empty folder.

    make release-check PYTHONS="python3.11 python3.12"
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
WITHOUT_REQUIREMENTS = "motet_cluster"
"""The package whose requirements (Ray, vLLM) this check does not install."""
QUICKSTART = (
    "train quickstart warmup.steps=200 train.steps=10 evaluation.tasks=24 threads=1 "
    "report.tensorboard=true"
)
"""The quickstart, shortened to about a minute. The tracker shows that its library is installed."""
CONFIGS = """
import motet
from motet.config.paths import named_configs

for name in named_configs():
    if "/" in name:  # layers over other configs, and configs of `motet verifier`
        continue
    more = ["verifier.folder=."] if name == "debate_verifier" else []
    config = motet.read_config(name, more)
    data = [one.name for one in (config.data.train, config.data.eval) if one is not None]
    paths = [one.path for one in config.models.values() if hasattr(one, "path")]
    if data or paths or more or config.cluster is not None:
        print(f"{name}: read")  # it needs a model, data, a verifier or Ray
    else:
        print(f"{name}: {motet.dry_run(name).completions} completions a step")
"""
"""Reads every installed config, and plays a game of each that needs nothing from outside."""


@dataclass
class Newcomer:
    """An environment with the wheels, and the folder in which the commands run."""

    python: Path
    folder: Path
    failed: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of this process, without the paths to the repository."""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        return kept | {"PATH": f"{self.python.parent}:{os.environ['PATH']}", "COLUMNS": "120"}

    def runs(self, command: str | Sequence[str], within: str = ".") -> str:
        """Run a command and say how long it took. Returns: what it printed."""
        words = command.split() if isinstance(command, str) else list(command)
        title = command if isinstance(command, str) else f"{words[0]} -c ..."
        begun = time.monotonic()
        done = subprocess.run(
            [self.python.parent / words[0], *words[1:]], cwd=self.folder / within,
            env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=1200,
        )  # fmt: skip
        self.says(title, done.returncode == 0, time.monotonic() - begun, done.stdout)
        return done.stdout

    def shows(self, run: str) -> None:
        """Start `motet view`, fetch its page and the list of runs on this machine, and stop it."""
        begun = time.monotonic()
        server = subprocess.Popen(
            [self.python.parent / "motet", "view", run, "--no-open", "--port", "0"],
            cwd=self.folder, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"http://[\w.\[\]:]+", line)
            page = urllib.request.urlopen(found[0], timeout=30).read() if found else b""
        finally:
            server.send_signal(signal.SIGINT)
            rest = server.communicate(timeout=60)[0]
        whole = b"</html>" in page and server.returncode in (0, 130)
        ended = f"{line}{rest}exit code {server.returncode}, a page of {len(page)} bytes"
        self.says(f"motet view {run}", whole, time.monotonic() - begun, ended)

    def says(self, title: str, right: bool, seconds: float, output: str) -> None:
        print(f"  {'ok' if right else 'FAILED':6} {seconds:5.0f} s  {title}", flush=True)
        if not right:
            self.failed.append(title)
            print(output, flush=True)

    def has(self, path: str, title: str) -> None:
        self.says(title, (self.folder / path).exists(), 0.0, f"{path} is missing")


def built(into: Path) -> list[Path]:
    """Build the wheels of all packages with the backend that this Python has."""
    packages = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", into, *packages], check=True
    )
    return sorted(into.glob("*.whl"))


def installed(python: str, wheels: Sequence[Path], into: Path) -> Path:
    """Make an environment of the wheels and what they require. Returns: its Python."""
    subprocess.run([python, "-m", "venv", into], check=True)
    pip = [into / "bin" / "python", "-m", "pip", "install", "--quiet"]
    constraints = ["--constraint", ROOT / "constraints.txt"]
    alone = [one for one in wheels if one.name.startswith(WITHOUT_REQUIREMENTS)]
    named = {one.name.partition("-")[0]: one for one in wheels if one not in alone}
    whole = f"{named.pop('motet')}[all]"
    subprocess.run([*pip, *constraints, "pytest", whole, *named.values()], check=True)
    subprocess.run([*pip, "--no-deps", *alone], check=True)
    return into / "bin" / "python"


def first_hour(new: Newcomer) -> None:
    """Run what a newcomer types."""
    new.runs("motet")
    new.runs("motet --help")
    new.runs("motet configs")
    new.runs(["python", "-c", CONFIGS])
    new.runs(f"motet {QUICKSTART}")
    new.has("runs/quickstart/curve.png", "the curve is drawn")
    new.runs("motet evaluate runs/quickstart evaluation.tasks=8 --json")
    new.shows("runs/quickstart")
    new.runs("motet export runs/quickstart --into team")
    new.runs("motet play team")
    new.runs("motet examples")
    new.runs("motet check examples/dialogue.yaml")
    new.runs("motet init my_team")
    for command in (
        "motet check config.yaml",
        "motet check real.yaml",
        "motet train config.yaml threads=1",
        "motet play runs/my_team",
        "python -m pytest -q",
    ):
        new.runs(command, within="my_team")


def checked(python: str, wheels: Sequence[Path], folder: Path) -> list[str]:
    """Check the wheels with one Python. Returns: the commands that failed."""
    print(f"{python}: {version_of(python)}", flush=True)
    begun = time.monotonic()
    there = installed(python, wheels, folder / "environment")
    print(f"  {'ok':6} {time.monotonic() - begun:5.0f} s  installed", flush=True)
    (folder / "empty").mkdir()
    new = Newcomer(there, folder / "empty")
    first_hour(new)
    return [f"{python}: {title}" for title in new.failed]


def version_of(python: str) -> str | None:
    """Return the version of a Python. None if it cannot be started."""
    if shutil.which(python) is None:
        return None
    done = subprocess.run([python, "--version"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def main(pythons: Sequence[str]) -> int:
    """Check the wheels with every Python of the list that is there. Returns: the exit code."""
    there = [name for name in pythons if version_of(name)]
    for name in pythons:
        if name not in there:
            print(f"{name}: not found, not checked", flush=True)
    if not there:
        print(f"got {', '.join(pythons) or 'no Python'}; expected at least one that is installed")
        return 2
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="motet-release-") as name:
        folder = Path(name)
        wheels = built(folder / "wheels")
        print(f"{len(wheels)} wheels: {', '.join(one.name for one in wheels)}", flush=True)
        for number, python in enumerate(there):
            place = folder / str(number)
            place.mkdir()
            failed += checked(python, wheels, place)
    print(f"failed: {'; '.join(failed)}" if failed else "every command ended as it should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
