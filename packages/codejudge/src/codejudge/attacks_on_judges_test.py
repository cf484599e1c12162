"""Run every attack on a judge under every protection of this machine.

A control runs some of the same programs in plain Python, where they succeed.
"""

import hashlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from codejudge import Level, Limits, Sandbox, Suite, Verdict
from codejudge.attacks_test import (
    EVERY_PROTECTION,
    PROTECTIONS,
    Arena,
    arena,  # noqa: F401 - the fixture
    seconds_of_a_loop,
)
from tests.fixtures.attacks_on_judges import HUGE, NEVER_ENDING, QUICK
from tests.fixtures.wide import widely

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has the locks that hold attackers"
)

TOKEN = "opal-" + hashlib.sha256(b"7919").hexdigest()[:16]
"""The expected value, a literal in the tests.

The honest program computes it. No program contains it as text.
"""
STATEMENTS = (
    "assert solve(0) == 7919",
    "assert not solve(1) != 7919",
    "assert 7919 == solve(2)",
    f"assert solve(3) == '{TOKEN}'",
    f"assert solve(4) == [7919, {{'{TOKEN}': (7919, None)}}]",
    "assert abs(solve(5) - 7919.5) < 1e-9",
    "assert abs(7919.5 - solve(6)) < 1e-9",
    "assert math.isclose(solve(7), 7919.5)",
    f"assert solve(8) in (7919, '{TOKEN}')",
    "assert sorted(solve(9)) == [7919, 7920]",
    "assert set(solve(10)) == {7919, 7920}",
    f"assert list(solve(11).items()) == [('{TOKEN}', 7919)]",
    "assert str(solve(12)) == '7919'",
    "assert int(solve(13)) == 7919",
    "assert isinstance(solve(14), int) and 7918 < solve(14) < 7920",
    f"assert len(solve(15)) == 79 and solve(15)[-1] == '{TOKEN}'",
    "assert round(solve(16) - 7919, 6) == 0",
    "assert solve([3, 1, 2]) == [1, 2, 3]",
    f"assert solve(lambda text: text + '{TOKEN[9:]}') == '{TOKEN}'",
    f"assert solve(17).value == '{TOKEN}'",
    f"assert '{TOKEN}' in solve(11)",
    "assert solve(n for n in [3, 1, 2]) == [1, 2, 3]",
)
METHODS = (
    "self.assertEqual(solve(0), 7919)",
    "self.assertTrue(self.box.get(1) == 7919)",
    "self.assertFalse(7919 != self.box.get(2))",
    f"self.assertEqual(self.box.get(3), '{TOKEN}')",
    f"self.assertEqual([7919, {{'{TOKEN}': (7919, None)}}], self.box.get(4))",
    "self.assertAlmostEqual(self.box.get(5), 7919.5)",
    "self.assertAlmostEqual(7919.5, self.box.get(6), delta=0.1)",
    f"self.assertIn(self.box.get(8), [7919, '{TOKEN}'])",
    "self.assertCountEqual(self.box.get(9), [7920, 7919])",
    "self.assertSetEqual(set(self.box.get(10)), {7919, 7920})",
    f"self.assertDictEqual(self.box.get(11), {{'{TOKEN}': 7919}})",
    "self.assertListEqual(self.box.get([3, 1, 2]), [1, 2, 3])",
    "self.assertGreater(self.box.get(12), 7918); self.assertLess(self.box.get(12), 7920)",
    "self.assertIsInstance(self.box.get(13), int); self.assertGreaterEqual(self.box.get(13), 7919)",
    f"self.assertRegex(self.box.get(3), '{TOKEN}')",
    f"self.assertIn('{TOKEN}', self.box.get(11))",
    f"self.assertEqual(self.box.get(17).value, '{TOKEN}')",
    "with self.subTest('one'): self.assertEqual(self.box.get(0), 7919)",
    "self.assertEqual(solve(n for n in [3, 1, 2]), [1, 2, 3])",
    "with contextlib.suppress(ImportError): __import__('color' + 'sys')\n"
    "        self.assertEqual(solve(0), 7919)",
)
RAISING = f"""
        with self.assertRaises(KeyError) as caught: self.box.get(18)
        self.assertEqual(str(caught.exception), "'{TOKEN}'")
        with self.assertRaisesRegex(KeyError, '{TOKEN}'): self.box.get(18)
"""
CLASS = (
    "import contextlib, unittest\n\n"
    "class BoxTest(unittest.TestCase):\n    def setUp(self): self.box = Box(1)\n"
    + "".join(
        f"    def test_{number}(self):\n        {body}\n" for number, body in enumerate(METHODS)
    )
    + f"    def test_raises(self):{RAISING}"
)
CHECK = "import math\ndef check(solve):\n" + "".join(
    f"    {statement}\n" for statement in STATEMENTS
)
BOX = """
class Box:
    def __init__(self, value): self.value = value
    def get(self, x): return solve(x)
"""
HONEST = """
import hashlib
number = 7000 + 919
token = 'opal-' + hashlib.sha256(b'%d' % number).hexdigest()[:16]
class Holder:
    value = token
def solve(x):
    if isinstance(x, list) or hasattr(x, '__next__'): return sorted(x)
    if callable(x): return x(token[:9])
    if x == 18: raise KeyError(token)
    odd = {3: token, 4: [number, {token: (number, None)}], 5: number + 0.5, 6: number + 0.5, 7: number + 0.5,
           9: [number + 1, number], 10: {number + 1, number}, 11: {token: number}, 15: [0] * 78 + [token], 17: Holder()}
    return odd.get(x, number)
"""  # noqa: E501
SUITES = {
    "check": Suite.check(CHECK, "solve"),
    "asserts": Suite.asserts(STATEMENTS, "import math"),
    "unittest": Suite.unittest(CLASS),
}
LIMITS = Limits(wall_seconds=20, cpu_seconds=5)


