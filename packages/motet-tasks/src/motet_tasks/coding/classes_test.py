import json

import pytest

from motet.errors import ConfigError
from motet_tasks.coding.classes import ClassProblem, read_class
from motet_tasks.coding.completion_test import ROW, SOLUTION, row_without
from tests.fixtures.messages import facts


def load(row):
    return ClassProblem.load(read_class(row))


def test_the_fields_of_a_task_are_plain_json_and_make_the_problem_again():
    fields = read_class(ROW)
    assert json.loads(json.dumps(fields)) == fields
    assert ClassProblem.load(fields) == ClassProblem.load(json.loads(json.dumps(fields)))


def test_a_row_without_what_can_be_done_without():
    problem = load(row_without("task_id", "methods_info", "solution_code"))
    assert (problem.id, problem.skeleton.keys, problem.solution) == (
        "Circle",
        ("area", "unit", "wider"),
        None,
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (row_without("skeleton", skelton=""), "no field 'skeleton' … skelton"),
        (row_without("class_name"), "no field 'class_name'"),
        (row_without("test"), "no field 'test'"),
        (row_without(test=3), "3 … 'test' … a string … not empty"),
        (row_without(solution_code=" "), "' ' … 'solution_code'"),
        (
            row_without(skeleton="class Circle(:"),
            "class t/1, field 'skeleton' … not valid Python",
        ),
        (
            row_without(class_name="Disc"),
            "class t/1, field 'skeleton' … expected one class Disc … got Circle",
        ),
        (row_without(test="class ("), "class t/1, field 'test'"),
        (row_without(test="x = 1"), "class t/1, field 'test'"),
        (row_without(methods_info=["area"]), "class t/1, field 'methods_info' … 'area'"),
        (row_without(methods_info="area"), "class t/1, field 'methods_info' … 'area'"),
        (
            row_without(methods_info=[{"method_name": "volume"}]),
            "Circle … no method volume",
        ),
        (
            row_without(methods_info=[{"method_name": "volume", "method_description": 7}]),
            "class t/1, method volume … method_description 7 … string",
        ),
    ],
)
def test_a_wrong_row_is_an_error_that_names_the_field(row, message):
    with pytest.raises(ConfigError, match=facts(message)):
        read_class(row)


def test_the_tests_that_grade_are_one_per_method():
    names = [case.name for case in load(ROW).suite.cases]
    assert names == [
        "AreaTest.test_area", "AreaTest.test_area_of_a_wider_one",
        "UnitTest.test_unit", "UnitTest.test_wider",
    ]  # fmt: skip


def test_examples_are_one_test_per_method_and_compare_plain_values_only():
    row = row_without(
        skeleton='class Circle:\n    def area(self):\n        """\n        >>> c = Circle(1)\n'
        "        >>> c.area()\n"
        "        3.14\n        >>> print(c)\n        a circle\n        >>> [c\n        ... ]\n"
        "        [1]\n"
        '        """\n    def wider(self):\n        """\n        >>> Circle(1)\n'
        '        a circle\n        """\n'
        '    def broken(self):\n        """\n        >>> Circle(\n        1\n        """\n',
        methods_info=[],
    )
    examples = load(row).examples
    assert examples is not None
    (case,) = examples.cases
    assert case.text.splitlines() == [
        "def test_area(self):",
        "    c = Circle(1)",
        "    self.assertEqual(c.area(), 3.14)",
        "    print(c)",
        "    self.assertEqual([c], [1])",
    ]


def test_without_examples_there_is_no_suite_of_them():
    row = row_without(skeleton="class Circle:\n    def area(self): ...", methods_info=[])
    assert load(row).examples is None


def test_a_part_of_the_solution_has_its_methods_and_what_the_skeleton_lacks():
    problem = load(row_without(solution_code=SOLUTION + "\n    # end"))
    part = problem.solution_of(("area",))
    assert "def area" in part
    assert "def square" in part
    assert "def unit" not in part
    assert "__init__" not in part


def test_a_solution_that_is_no_python_is_handed_on_as_it_is():
    assert load(row_without(solution_code="class (")).solution_of(("area",)) == "class ("
