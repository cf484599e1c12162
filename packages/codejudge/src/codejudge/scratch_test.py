import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codejudge import Level, Sandbox, Suite, scratch, worker
from codejudge.errors import SandboxError
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can keep a program in a folder"
)

NAMESPACES, LANDLOCK = ("seccomp", "landlock", "namespaces"), ("seccomp", "landlock")
PROTECTIONS = {
    "strongest": (NAMESPACES, None),
    "no_namespaces": (LANDLOCK, None),
    "ordinary_user": (NAMESPACES, 54321),
    "ordinary_user_without_namespaces": (LANDLOCK, 54321),
}
BOOTH = (
    worker._BOOT.partition("from codejudge import server")[0]
    + """
import importlib, json, os, signal
from codejudge import child, namespaces, scratch, server
wanted, user, requests = json.loads(sys.argv[2])
for name in (*server._WARM, "csv", "pathlib", "shutil", "sqlite3", "tempfile", "zipfile", \
"fcntl", "mmap", "tarfile", "dbm.dumb",
             "logging", "xml.sax.expatreader", "xml.sax.saxutils", "xml.etree.ElementInclude"):
    importlib.import_module(name)
if user is not None: child.become(user)
layers = [layer for layer in wanted if server.works(server._LOCKS[layer])]
if "namespaces" in layers:
    namespaces.enter()
    namespaces.become_first()
def run(program, place):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(writer, 3)
            child.lock_down(layers, 3, 512, place)
            names = {}
            exec(program, names)
            os.write(3, json.dumps(names["main"]()).encode())
        except BaseException as error:
            os.write(3, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file: said = file.read()
    _, status, usage = os.wait4(pid, 0)
    return json.loads(said) if said else status
answers, places = [], []
for programs in requests:
    with scratch.folder(layers) as place:
        answers.append([run(program, place) for program in programs])
    places.append(place.path)
left = [path for path in places if os.path.exists(path) and os.listdir(path)]
os.write(2, json.dumps([layers, answers, left]).encode())
"""
)
"""The part of a sandbox server that handles folders.

Each request is a list of programs, which run in order in one folder.
"""


