"""No secret of the machine reaches the files, the output or the requests of a run.

Secrets are keys, tokens, and files of the home and of the working folder.
"""

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from codejudge import Call, Returned, Sandbox
from motet.rollout.record import read_episodes
from tests.faults.sound_rows import GSM8K
from tests.faults.spies import MARK, row, spy
from tests.fixtures.http_servers import running
from tests.small_runs import ROOT, TINY, run_config

pytestmark = pytest.mark.slow

NAMES = ("EXPERT_KEY", "VERIFIER_KEY", "WANDB_API_KEY", "HF_TOKEN", "SOMETHING_ELSE")
VARIABLES = {name: f"{MARK}/sk-{name.lower()}+7Qz5Wb1pLx" for name in NAMES}
FILES = {name: f"{MARK}-file-{name.strip('.')}-7Qz5Wb1pLx" for name in (".netrc", ".env")}
"""Files in the home, and in the folder in which the command runs."""
SECRETS = (*VARIABLES.values(), *FILES.values())


# --------------------------------------------------------------------------------------- the search


def _spellings(secret: str) -> set[bytes]:
    """Return the secret in all encodings that a writer of text may use.

    For base64 these are the parts that do not depend on the surrounding bytes.
    """
    plain = secret.encode()
    found = {
        plain,
        plain.hex().encode(),
        plain.hex().upper().encode(),
        plain[::-1],
        secret.encode("utf-16-le"),
        quote(secret, safe="").encode(),
    }
    found |= {json.dumps(secret)[1:-1].encode(), secret.replace("/", "\\/").encode()}
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(
                encode(b"\0" * shift + plain)[4 if shift else 0 : (shift + len(plain)) // 3 * 4]
            )
    return found


SPELLINGS = {spelling: secret for secret in SECRETS for spelling in _spellings(secret)}


def leaks(where: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Return (place, secret) of every secret found in any of the texts."""
    found = [
        (place, secret)
        for place, text in where.items()
        for spelling, secret in SPELLINGS.items()
        if spelling in text
    ]
    packed = {
        f"{place}, unpacked": gzip.decompress(text)
        for place, text in where.items()
        if text[:2] == b"\x1f\x8b"
    }
    return sorted({*found, *(leaks(packed) if packed else [])})


def written(*folders: Path) -> dict[str, bytes]:
    """Return path -> content of every file under the folders, except the planted ones.

    File names are searched, too.
    """
    files = [
        file
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in FILES
    ]
    names = "\n".join(map(str, files)).encode()
    return {"names of files": names, **{str(file): file.read_bytes() for file in files}}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("how", ["plain", "json", "base64", "hex", "gzip", "name", "tensors"])
def test_the_search_finds_what_is_planted(tmp_path, secret, how):
    assert leaks(written(tmp_path)) == []
    text = {
        "json": json.dumps({"headers": {"Authorization": f"Bearer {secret}"}}).encode(),
        "base64": base64.b64encode(f"user:{secret}".encode()),
        "hex": f"user:{secret}".encode().hex().encode(),
        "gzip": gzip.compress(secret.encode()),
        "tensors": b"\x80\x00" * 999 + secret.encode() + b"\x00" * 999,
    }.get(how, secret.encode())
    name = secret.replace("/", "\\") if how == "name" else "some.file"
    if how == "name" and "/" in secret:
        name = quote(secret, safe="")
    (tmp_path / name).write_bytes(b"" if how == "name" else text)
    assert {found for _, found in leaks(written(tmp_path))} == {secret}


# --------------------------------------------------------------------------- a machine with secrets


class Machine:
    """A home and a working folder with secret files, and a command that runs with secret
    variables."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.temporary = (folder / name for name in ("home", "work", "tmp"))
        for place in (self.home, self.work, self.temporary):
            place.mkdir()
        self.files = [self.home / ".netrc", self.work / ".env"]
        for file in self.files:
            file.write_text(f"password {FILES[file.name]}\n")
        program = self.work / "spy.py"
        program.write_text(spy(sorted(VARIABLES), self.files))
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "LANG", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
        }
        places = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "SPY_PROGRAM": str(program),
            "PYTHONPATH": str(ROOT),
        }
        self.variables = {
            **kept,
            **places,
            **VARIABLES,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def motet(
        self, config: Mapping[str, Any], command: str = "train"
    ) -> "subprocess.CompletedProcess[bytes]":
        (self.work / "run.yaml").write_text(yaml.safe_dump(dict(config)))
        return self.typed(command, "run.yaml")

    def typed(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        """Run the command with these words."""
        program = [sys.executable, "-c", "from motet.commands.main import main; main()", *words]
        return subprocess.run(
            program, cwd=self.work, env=self.variables, capture_output=True, timeout=300,
            check=False,
        )  # fmt: skip

    def leaks(
        self, done: "subprocess.CompletedProcess[bytes]", asked: list[bytes]
    ) -> list[tuple[str, str]]:
        """Search the output of the command, the files that it left, and the bodies of its
        requests."""
        said = {
            "stdout": done.stdout,
            "stderr": done.stderr,
            **{f"request {n}": body for n, body in enumerate(asked)},
        }
        return leaks({**said, **written(self.home, self.work, self.temporary)})


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


class _Echo(BaseHTTPRequestHandler):
    """An expert and a verifier in one server, which repeats the given key in every response."""

    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers.get("Authorization", "no key")
        self.server.asked.append(body)
        self.server.keys.add(key)
        request, status = json.loads(body), self.server.status
        if status != 200:
            said = {
                "error": {
                    "message": f"no entry for {key}",
                    "headers": dict(self.headers),
                    "basic": base64.b64encode(key.encode()).decode(),
                }
            }
        elif "query_responses" in request:
            said = {"result": [0.5 if self.server.sound else key] * len(request["query_responses"])}
        else:
            edits = json.dumps(dict.fromkeys(("helper", "main"), f"You are {key}: return x"))
            said = {
                "choices": [
                    {
                        "message": {
                            "role": "assistant",
                            "content": edits if self.server.sound else None,
                            "key": key,
                        }
                    }
                ]
            }
        answer = json.dumps(said).replace("/", "\\/" if self.server.escapes else "/").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("X-Echo", key)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


@contextmanager
def echoing(status: int, *, sound: bool = True, escapes: bool = False) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    server.asked, server.keys, server.status, server.sound, server.escapes = (
        [],
        set(),
        status,
        sound,
        escapes,
    )
    server.daemon_threads = True
    with running(server):
        yield server


def _small(folder: Path, rows: list[dict[str, Any]], **sections: Any) -> dict[str, Any]:
    """A short run of one step, with everything that a run can leave behind."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return run_config(
        data={"train": {"path": str(path)}, "eval": {"path": str(path)}},
        models={"tiny": {"embedded": {**TINY, "context": 8192}, "device": "cpu"}},
        decode={"max_new_tokens": 4},
        rollout={"samples": [2, 1]},
        algorithm={"group_by": "task"},
        report={"tensorboard": True},
        **{"train": {"steps": 1, "tasks_per_step": 1, "max_fault_share": 1.0}, **sections},
    )


def _expert(machine: Machine, port: int, **train: Any) -> dict[str, Any]:
    return _small(
        machine.work,
        [row(len(FILES))],
        environment={
            "name": f"{ROOT}/tests/faults/spies.py:Spying",
            "feedback": {"mode": "expert_edits", "sandbox_slice": 5},
        },
        team={"helper": "p", "main": "q"},
        sandbox={"workers": 1},
        expert={
            "base_url": f"http://127.0.0.1:{port}/v1",
            "model": "m",
            "key_variable": "EXPERT_KEY",
            "retries": 1,
        },
        **({"train": {"steps": 1, "tasks_per_step": 1, **train}} if train else {}),
    )


def _verifier(machine: Machine, port: int, **train: Any) -> dict[str, Any]:
    return _small(
        machine.work,
        [GSM8K],
        environment={"name": "debate", "score": "verifier"},
        team={"alice": "p", "bob": "q"},
        verifier={
            "base_url": f"http://127.0.0.1:{port}",
            "key_variable": "VERIFIER_KEY",
            "retries": 1,
        },
        **({"train": {"steps": 1, "tasks_per_step": 1, **train}} if train else {}),
    )


SERVICES = {"expert": (_expert, "EXPERT_KEY"), "verifier": (_verifier, "VERIFIER_KEY")}


# --------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("service", SERVICES)
def test_a_run_with_a_key_leaves_none_of_the_secrets_anywhere(machine, service, tell):
    config, variable = SERVICES[service]
    with echoing(200) as server:
        done = machine.motet(config(machine, server.server_port))
    assert done.returncode == 0, done.stderr[-2000:]
    assert server.keys == {f"Bearer {VARIABLES[variable]}"}, (
        "the key was sent, and so could have been written"
    )
    assert machine.leaks(done, server.asked) == []
    names = {
        path.name.partition(".")[0]
        for path in (machine.work / "runs" / "run").rglob("*")
        if path.is_file()
    }
    assert {"config", "metrics", "summary", "events", "curve", "train-000001"} <= names, (
        "everything a run leaves was looked at"
    )
    assert any(
        path.suffix == ".safetensors"
        for path in (machine.work / "runs" / "run" / "checkpoints").rglob("*")
    )
    tell("secrets", what=f"a run with {service}", files=len(written(machine.work)), leaks=0)


def test_an_export_of_such_a_run_has_none_of_the_secrets(machine, tell):
    with echoing(200) as server:
        machine.motet(_expert(machine, server.server_port))
        done = machine.typed("export", "runs/run", "--into", "team")
    assert done.returncode == 0, done.stderr[-2000:]
    exported = machine.work / "team"
    assert b"EXPERT_KEY" in (exported / "team.yaml").read_bytes(), "the name of the variable stays"
    assert (exported / "README.md").is_file()
    assert machine.leaks(done, []) == []
    program = exported / "code" / "spies.py"
    own = machine.work / "own.py"
    own.write_text(program.read_text() + f"# {VARIABLES['EXPERT_KEY']}\n")
    named = f"environment.name={own}:Spying"
    refused = machine.typed("export", "runs/run", named, "--into", "other")
    own.unlink()
    assert refused.returncode == 2
    assert b"environment variable EXPERT_KEY" in refused.stderr, refused.stderr[-2000:]
    assert machine.leaks(refused, []) == []
    tell("secrets", what="an export", files=len(written(exported)), leaks=0)


@pytest.mark.parametrize(
    ("status", "how"),
    [(401, {}), (500, {}), (401, {"escapes": True}), (200, {"sound": False})],
    ids=["401", "500", "escaped", "garbled"],
)
@pytest.mark.parametrize("service", SERVICES)
def test_a_server_that_repeats_the_key_puts_it_into_no_fault(machine, service, status, how, tell):
    config, variable = SERVICES[service]
    with echoing(status, **how) as server:
        done = machine.motet(config(machine, server.server_port, max_fault_share=0.1))
    assert server.keys == {f"Bearer {VARIABLES[variable]}"}
    assert done.returncode == 1
    assert b"\nerror: " in done.stderr, done.stderr[-2000:]
    assert b"Traceback" not in done.stderr
    assert machine.leaks(done, server.asked) == []
    assert b"[key]" in b"".join([done.stderr, *written(machine.work / "runs").values()]), (
        "the fault quotes what the server said"
    )
    tell("secrets", what=f"{service} answers {status}", files=len(written(machine.work)), leaks=0)


# ------------------------------------------------------------------- programs that look for secrets


def test_a_program_in_a_run_finds_no_secret_and_says_so(machine):
    with echoing(200) as server:
        done = machine.motet(_expert(machine, server.server_port))
    assert done.returncode == 0, done.stderr[-2000:]
    asked = b"".join(server.asked).decode()
    assert "SPIED" in asked, "what the program found reached the expert's prompt"
    for tried in ("os.environ", "/proc/PID/environ", "file", "shell"):
        assert tried in asked, f"the program tried {tried}"
    recorded = read_episodes(
        machine.work / "runs" / "run" / "episodes" / "train-000001.jsonl"
    ).episodes
    assert any(episode.root is not None for episode in recorded)
    assert machine.leaks(done, server.asked) == []


def test_a_program_finds_secrets_outside_of_the_sandbox_and_none_inside(machine, monkeypatch):
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    program = spy(sorted(VARIABLES), machine.files)
    outside = subprocess.run(
        [sys.executable, "-c", f"{program}\nprint(looked())"],
        capture_output=True,
        env=machine.variables,
        check=True,
    )
    found = {secret for _, secret in leaks({"outside": outside.stdout})}
    assert found >= set(FILES.values())
    assert found & set(VARIABLES.values())
    with Sandbox(workers=1) as sandbox:
        (returned,) = sandbox.run_sync([program], [Call("looked")]).calls
    assert isinstance(returned, Returned), returned
    assert leaks({"inside": json.dumps(returned.value).encode()}) == []
    assert MARK not in json.dumps(returned.value)
    assert dict(map(tuple, returned.value))["os.environ"] == "nothing"
