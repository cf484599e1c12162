"""Programs that attack, as texts. Tests put @ARENA@ (a folder open to all), @HOST@ (a process id), @PORT@ and @SOCKET@ in them.

Each keeps quiet about its failures and, where it can, returns something from `main`: an attack that merely raises proves little.
"""

NEVER_ENDING = {
    "infinite_loop": """
def main(n):
    while True: pass
""",
    "loop_that_catches_everything": """
def main(n):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "loop_after_cancelling_alarms": """
import signal
try: signal.setitimer(signal.ITIMER_REAL, 0)
except OSError: pass
for name in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
    signal.signal(name, signal.SIG_IGN)
def main(n):
    while True: pass
""",
    "sleep": """
import time
def main(n): time.sleep(3600)
""",
    "loop_in_str_of_an_error": """
class Slow(Exception):
    def __str__(self):
        while True: pass
def main(n): raise Slow()
""",
    "pattern_that_backtracks": """
import re
def main(n): return re.match(r'(a+)+$', 'a' * 60 + 'b')
""",
    "power": """
def main(n): return n ** n ** n ** n
""",
    "audit_hook_that_loops": """
import sys
def main(n):
    def hook(*about):
        while True: pass
    sys.addaudithook(hook)
    return open('x')
""",
    "codec_that_loops": """
import codecs
def search(name):
    while True: pass
codecs.register(search)
def main(n): return 'a'.encode('unheard_of')
""",
    "recursion": """
import sys
sys.setrecursionlimit(10**8)
def main(n): return main(n) + 1
""",
}

READING = {
    "read_secret_file": """
def main(n):
    try: return open('@ARENA@/secret').read()
    except OSError: return 'denied'
""",
    "read_secret_with_libc": """
import ctypes
def main(n):
    libc = ctypes.CDLL(None)
    out = ctypes.create_string_buffer(100)
    try: libc.read(libc.open(b'@ARENA@/secret', 0), out, 99)
    except OSError: pass
    return out.value
""",
    "env_secret": """
import os
def main(n): return os.environ.get('HF_TOKEN', '')
""",
    "parent_environ": """
import os
def main(n):
    out = ''
    try: pids = os.listdir('/proc')
    except OSError: pids = [str(number) for number in (1, 2, @HOST@)]
    for pid in pids:
        if pid.isdigit():
            try: out += open(f'/proc/{pid}/environ').read()
            except OSError: pass
    return 'SECRET123' if 'SECRET123' in out else ''
""",
    "frames_read_expected": """
import sys, gc
def found(value, n):
    return (isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], (list, tuple))
            and list(value[0]) == [n] and isinstance(value[1], int))
def main(n):
    frame = sys._getframe()
    while frame:
        for names in (frame.f_locals, frame.f_globals):
            for value in list(names.values()):
                for pair in value if isinstance(value, list) else ():
                    if found(pair, n): return pair[1]
        frame = frame.f_back
    for pair in gc.get_objects():
        if found(pair, n): return pair[1]
    return -1
""",
    "read_test_source": r"""
import sys, re
def main(n):
    try: source = open(sys.argv[0]).read()
    except Exception: return -1
    match = re.search(r'main\(%d\)\s*==\s*(-?\d+)' % n, source)
    return int(match.group(1)) if match else -1
""",
    "read_the_hosts_memory": """
def main(n):
    try: return open('/proc/@HOST@/mem', 'rb').read(1)
    except OSError: return -1
""",
}

WRITING = {
    "delete_file": """
import os
try: os.remove('@ARENA@/victim')
except OSError: pass
def main(n): return 0
""",
    "write_outside": """
try: open('@ARENA@/pwned', 'w').write('x')
except OSError: pass
def main(n): return 0
""",
    "truncate_and_rename": """
import os
for attempt in (lambda: os.truncate('@ARENA@/victim', 0), lambda: os.rename('@ARENA@/victim', '@ARENA@/pwned'),
                lambda: os.chmod('@ARENA@/victim', 0), lambda: os.mkdir('@ARENA@/pwned'),
                lambda: os.symlink('/', '@ARENA@/pwned')):
    try: attempt()
    except OSError: pass
def main(n): return 0
""",
    "fill_disk": """
try:
    file = open('@ARENA@/big', 'wb')
    for _ in range(300): file.write(b'0' * 10**6)
    file.flush()
except BaseException: pass
def main(n): return 0
""",
    "huge_stdout": """
import sys
try:
    for _ in range(300): sys.stdout.write('A' * 10**6)
except BaseException: pass
def main(n): return 0
""",
    "network": """
import socket
try:
    channel = socket.create_connection(('127.0.0.1', @PORT@), 1)
    channel.send(b'hi'); channel.close()