class Booth:
    def __init__(self, layers: tuple[str, ...], user: int | None) -> None:
        self._layers, self._user = layers, user

    def run(self, *requests: list[str]) -> list[list[Any]]:
        """Return what `main()` of every program returned.

        For a program that was killed, that is its wait status. Asserts that nothing is left in the
        folders.
        """
        command = [sys.executable, *worker._FLAGS, "-c", BOOTH, str(Path(worker.__file__).parent)]
        arguments = json.dumps([self._layers, self._user, requests])
        done = subprocess.run(
            [*command, arguments],
            env=worker._ENVIRONMENT,
            cwd="/",
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.stderr.startswith("["), done.stderr
        layers, answers, left = json.loads(done.stderr)
        if layers != list(self._layers):
            pytest.skip(f"this machine has {', '.join(layers)} only")
        assert left == []
        return answers

    def watched(self) -> bool:
        """Whether the folder is on the machine's disk, where a watchdog measures it."""
        return "namespaces" not in self._layers

    def rooted(self) -> bool:
        """Whether the folder is the root of the programs."""
        return self.run(["import os\ndef main(): return os.getcwd()"]) == [["/"]]


@pytest.fixture(params=widely(PROTECTIONS, keep=["strongest"]))
def booth(request: pytest.FixtureRequest) -> Booth:
    layers, user = PROTECTIONS[request.param]
    if user is not None and os.getuid() != 0:
        pytest.skip("this host is an ordinary user already")
    return Booth(layers, user)


# --------------------------------------------------------------------------------------- what works

LIBRARY = """
import contextlib, csv, fcntl, json, mmap, os, pathlib, shutil, sqlite3, tempfile, zipfile
def main():
    pathlib.Path("x/y").mkdir(parents=True)
    with open("x/y/table.csv", "w", newline="") as file: \
csv.writer(file).writerows([["a", "b"], ["1", "2"]])
    with open("x/y/table.csv", newline="") as file: rows = list(csv.reader(file))
    shutil.copy2("x/y/table.csv", "copy.csv")
    shutil.copytree("x", "z")
    shutil.move("z", "moved")
    with zipfile.ZipFile("all.zip", "w", zipfile.ZIP_DEFLATED) as archive: archive.write("copy.csv")
    with zipfile.ZipFile("all.zip") as archive: archive.extractall("out")
    with tempfile.TemporaryDirectory() as folder, open(folder + "/q", "w+") as file: file.write("q")
    with tempfile.NamedTemporaryFile("w+") as file, tempfile.TemporaryFile() as other:
        other.write(b"x" * 100)
        file.write("named"); file.flush()
        named = open(file.name).read()
    for mode in MODES:
        with contextlib.closing(sqlite3.connect("data.db")) as base:
            base.execute("pragma journal_mode=" + mode)
            base.execute("create table if not exists t(a)")
            base.execute("insert into t values (?)", (mode,))
            base.commit()
            stored = [row[0] for row in base.execute("select a from t order by a")]
    with open("copy.csv", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        if MAPS:
            with mmap.mmap(file.fileno(), 0) as view: view[:1] = b"A"
        else: file.write(b"A"); file.flush()
        file.truncate(3)
    os.replace("copy.csv", "x/copy.csv")
    with contextlib.chdir("x"): text = pathlib.Path("copy.csv").resolve().read_text()
    shutil.rmtree("x/y")
    return rows, text, named, stored, sorted(os.listdir()), \
[os.access("x/copy.csv", os.R_OK), os.path.exists("x/y")]
"""


def test_what_the_library_does_with_files_works(booth: Booth) -> None:
    kept = ["all.zip", "data.db", "moved", "out", "x"]
    # A write-ahead log that other processes read is a mapped file.
    modes = ["delete", "memory"] if booth.watched() else ["delete", "wal"]
    wanted = [[["a", "b"], ["1", "2"]], "A,b", "named", modes, kept, [True, False]]
    assert booth.run([f"MAPS, MODES = {not booth.watched()}, {modes}\n{LIBRARY}"]) == [[wanted]]


def test_a_file_can_be_made_read_only_where_the_folder_is_the_root(booth: Booth) -> None:
    program = """
import os, pathlib
def main():
    path = pathlib.Path("note")
    path.write_text("old")
    path.chmod(0o400)
    os.utime(path, (1, 1))
    try: path.write_text("new")
    except PermissionError: return "refused", path.stat().st_mtime
    return path.read_text(), 0
"""
    ((said,),) = booth.run([program])
    assert said == (["refused", 1.0] if booth.rooted() else ["new", 0])


def test_a_request_has_one_folder_for_its_programs_and_the_next_has_another(booth: Booth) -> None:
    write = "def main(): return open('note', 'x').write('hello')"
    read = (
        "import os\ndef main(): return os.listdir(), [open(name).read() for name in os.listdir()]"
    )
    assert booth.run([write, read], [read], [write]) == [
        [5, [["note"], ["hello"]]],
        [[[], []]],
        [5],
    ]


def test_below_landlock_there_is_no_folder() -> None:
    for layers in ([], ["seccomp"], ["landlock"], ["namespaces"]):
        with (
            pytest.raises(PermissionError, match=facts("expected seccomp … Landlock … namespaces")),
            scratch.folder(layers),
        ):
            pass


# ----------------------------------------------------------------------------- who tries to get out


@pytest.fixture(scope="module")
def arena() -> Iterator[Path]:
    """A folder with files to steal, destroy and run.

    It is writable for everybody, and on the same disk as scratch folders.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        for file in ("secret", "victim"):
            (folder / file).write_text("SECRET123")
            (folder / file).chmod(0o777)
        yield folder


ESCAPES = {
    "dots": "open('../' * 40 + '@ARENA@'[1:] + '/secret').read()",
    "absolute_path": "open('@ARENA@/secret').read()",
    "dots_after_chdir": "(os.chdir('@ARENA@'), open('secret').read())[1]",
    "list_a_folder": "os.listdir('@ARENA@')",
    "walk_to_the_root": "[os.listdir('../' * n) for n in range(1, 40)][0] + os.listdir('@ARENA@')",
    "symbolic_link": "(os.symlink('@ARENA@/secret', 'link'), open('link').read())[1]",
    "symbolic_link_for_the_server_to_follow": "os.symlink('@ARENA@', 'link')",
    "hard_link": "(os.link('@ARENA@/secret', 'link'), open('link').read())[1]",
    "steal_by_rename": "(os.rename('@ARENA@/secret', 'mine'), open('mine').read())[1]",
    "smuggle_out_by_rename": "(open('mine', 'w').write('x'), os.rename('mine', '@ARENA@/pwned'))",
    "smuggle_out_by_link": "(open('mine', 'w').write('x'), os.link('mine', '@ARENA@/pwned'))",
    "write": "open('@ARENA@/victim', 'w').write('x')",
    "create": "open('@ARENA@/pwned', 'w').write('x')",
    "remove": "os.remove('@ARENA@/victim')",
    "make_a_folder": "os.mkdir('@ARENA@/pwned')",
    "truncate_by_name": "os.truncate('@ARENA@/victim', 0)",
    "truncate_while_opening": "os.open('@ARENA@/victim', os.O_RDONLY | os.O_TRUNC)",
    "chmod": "os.chmod('@ARENA@/victim', 0)",
    "utime": "os.utime('@ARENA@/victim', (0, 0))",
    "handle_of_a_folder": "os.open('secret', os.O_RDONLY, dir_fd=os.open('@ARENA@', os.O_PATH))",
    "handle_of_a_file": "os.read(os.open('@ARENA@/secret', os.O_PATH), 10).decode()",
    "remove_the_folder_itself": "os.rmdir(os.getcwd())",
    "rename_the_folder_itself": "os.rename(os.getcwd(), '@ARENA@/pwned')",
    "memory_of_a_process": "open('/proc/@HOST@/mem', 'rb').read(1)",
    "environment_of_a_process": "open('/proc/@HOST@/environ').read()",
    "own_environment": "open('/proc/self/environ').read()",
    "reopen_a_descriptor": "open('/proc/self/fd/0', 'w').write('x')",
    "folder_of_a_process": "open('/proc/@HOST@/cwd/@ARENA@/secret').read()",
    "root_of_a_process": "open('/proc/1/root@ARENA@/secret').read()",
    "device": "open('/dev/zero', 'rb').read(1)",
    "make_a_device": "(os.mknod('zero', 0o20666, os.makedev(1, 5)), open('zero', 'rb').read(1))",
    "make_a_pipe": "os.mkfifo('pipe')",
    "make_a_socket": "__import__('socket').socket(1).bind('here')",
    "reach_a_socket": "__import__('socket').socket(1).connect('@ARENA@/socket')",
    "run_a_program": "os.execv('@ARENA@/secret', ['x'])",
    "leave_a_process": "os.fork()",
    "leave_a_process_with_its_own_group": "os.setpgid(0, 0)",
    "send_a_signal": "os.kill(@HOST@, 0)",
    "send_a_signal_through_a_file": "fcntl.fcntl(open('x', 'w'), fcntl.F_SETOWN, @HOST@)",
    "raise_a_limit": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))",
    "another_root": "os.chroot('.')",
    "file_of_the_system": "open('/etc/passwd').read()",
    "database": "sqlite3.connect('@ARENA@/pwned').execute('create table t(a)')",
    "database_beside_another":
        "sqlite3.connect('a.db').execute(\"attach '@ARENA@/pwned' as b\")"
        ".execute('create table b.t(a)')",
    "database_by_address":
        "sqlite3.connect('file:@ARENA@/secret?mode=ro&immutable=1', uri=True)"
        ".execute('pragma user_version')",
    "database_of_dots":
        "sqlite3.connect('../' * 40 + '@ARENA@'[1:] + '/pwned').execute('create table t(a)')",
    "database_vacuumed_into": "sqlite3.connect('a.db').execute(\"vacuum into '@ARENA@/pwned'\")",
    "database_that_is_a_copy": "sqlite3.connect('a.db').backup(sqlite3.connect('@ARENA@/pwned'))",
    "database_with_a_folder_for_itself": "spilled('@ARENA@')",
    "database_that_loads_code": "extended().load_extension('@ARENA@/secret')",
    "database_that_loads_a_library": "extended().load_extension('/lib/x86_64-linux-gnu/libm.so.6')",
    "database_of_names": "dbm.dumb.open('@ARENA@/pwned', 'n')",
    "xml_file": "ET.parse('@ARENA@/secret')",
    "xml_external_entity": "external('@ARENA@/secret')",
    "xml_external_address": "external('file://@ARENA@/secret')",
    "xml_of_a_server": "external('http://127.0.0.1:9/secret')",
    "xml_that_includes": "included('@ARENA@/secret')",
    "archive_of_dots":
        "(unpacked('../' * 40 + '@ARENA@'[1:] + '/pwned'), open('@ARENA@/secret').read())",
    "archive_with_an_absolute_path": "(unpacked('@ARENA@/pwned'), open('@ARENA@/secret').read())",
    "archive_with_a_link": "(unpacked('link', tarfile.SYMTYPE), open('link@ARENA@/secret').read())",
    "archive_with_a_device": "unpacked('zero', tarfile.CHRTYPE)",
    "log": "logging.FileHandler('@ARENA@/pwned')",
    "temporary_file": "tempfile.mkstemp(dir='@ARENA@')",
    "copy": "shutil.copy('@ARENA@/secret', 'mine')",
    "mapped_memory_that_runs": "mapped()",
    "module_of_the_machine": "(sys.path.insert(0, '@ARENA@'), __import__('planted'))",
}  # fmt: skip


LIBRARIES = """
import dbm.dumb, fcntl, io, logging, mmap, os, resource, shutil, sqlite3, sys, tarfile, tempfile, \
xml.sax
import xml.etree.ElementTree as ET
from xml.etree import ElementInclude
from xml.sax.handler import ContentHandler, feature_external_ges
def extended():
    base = sqlite3.connect('a.db')
    base.enable_load_extension(True)
    return base
def spilled(path):
    base = sqlite3.connect('a.db')
    for name, value in (('temp_store_directory', f"'{path}'"), ('temp_store', 1), \
('cache_size', 2)):
        base.execute(f'pragma {name} = {value}')
    base.execute('create temp table t(a)')
    base.executemany('insert into t values (?)', [('x' * 1000,)] * 2000)
def external(path):
    parser, said = xml.sax.make_parser(), []
    handler = ContentHandler()
    handler.characters = said.append
    parser.setContentHandler(handler)
    parser.setFeature(feature_external_ges, True)
    parser.parse(io.StringIO(f'<!DOCTYPE r [<!ENTITY e SYSTEM "{path}">]><r>&e;</r>'))
    return ''.join(said)
def included(path):
    root = ET.XML('<r xmlns:i="http://www.w3.org/2001/XInclude">\
<i:include parse="text" href="%s"/></r>' % path)
    ElementInclude.include(root)
    return ET.tostring(root)
def unpacked(name, kind=b'0'):
    with tarfile.open('x.tar', 'w') as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.devmajor, member.devminor = kind, '/', 1, 5
        archive.addfile(member)
    with tarfile.open('x.tar') as archive: archive.extractall('.')
def mapped():
    with open('code', 'w+b') as file:
        file.write(bytes(4096)); file.flush()
        return mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
"""


def test_nobody_gets_out_of_the_folder(booth: Booth, arena: Path) -> None:
    names = list(ESCAPES)
    programs = [
        LIBRARIES
        + "def main(): return repr("
        + ESCAPES[name].replace("@ARENA@", str(arena)).replace("@HOST@", str(os.getpid()))
        + ")"
        for name in names
    ]
    (arena / "planted.py").write_text("print('SECRET123')")
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(arena, os.O_RDONLY)
        # A socket's name may have 107 bytes; the folder's path may be longer.
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        listener.listen()
        before = snapshot(arena)
        answers = dict(
            zip(
                names,
                [answer for (answer,) in booth.run(*([program] for program in programs))],
                strict=True,
            )
        )
        assert snapshot(arena) == before
        (arena / "socket").unlink()
    got_through = {name: answer for name, answer in answers.items() if "Error: " not in str(answer)}
    pretended = {} if booth.rooted() else {"chmod": "None", "utime": "None"}
    assert got_through == pretended, (
        "where the folder is not the root, these two say that they worked"
    )
    assert "SECRET123" not in repr(answers)


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        path.name: (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.iterdir()
    }


@pytest.mark.parametrize(
    "name",
    [
        "absolute_path",
        "symbolic_link",
        "hard_link",
        "write",
        "chmod",
        "file_of_the_system",
        "database",
        "database_beside_another",
        "database_vacuumed_into",
        "database_that_is_a_copy",
        "database_of_names",
        "xml_external_entity",
        "xml_external_address",
        "xml_that_includes",
        "archive_of_dots",
        "archive_with_an_absolute_path",
        "log",
        "temporary_file",
        "copy",
    ],
)
def test_the_same_attempts_work_where_nothing_protects(
    name: str, arena: Path, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(dir=arena.parent) as folder:
        victim = Path(folder)
        for file in ("secret", "victim"):
            (victim / file).write_text("SECRET123")
        before = snapshot(victim)
        program = f"{LIBRARIES}\nprint({ESCAPES[name].replace('@ARENA@', folder)})"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder
        )
        assert "SECRET123" in done.stdout or "root" in done.stdout or snapshot(victim) != before


# ------------------------------------------------------------------------------------- who fills it

GREEDY = {
    "one_large_file": """
def main():
    with open('big', 'wb') as file:
        for _ in range(200): file.write(b'0' * 10**6)
""",
    "several_files": """
def main():
    for number in range(100):
        with open(str(number), 'wb') as file: file.write(b'0' * 4 * 10**6)
""",
    "many_empty_files": """
def main():
    for number in range(100_000): open(str(number), 'w').close()
""",
    "many_folders": """
import os
def main():
    for number in range(100_000): os.mkdir(str(number))
""",
    "a_deep_tree": """
import os
def main():
    for _ in range(100_000):
        os.mkdir('d' * 100)
        os.chdir('d' * 100)
""",
    "in_a_locked_folder": """
import os
def main():
    os.mkdir('locked')
    handle = os.open('locked', os.O_RDONLY)
    os.mkdir('more', 0o300, dir_fd=handle)
    for number in range(100):
        with open(os.open(f'more/{number}', os.O_CREAT | os.O_WRONLY, dir_fd=handle), 'wb') as file:
            file.write(b'0' * 4 * 10**6)
""",
    "one_sparse_file": """
import os
def main(): os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 1 << 40)
""",
    "many_open_files": """
