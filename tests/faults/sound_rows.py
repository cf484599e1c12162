"""One or two valid rows of every kind of data that environments read.

The names are those that configs and environments use.
"""

from collections.abc import Mapping
from typing import Any

from motet_tasks.calls.game_test import ROW as CALLS
from motet_tasks.travel.game_test import ROW as TRIP

HUMANEVAL: dict[str, Any] = {
    "task_id": "HumanEval/900",
    "prompt": (
        'from math import isqrt\n\ndef total(xs):\n    """Sum of squares.\n    >>> '
        'total([3])\n    9\n    """\n'
    ),
    "entry_point": "total",
    "canonical_solution": (
        "    squares = [x * x for x in xs]\n    whole = sum(squares)\n    return abs(whole)\n"
    ),
    "test": (
        "def check(candidate):\n    assert candidate([3]) == 9\n    assert candidate([1, 2]) == 5\n"
    ),
}
MBPP: dict[str, Any] = {
    "task_id": 900,
    "text": "Write a function to sum squares.",
    "code": "import re\r\ndef total(xs):\r\n    return sum(x * x for x in xs)",
    "test_list": ["assert total([3]) == 9", "assert total([1, 2]) == 5"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
FIX: dict[str, Any] = {
    **HUMANEVAL,
    "task_id": "Python/900",
    "buggy_solution": (
        "    squares = [x + x for x in xs]\n    whole = sum(squares)\n    return abs(whole)\n"
    ),
    "bug_type": "operator misuse",
}
CLASS: dict[str, Any] = {
    "task_id": "ClassEval_900",
    "class_name": "Shelf",
    "skeleton": '''import math

class Shelf:
    """A shelf of books."""

    def __init__(self, room):
        """
        :param room: int
        """
        self.room, self.books = room, []

    def put(self, book):
        """
        Puts a book on the shelf.
        :return: bool, whether there was room
        >>> shelf = Shelf(1)
        >>> shelf.put("a")
        True
        """

    def count(self):
        """How many books there are."""
''',
    "solution_code": """class Shelf:
    def __init__(self, room):
        self.room, self.books = room, []

    def put(self, book):
        if self.count() >= self.room:
            return False
        self.books.append(book)
        return True

    def count(self):
        return len(self.books)
""",
    "test": """import unittest

class ShelfTest(unittest.TestCase):
    def test_put(self):
        shelf = Shelf(1)
        self.assertTrue(shelf.put("a"))
        self.assertFalse(shelf.put("b"))
        self.assertEqual(shelf.count(), 1)
""",
    "methods_info": [
        {
            "method_name": "put",
            "method_description": "def put(self, book):",
            "dependencies": {
                "Standalone": False,
                "lib_dependencies": [],
                "method_dependencies": ["count"],
            },
        },
        {"method_name": "count", "method_description": "def count(self):"},
    ],
}
GSM8K: dict[str, Any] = {
    "question": "Ann has 6 eggs and buys 12 more. How many has she?",
    "answer": "She has 6+12=<<6+12=18>>18 eggs.\n#### 18",
}
TINYGSM: dict[str, Any] = {
    "question": "Ann has 6 eggs and buys 12 more. How many has she?",
    "code": "def simple_math_problem() -> int:\n    eggs = 6\n    return eggs + 12\n",
}
ANLI: dict[str, Any] = {
    "uid": "900",
    "premise": "The cat sat on the mat all day.",
    "hypothesis": "The cat was on the mat.",
    "label": 0,
    "reason": "Sitting on it is being on it.",
}
MATHS: dict[str, Any] = {
    "problem": r"What is $\frac{1}{2} + \frac{1}{3}$?",
    "answer": r"\frac{5}{6}",
    "solution": r"$\frac{3}{6} + \frac{2}{6} = \boxed{\frac{5}{6}}$",
}
POST: dict[str, Any] = {
    "prompt": "SUBREDDIT: r/pets\nTITLE: My cat\nPOST: My cat sat on the mat all day.\nTL;DR:"
}
ABSTRACT: dict[str, Any] = {
    "abstract_text": "We study how several models write together, and find that they can."
}

ROWS: Mapping[str, list[dict[str, Any]]] = {
    "code_generation": [HUMANEVAL, MBPP],
    "code_completion": [CLASS],
    "bug_fix": [FIX, MBPP],
    "gsm8k": [GSM8K],
    "tinygsm": [TINYGSM],
    "anli": [ANLI],
    "maths": [MATHS],
    "tldr": [POST],
    "arxiv": [ABSTRACT],
    "function_calling": [CALLS],
    "travel_plan": [TRIP],
}
"""Name of an environment, or of its dataset or kind -> rows."""
