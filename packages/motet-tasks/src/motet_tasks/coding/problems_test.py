import json
from pathlib import Path

import pytest

from motet.errors import ConfigError
from motet_tasks.coding.bugs import asked_bug
from motet_tasks.coding.problems import CodingProblem, problem_in, read_problem
from tests.fixtures.messages import facts, says

DATA = Path(__file__).parents[6] / "shared" / "data"

HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": "\nimport math\n\n\ndef half(x: int) -> float:\n    return x / 2\n\n\n"
    "def total(xs: list, *, by: int = 1) -> int:\n"
    '    """Sum of xs, by times.\n    >>> total([1, 2])\n    3\n    """\n',
    "entry_point": "total",
    "canonical_solution": "    return sum(xs) * by\n",
    "test": "\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate([]) == 0\n"
    "    assert candidate([1], by=2) == 2\n",
}
MBPP = {
    "task_id": 901,
    "text": "Write a function to find the longest of the given pairs.",
    "code": "import math\r\nclass Pair(object): \r\n\tdef __init__(self, a, b): \r\n"
    "\t\tself.a = a\r\n\t\tself.b = b\r\n"
    "def longest(arr, n):\r\n\treturn max(abs(p.a - p.b) for p in arr[:n])",
    "test_list": [
        "assert longest([Pair(5, 24)], 1) == 19",
        "assert longest([Pair(1, 2)], 1) == math.floor(1.5)",
    ],
    "test_setup_code": "",
    "challenge_test_list": [],
}
SANITIZED = {
    "task_id": 902,
    "prompt": 'Write a function that says "hi" to \\n.',
    "code": "def hi(name):\n    return 'hi ' + name",
    "test_imports": ["import math"],
    "test_list": ["assert hi('a') == 'hi a'", "assert len(hi('b')) == math.floor(4.2)"],
}


def rows(*names):
    for name in names:
        path = DATA / name
        if not path.is_file():
            pytest.skip(f"{path} is not there: benchmark data is not part of the project")
        yield from map(json.loads, path.read_text().splitlines())


def test_a_row_of_humaneval():
    problem = read_problem(HUMANEVAL)
    assert problem == CodingProblem(
        id="HumanEval/900",
        text=HUMANEVAL["prompt"].strip("\n"),
        entry_point="total",
        signature="def total(xs: list, *, by: int=1) -> int:",
        prelude="import math\n\n\ndef half(x: int) -> float:\n    return x / 2",
        kind="check",
        test="import math\n\n\ndef half(x: int) -> float:\n    return x / 2\n\n\n"
        f"{HUMANEVAL['test']}",
        statements=(),
        examples=("assert total([1, 2]) == 3",),
        solution=HUMANEVAL["prompt"].split("\n\n\n")[-1] + "    return sum(xs) * by",
    )
    assert (problem.parameters, problem.arguments) == ("xs: list, *, by: int=1", "xs, by=by")
    assert [case.text for case in problem.suite.cases] == [
        "assert candidate([]) == 0",
        "assert candidate([1], by=2) == 2",
    ]


def test_a_solution_may_be_the_whole_function():
    row = {**HUMANEVAL, "canonical_solution": "def total(xs, *, by=1):\n    return by * sum(xs)\n"}
    assert read_problem(row).solution == "def total(xs, *, by=1):\n    return by * sum(xs)"


def test_a_row_of_coophumaneval_has_no_solution():
    row = {key: value for key, value in HUMANEVAL.items() if key != "canonical_solution"}
    assert read_problem(row).solution is None
    assert read_problem({**row, "canonical_solution": None}).solution is None


def test_a_row_of_mbpp_is_a_stub_without_tests_and_gives_what_the_tests_need():
    problem = read_problem(MBPP)
    given = (
        "class Pair(object):\n\n    def __init__(self, a, b):\n"
        "        self.a = a\n        self.b = b"
    )
    stub = (
        'def longest(arr, n):\n    """Write a function to find the longest of the given pairs."""'
    )
    assert problem.text == f"{given}\n\n\n{stub}"
    assert (problem.id, problem.prelude, problem.test) == ("MBPP/901", given, "import math")
    assert problem.statements == tuple(MBPP["test_list"])
    assert problem.solution is not None
    assert problem.solution.startswith("import math")
    assert "class Pair" not in problem.solution
    assert not any(test in problem.text for test in MBPP["test_list"])


