import pytest

from codejudge.needs import needs_files, needs_object

TESTS = (
    "import unittest, io, random, sys, time\n\n"
    "class T(unittest.TestCase):\n    def test(self):\n        {}\n"
)


@pytest.mark.parametrize(
    "statement",
    [
        "self.assertEqual(Pair(1, 2).total(), 3)",
        "self.assertIsInstance(Pair(1, 2), Pair)",
        "with self.assertRaises(ValueError): Pair(1)",
        "pair = Pair(1, 2); pair.total = 3; self.assertEqual(pair.total, 3)",
        "self.assertEqual(random.randint(1, 1), Pair(1, 2).a)",
        "time.sleep(0)",
        "class Shape: pass\n        class Square(Shape, Exception): pass",
        "self.assertEqual(Pair('stdout', 'patch').a, 'stdout')",
    ],
)
def test_most_tests_need_no_object(statement):
    assert not needs_object(TESTS.format(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "from unittest.mock import patch",
        "with unittest.mock.patch('random.randint'): pass",
        "sys.stdout = io.StringIO()",
        "import contextlib; contextlib.redirect_stdout(io.StringIO())",
        "random.seed(0)",
        "import os; os.environ['A'] = 'b'",
        "with self.assertWarns(UserWarning): Pair(1, 2)",
        "with self.assertLogs(): Pair(1, 2)",
        "import pickle",
        "import inspect",
        "self.assertEqual(Pair.__doc__, 'Two.')",
        "time.sleep = print",
        "del time.sleep",
        "class Triple(Pair): pass",
    ],
)
def test_what_reaches_for_what_both_share_needs_the_object(statement):
    assert needs_object(TESTS.format(statement))


@pytest.mark.parametrize(
    "source",
    [
        "open('a')",
        "import os",
        "import os.path as path",
        "from pathlib import Path",
        "import sqlite3",
        "import io\nio.open('a')",
        "import logging\nlogging.FileHandler('a')",
        "import xml.etree.ElementTree as tree",
    ],
)
def test_files_are_needed_where_tests_or_program_reach_for_them(source):
    assert needs_files(source)
    assert needs_files("x = 1", source)


@pytest.mark.parametrize(
    "source", ["x = 'open'", "import math, json", "class (", "def f(path): return path.opens"]
)
def test_most_programs_need_no_files(source):
    assert not needs_files(source)


def test_what_is_no_python_needs_nothing():
    assert not needs_object("class (")
