"""Completion in a real bash: commands, options, configs and run folders."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from motet.config.paths import config_path

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="bash is missing")
ASK = """
eval "$(_MOTET_COMPLETE=source_bash motet)"
COMP_WORDS=({words})
COMP_CWORD={last}
_motet_completion motet
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def complete(tmp_path):
    """Return what bash offers for a line that ends where the tab key is pressed."""
    script = tmp_path / "bin" / "motet"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m motet "$@"\n')
    script.chmod(0o755)
    (tmp_path / "configs").mkdir()
    for name in ("quickstart", "relay"):
        shutil.copy(config_path(name), tmp_path / "configs")
    for name in ("one", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    path = f"{script.parent}:{os.environ['PATH']}"

    def run(line):
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", ASK.format(words=quoted, last=len(words) - 1)],
            cwd=tmp_path, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return run


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("motet tr", ["train"]),
        pytest.param(
            "motet e",
            ["episodes", "evaluate", "examples", "exploitability", "export"],
            marks=pytest.mark.wide,
        ),
        ("motet train con", ["configs/quickstart.yaml", "configs/relay.yaml"]),
        pytest.param("motet check configs/re", ["configs/relay.yaml"], marks=pytest.mark.wide),
        ("motet train relay_t", ["relay_tree"]),
        pytest.param("motet evaluate runs/", ["runs/one", "runs/other"], marks=pytest.mark.wide),
        ("motet compare runs/one runs/ot", ["runs/other"]),
        pytest.param("motet train --over", ["--overwrite"], marks=pytest.mark.wide),
        ("motet verifier se", ["serve"]),
    ],
)
def test_bash_completes(complete, line, offered):
    assert sorted(complete(line)) == offered