import os
def main():
    kept = []
    for number in range(1000):
        kept.append(open(str(number), 'wb'))
        kept[-1].write(b'0' * 4 * 10**6)
        os.remove(str(number))
""",
    "files_with_holes": """
import os
def main():
    for number in range(100_000):
        file = os.open(str(number), os.O_CREAT | os.O_RDWR)
        os.ftruncate(file, 500_000)
        os.pwrite(file, b'x', 400_000)
        os.close(file)
""",
    "while_it_hides": """
import os, time
def main():
    for number in range(4000):
        os.mkdir(f'd{number}')
        with open(f'd{number}/big', 'wb') as file: file.write(b'0' * 100_000)
        os.rename(f'd{number}', f'e{number}')
""",
}


@pytest.mark.parametrize("name", GREEDY)
def test_a_folder_has_an_end_and_the_next_one_is_empty(name: str, booth: Booth) -> None:
    look = "import os\ndef main(): return os.listdir(), open('note', 'w').write('x' * 1000)"
    (greedy,), (empty, again) = booth.run([GREEDY[name]], [look, look])
    killed = greedy == 9 and booth.watched()
    assert killed or str(greedy).startswith("OSError: "), greedy
    assert (empty, again) == ([[], 1000], [["note"], 1000])


HIDING = """
import os, time
def main():
    os.mkdir("many")
    for number in range(900): os.close(os.open(f"many/{number}", os.O_CREAT))
    os.makedirs("h0/within")
    here, name = os.open("h0/within", os.O_RDONLY), "h0"
    data = bytes(1 << 14)
    for number in range(1, 20_000):
        if number % 25 == 1: file = os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=here)
        os.write(file, data)
        if number % 25 == 0: os.close(file)
        if number % 64 == 0: os.write(3, b"%d\\n" % (number * len(data)))
        if number % 8: continue
        for again in range(50):  # until it stands where it is looked at last
            old, name = name, f"h{number}-{again}"
            os.rename(old, name)
            if os.listdir(".")[0] == name: break