except Exception: pass
def main(n): return 0
""",
    "abstract_unix": r"""
import socket
try:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect('\0@SOCKET@'); channel.send(b'hi')
except Exception: pass
def main(n): return 0
""",
}

PROCESSES = {
    "fork_bomb": """
import os, time
for _ in range(20):
    try:
        if os.fork() == 0:
            try: os.setsid()
            except Exception: pass
            time.sleep(15); os._exit(0)
    except OSError: pass
def main(n): return 0
""",
    "run_a_command": """
import subprocess
try: subprocess.run(['/bin/sh', '-c', 'echo > @ARENA@/pwned'])
except Exception: pass
def main(n): return 0
""",
    "threads": """
import threading, time
for _ in range(300):
    try: threading.Thread(target=time.sleep, args=(12,)).start()
    except Exception: break
def main(n): return 0
""",
    "kill_parent": """
import os, signal
try: os.kill(os.getppid(), 9)
except OSError: pass
def main(n): return 0
""",
    "kill_grandparents": """
import os
try:
    pid = os.getppid()
    for _ in range(2):
        above = int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])
        os.kill(pid, 9)
        pid = above
except Exception: pass
def main(n): return 0
""",
    "kill_grandparent_first": """
import os
try:
    pid = os.getppid()
    os.kill(int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1]), 9)
except Exception: pass
def main(n): return 0
""",
    "kill_host": """
import os
try: os.kill(@HOST@, 9)
except Exception: pass
def main(n): return 0
""",
    "kill_host_from_a_file": """
import os
for _ in range(2, 60000): pass
try: os.kill(int(open('@ARENA@/hostpid').read()), 9)
except Exception: pass
def main(n): return 0
""",
    "kill_through_a_pipe_that_signals": """
import fcntl, os
try:
    fcntl.fcntl(3, fcntl.F_SETOWN, @HOST@)
    fcntl.fcntl(3, 10, 9)  # F_SETSIG
    fcntl.fcntl(3, fcntl.F_SETFL, os.O_ASYNC)
except OSError: pass
def main(n): return 0
""",
    "trace_the_host": """
import ctypes
def main(n): return ctypes.CDLL(None).ptrace(16, @HOST@, 0, 0)
""",
    "become_root": """
import ctypes, os
libc = ctypes.CDLL(None)
libc.unshare(0x10000000)
for attempt in (lambda: os.setuid(0), lambda: os.chroot('.'), lambda: os.chroot('/..')):
    try: attempt()
    except OSError: pass
def main(n): return 0
""",
    "raise_own_limits": """
import resource
for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
    try: resource.setrlimit(name, (100, 100))
    except (OSError, ValueError): pass
try: open('@ARENA@/pwned', 'w').write('x')
except OSError: pass
def main(n): return 0
""",
}

LEAVING = {
    "os_exit_0": """
import os
os._exit(0)
""",
    "sys_exit_0": """
import sys
sys.exit(0)
""",
    "memory_bomb": """
def main(n):
    return len(bytearray(3 * 10**9))
""",
    "ctypes_segfault": """
import ctypes
ctypes.string_at(0)
def main(n): return 0
""",
    "fake_pass_print": r"""
import os, sys
sys.stdout.write('\nALL TESTS PASSED\nOK\n'); sys.stdout.flush(); os._exit(0)
""",
}

CHEATING = {
    "equal_to_everything": """