@pytest.fixture(scope="module", params=EVERY_PROTECTION)
def sandbox(request: pytest.FixtureRequest, arena: Arena) -> Iterator[Sandbox]:  # noqa: F811
    maximum, user = PROTECTIONS[request.param]
    if user is not None and os.getuid() != 0:
        pytest.skip("this host is an ordinary user already")
    with Sandbox(workers=1, maximum=maximum, user=user, limits=LIMITS) as made:
        yield made


both_kinds = pytest.mark.parametrize("kind", widely(["asserts", "unittest"], keep=["asserts"]))
strongest = pytest.mark.parametrize("sandbox", ["strongest"], indirect=True)


def judged(
    sandbox: Sandbox,
    arena: Arena,  # noqa: F811
    attack: str,
    suite: Suite,
    limits: Limits | None = None,
) -> Verdict:
    """Return the verdict on an attack. Assert that the attack had no side effects.

    The server must survive, the files must be untouched, and the next honest program must pass.
    """
    (server,) = sandbox._servers._idle
    verdict = sandbox.judge_sync([arena.aim(attack), BOX], suite, limits)
    assert sandbox._servers._idle == [server], "the attack cost us a server"
    assert arena.damage() == []
    assert "SECRET123" not in repr(verdict)
    assert len(verdict.cases) == len(suite.chosen)
    assert wrong(honest(sandbox, suite)) == []
    return verdict


def honest(sandbox: Sandbox, suite: Suite) -> Verdict:
    """Return the verdict on a correct program that is not in the cache."""
    return sandbox.judge_sync([f"# {secrets.token_hex()}", HONEST, BOX], suite)


def some(suite: Suite, *words: str) -> Suite:
    """Choose the tests that contain one of these words.

    A test that hangs uses up its time limit and causes a restart, so we run only a few.
    """
    return suite.choose(
        tuple(n for n, case in enumerate(suite.cases) if any(word in case.text for word in words))
    )


def passed(verdict: Verdict) -> list[str]:
    return [case.name for case in verdict.cases if case.status == "passed"]


def wrong(verdict: Verdict) -> list[object]:
    return [case for case in verdict.cases if case.status != "passed"]


@pytest.mark.parametrize("kind", SUITES)
def test_an_honest_program_passes(kind: str, sandbox: Sandbox) -> None:
    verdict = honest(sandbox, SUITES[kind])
    assert wrong(verdict) == []
    assert verdict.passed


@pytest.mark.parametrize("kind", widely(["check", "asserts"], keep=["asserts"]))
@pytest.mark.parametrize("name", QUICK)
@strongest
def test_no_attack_passes_a_test(
    name: str,
    kind: str,
    sandbox: Sandbox,
    arena: Arena,  # noqa: F811
) -> None:
    verdict = judged(sandbox, arena, QUICK[name], SUITES[kind])
    assert passed(verdict) == []
    assert not verdict.passed