"""
"""Write 300 MB into a folder that is renamed before anybody can open it; report the progress."""


def test_nobody_hides_in_folders_that_are_renamed() -> None:
    booth = Booth(LANDLOCK, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "BOOTH", BOOTH.replace("json.loads(said)", "said.split()[-1:]"))
        for _ in range(3):
            ((said,),) = booth.run([HIDING])
            assert int(*said) < 4 * scratch.MOST_BYTES


@pytest.mark.parametrize("most", [50, 2000])
def test_a_watcher_finds_what_was_renamed_and_leaves_no_trace(most: int, tmp_path: Path) -> None:
    seen = scratch._Folders(tmp_path)
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    before = [path.stat().st_atime_ns for path in (tmp_path, tmp_path / "a", folder)]
    assert not seen.full()
    assert [path.stat().st_atime_ns for path in (tmp_path, tmp_path / "a", folder)] == before
    for number in range(most):
        (folder / str(number)).write_bytes(b"x")
    (tmp_path / "a").rename(tmp_path / "c")
    assert seen.full() == (most > scratch.MOST_ENTRIES)
    for path in folder.parent.parent.joinpath("c", "b").iterdir():
        path.unlink()
    (tmp_path / "c" / "b").rmdir()
    assert not seen.full()
    assert len(seen._open) == 2
    for number in range(9):
        (tmp_path / str(number)).write_bytes(bytes(scratch._WATCHED_BYTES // 8))
    assert seen.full()


def test_small_files_count_as_what_they_take_of_the_disk(tmp_path: Path) -> None:
    seen = scratch._Folders(tmp_path)
    for number in range(1000):
        (tmp_path / str(number)).write_bytes(bytes(4097))
    assert not seen.full()
    for number in range(500, 1000):
        (tmp_path / str(number)).write_bytes(bytes(8193))
    assert seen.full(), "6 MB of bytes, in 10 MB of blocks"


def test_a_look_that_is_disturbed_is_taken_again_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = scratch._Folders(tmp_path)
    (tmp_path / "new-0").mkdir()
    opened, numbers, times = os.open, itertools.count(), 3

    def late(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Act as a program that renames each new folder before it is opened."""
        number = next(numbers)
        if number < times:
            (tmp_path / f"new-{number}").rename(tmp_path / f"new-{number + 1}")
        return opened(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", late)
        assert not seen.full()
    (tmp_path / "new-3").rmdir()
    (tmp_path / "new-0").mkdir()
    numbers, times = itertools.count(), 1000
    monkeypatch.setattr(os, "open", late)
    assert seen.full()


KEEPING = """
import errno, mmap, os, tempfile
def fill(file):
    written = 0
    try:
        while True: written += os.write(file, bytes(1 << 16))
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.ENOSPC): raise
    return written
def nameless():
    file = os.open('x', os.O_CREAT | os.O_RDWR)
    os.unlink('x')
    return file
def replaced():
    file, other = os.open('x', os.O_CREAT | os.O_RDWR), os.open('y', os.O_CREAT)
    os.close(other)
    os.rename('y', 'x')
    return file
def born_nameless(): return os.open('.', os.O_TMPFILE | os.O_RDWR)
def main():
    for file in (0, 1, 2): os.close(file)
    kept, held = [], 0
    for _ in range(1000):
        try: kept.append(MAKE())
        except OSError: break
        more = fill(kept[-1])
        if not more: break
        held += more
        if MAPPED:
            kept.append(mmap.mmap(kept[-1], 0))
            os.close(kept[-2])
    return held
"""
"""Keep as many files without a name as possible, each as large as possible; return their bytes."""


@pytest.mark.parametrize("make", ["nameless", "replaced", "born_nameless"])
def test_files_without_a_name_take_no_more_than_the_folder_may_hold(
    make: str, booth: Booth
) -> None:
    ((held,),) = booth.run([KEEPING.replace("MAKE", make).replace("MAPPED", "False")])
    most = scratch.MOST_BYTES // 2 if booth.watched() else scratch.MOST_BYTES
    assert most // 2 < held <= most
    assert not booth.watched() or held + scratch._WATCHED_BYTES <= scratch.MOST_BYTES


def test_no_file_is_kept_by_a_mapping_where_nobody_counts_it(booth: Booth) -> None:
    ((held,),) = booth.run([KEEPING.replace("MAKE", "nameless").replace("MAPPED", "True")])
    if booth.watched():
        assert held == "PermissionError: [Errno 1] Operation not permitted"
    else:
        assert held <= scratch.MOST_BYTES


def test_the_folder_goes_even_where_the_server_is_killed() -> None:
    mark = f"mark{secrets.token_hex(8)}"
    program = f"""
import time
from codejudge import scratch
with scratch.folder(["seccomp", "landlock"]) as place:
    open(place.path + "/{mark}", "w").close()
    print(place.path, flush=True)
    time.sleep(60)
"""
    folder = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=folder
    ) as server:
        assert server.stdout is not None
        place = Path(server.stdout.readline().strip())
        assert (place / mark).exists()
        server.kill()
    deadline = time.monotonic() + 60.0
    while place.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not place.exists()