class Equal(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
def main(n): return Equal()
""",
    "patch_builtins": """
import builtins
builtins.AssertionError = type('X', (Exception,), {})
builtins.all = lambda *a: True
builtins.len = lambda x: 1
def main(n): return None
""",
    "patch_unittest": """
import unittest
for name in dir(unittest.TestCase):
    if name.startswith('assert'): setattr(unittest.TestCase, name, lambda *a, **k: None)
def main(n): return None
""",
    "poison_next": """
import builtins
builtins.sum = lambda *a, **k: 12345
def main(n): return 0
""",
    "forge_results_on_every_descriptor": """
import os, json
for descriptor in range(3, 64):
    try: os.write(descriptor, json.dumps([[{'v': True}] * 9, None]).encode())
    except OSError: pass
os._exit(0)
""",
    "forge_lines": r"""
import os
os.write(3, b'[1,true]\n[1,{"int":"0x1"}]\n[3,null,""]\n')
os._exit(0)
""",
    "forge_a_failure_of_ours": r"""
import os
os.write(3, b'[3,"setup","it was not me"]\n')
os._exit(0)
""",
    "forge_nested_json": r"""
import os
os.write(3, b'[1,' + b'[' * 200000 + b']' * 200000 + b']\n')
os._exit(0)
""",
    "close_results_and_go_on": """
import os
os.close(3)
while True: pass
""",
    "flood_results": r"""
import os
while True: os.write(3, b'[1,0]\n' * 10000)
""",
    "deep_value": """
def main(n):
    value = 0
    for _ in range(100000): value = [value]
    return value
""",
    "exponential_value": """
def main(n):
    value = 0
    for _ in range(60): value = [value, value]
    return value
""",
    "huge_integer": """
def main(n): return 1 << 100_000_000
""",
    "huge_string": """
def main(n): return 'A' * 100_000_000
""",
    "name_that_is_no_text": """
class Meta(type):
    __name__ = property(lambda self: 1 / 0)
class Odd(Exception, metaclass=Meta):
    def __str__(self): raise SystemExit
def main(n): raise Odd()
""",
}

INTERPRETER = {
    "own_importer": """
import sys, types
class Finder:
    def find_spec(self, name, path=None, target=None): raise SystemExit
    def find_module(self, name, path=None): return self
    def load_module(self, name): return types.ModuleType(name)
sys.meta_path[:] = [Finder()]
sys.path_hooks[:] = [lambda path: Finder()]
sys.path[:] = ['@ARENA@']
def main(n):
    try: import victim
    except BaseException: return 0
""",
    "modules_exchanged": """
import sys
for name in list(sys.modules):
    if name != 'sys': sys.modules[name] = None
def main(n):
    try: import json
    except ImportError: return 0
""",
    "modules_of_the_server_patched": """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith('motet'):
        for member in list(vars(module)):
            if not member.startswith('__'): setattr(module, member, lambda *args, **named: b'[1,0]')
def main(n): return n
""",
    "frames_patched": """
import sys
frame = sys._getframe()
while frame:
    for name in list(frame.f_globals):
        if name in ('_say', 'protocol', 'program', 'decode', 'RESULTS'): frame.f_globals[name] = None
    frame = frame.f_back
def main(n): return n
""",
    "builtins_cleared": """
import builtins
def main(n):
    vars(builtins).clear()
    return n
""",
    "module_cleared": """
def main(n):
    globals().clear()
    return n
""",
    "main_that_is_no_function": """
class main:
    def __new__(cls, n): raise GeneratorExit
""",
    "main_that_is_a_coroutine": """
async def main(n): return n
""",
    "audit_hook_that_leaves": """
import os, sys
sys.addaudithook(lambda *about: os._exit(0))
def main(n): return n
""",
    "trace_that_writes": r"""
import os, sys
def trace(frame, event, argument):
    os.write(3, b'[1,0]\n')
    return trace
sys.settrace(trace)
sys.setprofile(trace)
def main(n): return n
""",
    "codecs_exchanged": """
import codecs
codecs.register(lambda name: codecs.CodecInfo(lambda *a: 1 / 0, lambda *a: 1 / 0, name=name))
for name in ('strict', 'ignore', 'replace', 'surrogateescape'):
    codecs.register_error(name, lambda error: 1 / 0)
def main(n): return 'é\\ud800'
""",
    "exit_at_exit": """
import atexit, os
atexit.register(os._exit, 0)
def main(n): raise SystemExit
""",
    "exit_when_deleted": """
import os
class Last:
    def __del__(self): os._exit(0)
def main(n):
    Last()
    return n
""",
    "exit_in_a_weak_reference": """
import os, weakref
class Last: pass
def main(n):
    last = Last()
    main.watch = weakref.ref(last, lambda reference: os._exit(0))
    del last
    return n
""",
    "garbage_that_resists": """
import gc
class Node:
    def __del__(self): kept.append(self)
kept = []
gc.set_threshold(1)
gc.callbacks.append(lambda *about: 1 / 0)
def main(n):
    for _ in range(1000):
        node = Node()
        node.node = node
    gc.collect()
    return [gc.get_referrers(gc.get_objects())]
""",
    "signals_all_ignored": """
import signal
def main(n):
    for number in signal.valid_signals():
        try: signal.signal(number, lambda *about: 1 / 0)
        except (OSError, ValueError): pass
    for attempt in (lambda: signal.raise_signal(9), lambda: signal.pthread_kill(1, 9), lambda: signal.setitimer(0, 1)):
        try: attempt()
        except OSError: pass
    return n
""",
    "abort": """
import os
def main(n): os.abort()
""",
    "traceback_among_the_results": """
import faulthandler
def main(n):
    faulthandler.dump_traceback(file=3)
    return n
""",
    "stack_overflow_in_c": """
import json, sys
sys.setrecursionlimit(10**9)
def main(n):
    value = []
    for _ in range(10**6): value = [value]
    return json.dumps(value)
""",
    "messages_of_half_characters": r"""
class Odd(Exception): pass
def main(n): raise Odd('\ud800' * 1000)
""",
    "groups_of_errors": """
def main(n):
    error = ValueError(n)
    for _ in range(1000): error = ExceptionGroup('x', [error])
    raise error
""",
    "values_that_hold_themselves": """
def main(n):
    value = {}
    value['a'] = [value, (value,)]
    return value
""",
    "keys_that_collide": """
def main(n): return {i * (2**61 - 1): 0 for i in range(1500)}
""",
    "source_of_parentheses": "x = " + "(" * 5000 + ")" * 5000,
    "source_of_signs": "x = " + "-" * 100_000 + "1",
    "source_of_blocks": "".join(" " * depth + "if 1:\n" for depth in range(120)) + " " * 120 + "x = 1",
    "source_of_another_encoding": "# -*- coding: utf-7 -*-\nx = '+AGE-'\ndef main(n): return 0",
}

MACHINE = {
    "descriptors_closed": """
import os
def main(n):
    os.closerange(0, 1000)
    return n
""",
    "descriptors_exchanged": r"""
import os, sys
def main(n):
    for pair in ((3, 1), (3, 2), (1, 3), (0, 4), (3, 5)):
        try: os.dup2(*pair)
        except OSError: pass
    sys.stdout.write('[1,0]\n'); sys.stdout.flush()
    return n
""",
    "descriptors_made": """
import os
def main(n):
    made = []
    for attempt in (os.pipe, lambda: os.dup(3), lambda: os.openpty(), lambda: os.memfd_create('x'), lambda: os.eventfd(0)):
        try: made.append(attempt())
        except OSError: pass
    return [3, 4, made]
""",
    "errors_flooded": """
import os
def main(n):
    for _ in range(300):
        try: os.write(2, b'E' * 10**6)
        except OSError: break
    return n
""",
    "small_pieces_of_memory": """
def main(n):
    kept = []
    try:
        while True: kept.append(bytes(10**6))
    except MemoryError: return len(kept)
""",
    "memory_mapped": """
import mmap
def main(n):
    kept = []
    for size in (1 << 40, 1 << 30, 1 << 29, 1 << 28):
        try: kept.append(mmap.mmap(-1, size))
        except (OSError, ValueError, OverflowError): pass
    return len(kept)
""",
    "memory_shared": """
from multiprocessing import shared_memory
def main(n):
    try: return shared_memory.SharedMemory(create=True, size=1000).name
    except OSError: return 0
""",
    "many_processes": """
import multiprocessing, os, pty
for attempt in (lambda: multiprocessing.Process(target=int).start(), os.forkpty, pty.fork,
                lambda: os.posix_spawn('/bin/sh', ['sh', '-c', 'echo > @ARENA@/pwned'], {}),
                lambda: os.execv('/bin/sh', ['sh', '-c', 'echo > @ARENA@/pwned']), lambda: os.system('echo > @ARENA@/pwned'),
                lambda: os.popen('echo > @ARENA@/pwned').close()):
    try: attempt()
    except (OSError, ImportError): pass
def main(n): return 0
""",
    "clocks_set": """
import time
def main(n):
    for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):
        try: time.clock_settime(clock, 0)
        except OSError: pass
    return time.time() < 10**9 and 'the clock was set'
