"""Run every attack under every protection that this machine has.

A control runs some of the attacks without protection and checks that they do harm.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codejudge import Call, Level, Limits, Report, Returned, Sandbox, same
from tests.fixtures.attack_programs import NEVER_ENDING, QUICK
from tests.fixtures.wide import widely

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has the locks that hold attackers"
)

EXPECTED = 7919
"""The correct result of main(3). No program knows it."""
PROTECTIONS = {
    "strongest": (Level.NAMESPACES, None),
    "no_namespaces": (Level.LANDLOCK, None),
    "seccomp_alone": (Level.SECCOMP, None),
    "ordinary_user": (Level.NAMESPACES, 54321),
    "ordinary_user_with_seccomp_alone": (Level.SECCOMP, 54321),
}
EVERY_PROTECTION = widely(PROTECTIONS, keep=["strongest"])


@dataclass(frozen=True)
class Arena:
    """The targets of the attacks.

    These are a world-writable folder with a file to steal and a file to destroy, and two listening
    sockets.
    """

    folder: Path
    tcp: socket.socket
    abstract: socket.socket

    def aim(self, attack: str) -> str:
        aims = {
            "@ARENA@": str(self.folder),
            "@HOST@": str(os.getpid()),
            "@PORT@": str(self.tcp.getsockname()[1]),
            "@SOCKET@": self.abstract.getsockname()[1:].decode(),
        }
        for mark, target in aims.items():
            attack = attack.replace(mark, target)
        return attack

    def damage(self) -> list[str]:
        """Describe the damage that an attack did. The list is empty if there is none."""
        wanted = {"victim": "alive", "secret": "SECRET123", "hostpid": str(os.getpid())}
        found = {
            path.name: path.read_text() if path.is_file() else "" for path in self.folder.iterdir()
        }
        done = [
            f"file {name}"
            for name in wanted.keys() | found.keys()
            if wanted.get(name) != found.get(name)
        ]
        for name, listener in (("tcp", self.tcp), ("abstract", self.abstract)):
            try:
                listener.accept()[0].close()
                done.append(f"reached the {name} socket")
            except BlockingIOError:
                continue
        return done


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    (folder / "hostpid").write_text(str(os.getpid()))
    for name, text in (("victim", "alive"), ("secret", "SECRET123")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o666)
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        patch.setenv("HF_TOKEN", "SECRET123")
        abstract.bind("\0judged" + secrets.token_hex(8))
        abstract.listen()
        tcp.setblocking(False)
        abstract.setblocking(False)
        yield Arena(folder, tcp, abstract)
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=EVERY_PROTECTION)
def sandbox(request: pytest.FixtureRequest, arena: Arena) -> Iterator[Sandbox]:
    maximum, user = PROTECTIONS[request.param]
    if user is not None and os.getuid() != 0:
        pytest.skip("this host is an ordinary user already")
    with Sandbox(
        workers=1,
        maximum=maximum,
        user=user,
        limits=Limits(wall_seconds=10, cpu_seconds=5, output_bytes=1 << 17),
    ) as made:
        yield made


def run(sandbox: Sandbox, arena: Arena, attack: str, limits: Limits | None = None) -> Report:
    return sandbox.run_sync([arena.aim(attack)], [Call("main", (3,)), Call("main", (4,))], limits)


def check_nothing_happened(sandbox: Sandbox, arena: Arena, report: Report) -> None:
    assert arena.damage() == []
    assert "SECRET123" not in repr(report)
    assert not any(
        isinstance(answer, Returned) and same(answer.value, EXPECTED) for answer in report.calls
    )
    unseen = f"# {secrets.token_hex()}\ndef main(values): return sum(values), len(values)"
    honest = sandbox.run_sync([unseen], [Call("main", ([1, 2, 3],))])
    assert honest.calls == (Returned((6, 3)),)


@pytest.mark.parametrize("name", QUICK)
def test_an_attack_does_nothing_and_the_next_program_does_not_notice(
    name: str, sandbox: Sandbox, arena: Arena
) -> None:
    (server,) = sandbox._servers._idle
    report = run(sandbox, arena, QUICK[name])
    check_nothing_happened(sandbox, arena, report)
    assert sandbox._servers._idle == [server], "the attack cost us a server"
    assert report.failure != "timeout"


@pytest.mark.parametrize("name", NEVER_ENDING)
@pytest.mark.parametrize("sandbox", ["strongest"], indirect=True)
def test_a_program_that_never_ends_is_ended(name: str, sandbox: Sandbox, arena: Arena) -> None:
    limits = Limits(wall_seconds=0.3)
    report = run(sandbox, arena, NEVER_ENDING[name], limits)
    check_nothing_happened(sandbox, arena, report)
    assert not any(isinstance(answer, Returned) for answer in report.calls)
    assert report.seconds < 16 * seconds_of_a_loop(sandbox, limits)


def seconds_of_a_loop(sandbox: Sandbox, limits: Limits) -> float:
    """Return how long an endless loop runs under `limits` at the present machine load."""
    report = sandbox.run_sync(
        [f"# {secrets.token_hex()}\ndef main():\n    while True: pass"], [Call("main", ())], limits
    )
    assert report.failure == "timeout"
    return report.seconds


CONTROL = {
    "read_secret_file": "SECRET123",
    "env_secret": "SECRET123",
    "parent_environ": "SECRET123",
    "write_outside": "file pwned",
    "delete_file": "file victim",
    "run_a_command": "file pwned",
    "network": "reached the tcp socket",
    "abstract_unix": "reached the abstract socket",
}


@pytest.mark.parametrize("name", CONTROL)
def test_the_same_attacks_work_where_nothing_protects(name: str, arena: Arena) -> None:
    program = arena.aim(QUICK[name]) + "\nprint(main(3))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    damage = arena.damage()
    (arena.folder / "victim").write_text("alive")
    (arena.folder / "victim").chmod(0o666)
    (arena.folder / "pwned").unlink(missing_ok=True)
    assert CONTROL[name] in done.stdout + " ".join(damage)