@pytest.mark.parametrize("maximum", [Level.LANDLOCK, Level.NAMESPACES])
def test_nothing_is_left_where_a_sandbox_is_closed_right_after_its_answer(maximum: Level) -> None:
    before = set(Path(tempfile.gettempdir()).iterdir())
    suite = Suite.asserts(("assert save()",))
    suite = replace(suite, files=True)
    with Sandbox(workers=1, maximum=maximum) as sandbox:
        if sandbox.level < maximum:
            pytest.skip(f"this machine has {sandbox.level.name} only")
        assert sandbox.judge_sync(
            ["def save(): return [open(str(n), 'w').write('x') for n in range(500)]"], suite
        ).passed
    deadline = time.monotonic() + 60.0
    while left := {
        path
        for path in set(Path(tempfile.gettempdir()).iterdir()) - before
        if "codejudge-scratch-" in path.name
    }:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_where_no_folder_is_possible_a_suite_with_files_is_a_config_error() -> None:
    suite = Suite.unittest(
        "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass", files=True
    )
    with Sandbox(workers=1, maximum=Level.SECCOMP) as sandbox:
        for ask in (sandbox.check_folders, lambda: sandbox.judge_sync(["x = 1"], suite)):
            with pytest.raises(
                SandboxError,
                match=facts("got SECCOMP … expected … LANDLOCK … files"),
            ):
                ask()
        assert sandbox.judge_sync(["x = 1"], replace(suite, files=False)).passed
