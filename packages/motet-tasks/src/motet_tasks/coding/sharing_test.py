import ast
import json
from pathlib import Path

import pytest

from motet_tasks.coding.problems import read_problem
from motet_tasks.coding.sharing import NoSolution, share_out
from motet_tasks.rewards.cooperation import cooperation
from tests.fixtures.messages import facts

DATA = Path(__file__).parents[6] / "shared" / "data"


def problem_with(solution, prelude=""):
    return read_problem(
        {
            "task_id": "t",
            "prompt": f'{prelude}\ndef f(x, y=0):\n    """Doc."""\n',
            "entry_point": "f",
            "canonical_solution": solution,
            "test": "def check(candidate):\n    assert candidate(3) == 0",
        }
    )


def run(parts, *arguments):
    names = {}
    for part in parts.values():
        exec(part, names)  # noqa: S102 - written by this test
    return names["f"](*arguments)


def test_a_body_is_cut_where_the_halves_are_most_alike():
    problem = problem_with(
        "    a = x + 1\n    b = a * 2\n    for i in range(3):\n        b += i\n    return a + b\n"
    )
    parts = share_out(problem, ["aux"])
    assert parts == {
        "aux": "def aux(x, y=0):\n    a = x + 1\n    b = a * 2\n    return (a, b)",
        "f": (
            "def f(x, y=0):\n    a, b = aux(x, y)\n    for i in range(3):\n        b += i\n"
            "    return a + b"
        ),
    }
    assert run(parts, 3) == 4 + 8 + 3


@pytest.mark.parametrize(
    "body",
    [
        "    return x + y\n",
        "    if x:\n        return 1\n    a = x\n    return a\n",
        "    for a in [x]:\n        pass\n    return a\n",
        "    a = lambda: b\n    b = x\n    return a()\n",
        "    a = x + y\n    return a\n",
        "    yield x\n    a = 1\n    yield a\n",
    ],
)
def test_a_body_that_cannot_be_cut_is_the_helpers(body):
    parts = share_out(problem_with(body), ["aux"])
    assert parts["f"] == "def f(x, y=0):\n    return aux(x, y)"
    assert body.strip().splitlines()[0].strip() in parts["aux"]


def test_the_variable_of_a_comprehension_is_not_handed_over():
    parts = share_out(
        problem_with(
            "    a = [i for i in range(x)]\n    b = [i * 2 for i in a]\n    return b + a\n"
        ),
        ["aux"],
    )
    assert "return (a, b)" in parts["aux"] or "return a" in parts["aux"]
    assert run(parts, 2) == [0, 2, 0, 1]


def test_each_part_brings_what_it_needs_of_the_solution():
    solution = "import math\nimport re\n\ndef g(x):\n    return math.floor(x)\n\n" + (
        "def f(x, y=0):\n    a = g(x)\n    b = a + 1\n    c = re.sub('a', 'b', str(a))\n"
        "    return c + str(b)\n"
    )
    parts = share_out(problem_with(solution), ["aux"])
    assert [line for line in parts["aux"].splitlines() if line.startswith(("import", "def"))] == [
        "import math",
        "def g(x):",
        "def aux(x, y=0):",
    ]
    assert parts["f"].startswith("import re")
    assert run(parts, 3.5) == "34"


def test_further_helpers_hand_back_what_they_are_given():
    parts = share_out(
        problem_with("    a = x + 1\n    b = a * a\n    return a - b\n"), ["aux1", "aux2"]
    )
    assert list(parts) == ["aux1", "aux2", "f"]
    assert parts["aux2"] == "def aux2(x, y=0):\n    return locals()"
    assert run(parts, 3) == 4 - 16


def test_an_agent_alone_has_all_of_it():
    assert list(share_out(problem_with("    return x\n"), [])) == ["f"]


def test_where_there_is_no_solution_there_is_nothing_to_share():
    with pytest.raises(NoSolution, match=facts("t has no solution")):
        share_out(problem_with(None), ["aux"])


def test_a_cut_never_leaves_main_a_thin_wrapper():
    parts = share_out(problem_with("    a = x\n    b = a + y\n    return b\n"), ["aux"])
    assert not cooperation(ast.parse(parts["f"]), "f", ["aux"]).wrapper


def test_a_value_that_is_overwritten_unread_is_not_handed_over():
    assert share_out(problem_with("    a = 0\n    a = x * 2 + y\n    return a\n"), ["aux"])[
        "f"
    ].endswith("return aux(x, y)")
    later = share_out(
        problem_with("    a = 0\n    a = x * 2\n    a = a + y\n    return a\n"), ["aux"]
    )
    assert later["f"] == "def f(x, y=0):\n    a = aux(x, y)\n    a = a + y\n    return a"


@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark data is not here")
@pytest.mark.parametrize(
    "file", ["humaneval/test.jsonl", "mbpp/train.jsonl", "mbpp/validation.jsonl"]
)
def test_no_benchmark_solution_is_cut_where_its_value_comes_to_nothing(file):
    for row in map(json.loads, (DATA / file).read_text().splitlines()):
        problem = read_problem(row)
        main = share_out(problem, ["aux"])[problem.entry_point]
        found = cooperation(ast.parse(main), problem.entry_point, ["aux"])
        assert (found.called, found.ignored) == (["aux"], []), problem.id