def test_a_row_of_sanitized_mbpp():
    problem = read_problem(SANITIZED)
    assert problem.text == 'def hi(name):\n    """Write a function that says "hi" to \\\\n."""'
    assert (problem.test, len(problem.suite.cases)) == ("import math", 2)


def test_of_several_functions_the_one_that_all_tests_call_is_asked_for():
    code = "def first(x):\n    return second(x)\n\ndef second(x):\n    return x"
    row = {
        **SANITIZED,
        "code": code,
        "test_list": ["assert first(1) == 1", "assert first(second(1)) == 1"],
    }
    assert read_problem(row).entry_point == "first"
    assert "def second" in read_problem(row).prelude


def test_a_problem_is_read_back_from_the_plain_values_of_its_task():
    for row in (HUMANEVAL, MBPP, SANITIZED):
        problem = read_problem(row)
        assert CodingProblem.load(json.loads(json.dumps(problem.fields))) == problem


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"question": "?", "answer": 1},
            "fields question, answer … expected … fields … prompt, entry_point",
        ),
        ({}, "fields none … expected … problem … prompt, entry_point"),
        (
            {**HUMANEVAL, "entry_point": "totl"},
            "HumanEval/900 … prompt … 'totl'",
        ),
        ({**MBPP, "test_list": "['assert f()']"}, "MBPP/901 … test_list … list … assert"),
        (
            {**HUMANEVAL, "prompt": "Sum it."},
            "HumanEval/900 … prompt … 'total'",
        ),
        (
            {**HUMANEVAL, "canonical_solution": "return ("},
            "HumanEval/900 … canonical_solution … does not define … 'total'",
        ),
        (
            {**HUMANEVAL, "test": "def tset(): pass"},
            "HumanEval/900 … kind check … without a function check",
        ),
        ({**MBPP, "code": "def f(:"}, "MBPP/901 … code … not valid Python"),
        ({**MBPP, "test_setup_code": "x = ("}, "MBPP/901 … test_setup_code … not valid Python"),
        (
            {**MBPP, "test_list": 7, "task_id": None},
            "7 … test_list … '7' … list … assert",
        ),
        (
            {**MBPP, "test_list": ["assert other(1)"]},
            "MBPP/901 … no function … code … all … tests",
        ),
        ({**MBPP, "test_list": []}, "MBPP/901 … no function … code"),
        ({**MBPP, "test_list": ["assert longest("]}, "MBPP/901 … test … not valid Python"),
    ],
)
def test_a_row_that_is_none_says_what_is_wrong(row, message):
    with pytest.raises(ConfigError) as refused:
        read_problem(row)
    assert says(refused.value, message)


def test_every_row_of_the_benchmarks_is_a_problem():
    found = [read_problem(row) for row in rows("humaneval/test.jsonl", "coophumaneval/test.jsonl")]
    assert len(found) == 180
    assert all(problem.text.count(f"def {problem.entry_point}(") == 1 for problem in found)
    assert sum(bool(problem.examples) for problem in found) > 150
    made = [read_problem(row) for row in rows("mbpp/train.jsonl", "mbpp/validation.jsonl")]
    assert len({problem.id for problem in made}) == 464
    assert not [
        problem.id for problem in made if any(test in problem.text for test in problem.statements)
    ]


def test_helper_functions_of_a_prompt_are_given():
    given = {
        problem.id: problem.prelude for problem in map(read_problem, rows("humaneval/test.jsonl"))
    }
    assert "def poly(" in given["HumanEval/32"]
    assert "def encode_cyclic(" in given["HumanEval/38"]
    assert "def is_palindrome(" in given["HumanEval/10"]
    assert "FIX" in given["HumanEval/64"]


def test_a_persons_function_with_a_number_that_cannot_be_written_is_refused():
    with pytest.raises(ConfigError, match=facts("Python function … docstring")):
        problem_in(f'def f(x=0x{"f" * 6_000}):\n    """Return x."""\n')


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_a_separator_that_ends_no_line_of_python_does_not_shift_the_cut(separator):
    plain = read_problem(HUMANEVAL)
    odd = f"# halves{separator}of numbers\ndef half"
    problem = read_problem({**HUMANEVAL, "prompt": HUMANEVAL["prompt"].replace("def half", odd)})
    assert problem.prelude == plain.prelude.replace("def half", odd)
    assert problem.solution == plain.solution


def test_the_bug_of_a_person_is_cut_at_pythons_lines():
    text = "A = 'x\u2028y'\r\ndef double(x):\r\n    'Twice x.'\r\n    return x\r\n"
    assert asked_bug(text).program == "def double(x):\n    return x"