""",
    "more_than_its_share": """
import os, resource
for attempt in (lambda: os.nice(-20), lambda: os.setpriority(0, 0, -20), lambda: os.sched_setaffinity(0, {0}),
                lambda: os.sched_setscheduler(0, 1, os.sched_param(50)), lambda: resource.prlimit(@HOST@, 0, (1, 1)),
                lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)), lambda: os.sched_yield()):
    try: attempt()
    except (OSError, ValueError): pass
def main(n): return 0
""",
    "variables_set": """
import os
os.environ.update(LD_PRELOAD='@ARENA@/victim', PYTHONPATH='@ARENA@', PATH='@ARENA@')
def main(n): return dict(os.environ).get('HF_TOKEN')
""",
    "system_calls": """
import ctypes
libc = ctypes.CDLL(None)
def main(n):
    # link, mknod, ptrace, swapon, kexec_load, add_key, io_setup, perf_event_open, bpf, userfaultfd, io_uring_setup, pidfd_open
    return [libc.syscall(number, 0, 0, 0, 0, 0, 0) for number in (86, 133, 101, 167, 246, 248, 206, 298, 321, 323, 425, 434)]
""",
}

QUICK = READING | WRITING | PROCESSES | LEAVING | CHEATING | INTERPRETER | MACHINE