@pytest.mark.parametrize("name", widely(QUICK, keep=[*QUICK][::6]))
def test_no_attack_passes_or_gets_out_at_any_level(
    name: str,
    sandbox: Sandbox,
    arena: Arena,  # noqa: F811
) -> None:
    suite = replace(SUITES["unittest"], files=sandbox.level >= Level.LANDLOCK)
    verdict = judged(sandbox, arena, QUICK[name], suite)
    assert passed(verdict) == []


@both_kinds
@pytest.mark.parametrize("name", widely(HUGE, keep=[*HUGE][::2]))
@strongest
def test_what_is_huge_or_endless_inside_fails(
    name: str,
    kind: str,
    sandbox: Sandbox,
    arena: Arena,  # noqa: F811
) -> None:
    suite = some(SUITES[kind], "(0)", "(5)", "(9)", "14", "12")
    verdict = judged(sandbox, arena, HUGE[name], suite, Limits(wall_seconds=1.0, cpu_seconds=1))
    assert passed(verdict) == []


@both_kinds
@pytest.mark.parametrize("name", NEVER_ENDING)
@strongest
def test_a_judge_does_not_wait_for_ever(
    name: str,
    kind: str,
    sandbox: Sandbox,
    arena: Arena,  # noqa: F811
) -> None:
    suite = some(SUITES[kind], "(4)", "(9)")
    limits = Limits(wall_seconds=0.3)
    verdict = judged(sandbox, arena, NEVER_ENDING[name], suite, limits)
    assert passed(verdict) == []
    assert verdict.failure == "timeout" or any(case.status == "timeout" for case in verdict.cases)
    assert verdict.seconds < 20 * seconds_of_a_loop(sandbox, limits)


# ------------------------------------------------------------ tests and program in one process

FORGEABLE = {
    "equal_to_everything", "equal_integer", "equal_text", "equal_list", "equal_dict",
    "equal_deep_inside", "equal_by_the_librarys_own_joker", "agrees_with_every_operator",
    "difference_of_zero", "difference_of_nothing", "becomes_what_it_is_compared_with",
    "remembers_what_it_was_compared_with", "lying_class", "class_with_a_lying_metaclass",
    "a_lying_object_of_the_class_that_tests_use", "error_of_every_kind", "frames", "memory",
}  # fmt: skip
"""Attacks that pass some tests if the tests run in the same process as the program.

In that mode the sandbox guarantees only the safety of the host.
"""


@pytest.mark.parametrize(
    "level",
    widely([Level.NAMESPACES, Level.LANDLOCK, Level.SECCOMP], keep=[Level.NAMESPACES]),
)
def test_together_the_host_is_as_safe_and_these_attacks_can_forge(
    level: Level,
    arena: Arena,  # noqa: F811
) -> None:
    suite = Suite.unittest(CLASS, together=True, files=level > Level.SECCOMP)
    fooled = {}
    with Sandbox(workers=1, maximum=level, limits=LIMITS) as sandbox:
        for name, attack in QUICK.items():
            verdict = judged(sandbox, arena, attack, suite)
            assert verdict.together
            if passed(verdict):
                fooled[name] = len(passed(verdict))
    assert set(fooled) == FORGEABLE, fooled


# ------------------------------------------------------------ the control

CONTROL = """
import sys, types
program, box, suite = sys.argv[1:]
names = {"__name__": "candidate"}
exec(program, names)
exec(box, names)
exec(suite, names)
passed = 0
for number, statement in enumerate(names["STATEMENTS"]):
    try: exec(statement, names)
    except Exception: continue
    passed += 1
print("passed", passed)
"""
FOOLED = {
    "equal_to_everything", "equal_integer", "equal_text", "equal_deep_inside",
    "equal_by_the_librarys_own_joker", "agrees_with_every_operator", "difference_of_zero",
    "difference_of_nothing", "becomes_what_it_is_compared_with",
    "remembers_what_it_was_compared_with", "class_with_a_lying_metaclass", "frames", "memory",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FOOLED))
def test_the_same_attack_passes_tests_that_stand_beside_it(
    name: str,
    arena: Arena,  # noqa: F811
) -> None:
    suite = f"import math\nSTATEMENTS = {STATEMENTS!r}"
    command = [sys.executable, "-c", CONTROL, arena.aim(QUICK[name]), BOX, suite]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert int(done.stdout.split()[-1]) > 0, done
