import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet_tasks.rewards.mutation_operators import OPERATORS
from motet_tasks.rewards.mutations import mutants
from tests.fixtures.messages import facts

PROGRAM = '''\
def largest(xs, least=0):  # the naïve way: "<" is é
    """The largest of xs above `least`, 0 if there is none."""
    best, seen = 0, []
    for i in range(len(xs)):
        if xs[i] > least and not (xs[i] in seen):
            best = max(best, xs[i])
            seen.append(xs[i])
        elif xs[i] == least:
            continue
    return best + 0 if seen else min(0, best - 1)
'''

BY_HAND = [
    ("operator", "a = b + c", "a = b - c"),
    ("operator", "a = b // c", "a = b % c"),
    ("operator", "a = b ** c", "a = b * c"),
    ("operator", "a += 1", "a -= 1"),
    ("operator", "a = (b) * (  # why\n (c))", "a = (b) + (  # why\n (c))"),
    ("operator", "a = b and c and d", "a = b and c or d"),
    ("operator", "a = b & c", "a = b | c"),
    ("comparison", "a = b < c", "a = b <= c"),
    ("comparison", "a = 0 < b <= c", "a = 0 < b >= c"),
    ("comparison", "a = (b)not  in(c)", "a = (b)in(c)"),
    ("comparison", "a = 'é' in b", "a = 'é' not in b"),
    ("comparison", "a = b is not None", "a = b is None"),
    ("constant", "a = 7", "a = 8"),
    ("constant", "a = 1", "a = 0"),
    ("constant", "a = True", "a = False"),
    ("constant", "a = r'é' 'x'", "a = r''"),
    ("constant", 'a = ""', 'a = " "'),
    ("off_by_one", "for i in range(n): pass", "for i in range(n - 1): pass"),
    ("off_by_one", "a = range(2, len(b) - 1)", "a = range(2, len(b))"),
    ("off_by_one", "a = b[c:d]", "a = b[c:d + 1]"),
    ("off_by_one", "a = b[-1]", "a = b[0]"),
    ("off_by_one", "a = b[c if d else e:]", "a = b[(c if d else e) + 1:]"),
    ("off_by_one", "for i, b in enumerate(c): d(c[i])", "for i, b in enumerate(c): d(c[i + 1])"),
    ("wrong_function", "a = min(b)", "a = max(b)"),
    ("wrong_function", "a.append(b)", "a.extend(b)"),
    ("wrong_variable", "def f(a, b):\n return a", "def f(a, b):\n return b"),
    (
        "wrong_variable",
        "def f(a):\n b = 1\n return [c for c in a]",
        "def f(a):\n b = 1\n return [b for c in a]",
    ),
    ("swapped_arguments", "a = f(b, (c), d=1)", "a = f(c, (b), d=1)"),
    ("negated_condition", "if a: pass", "if not a: pass"),
    ("negated_condition", "if not (a or b): pass", "if (a or b): pass"),
    ("negated_condition", "while a or b: pass", "while not (a or b): pass"),
    ("negated_condition", "a = [b for b in c if b > 1]", "a = [b for b in c if not b > 1]"),
    ("dropped_statement", "def f(a):\n a = 1\n return a", "def f(a):\n return a"),
    ("dropped_statement", "def f(a):\n return a, 1", "def f(a):\n return None"),
    ("dropped_statement", "for a in b:\n c(a)\n d(a)", "for a in b:\n pass"),
    ("dropped_statement", "if a:\n b()\nelif c:\n d()", "if a:\n b()\n"),
    ("dropped_statement", "if a:\n b()\nelif c:\n d()", "if a:\n pass\nelif c:\n d()"),
    ("dropped_statement", "while a:\n b()\n if a: break\n", "while a:\n b()\n"),
]


@pytest.mark.parametrize(("operator", "source", "expected"), BY_HAND)
def test_every_operator_makes_the_fault_that_a_person_would_expect(operator, source, expected):
    assert expected in {
        mutant.source for mutant in mutants(source, 0) if mutant.operator == operator
    }


def test_the_table_by_hand_misses_no_operator():
    assert {operator for operator, _, _ in BY_HAND} == set(OPERATORS)


@pytest.mark.parametrize(
    "source",
    [
        "def f(a):\n 'text'\n",  # a docstring
        "def f(a: 'T' = b) -> 3: ...",  # annotations
        "a = f'{b + 1}'",  # f-strings: positions in them are not exact everywhere
        "a = '%s' % b",
        "a = [xs for x in xs]",  # outside a function, it is unknown which names have a value
        "def f(a):\n b = a\n",  # `b` has no value yet, and there is no other name
    ],
)
def test_what_must_not_be_touched_is_not(source):
    left = [
        one.mutated
        for one in mutants(source, 0)
        if one.operator not in ("constant", "dropped_statement")
    ]
    assert left == []
    assert not [
        one for one in mutants(source, 0) if one.operator == "constant" and one.original != source
    ]


def test_a_variable_is_only_taken_for_one_that_has_a_value():
    source = "def f(a, b):\n c = a\n d = [e for e in c if e]\n return d\n"
    wrong = {one.mutated for one in mutants(source, 0) if one.operator == "wrong_variable"}
    assert wrong == {
        "c = b",
        *(f"d = [{name} for e in c if e]" for name in "abc"),
        *(f"d = [e for e in {name} if e]" for name in "ab"),
        *(f"d = [e for e in c if {name}]" for name in "abc"),
        *(f"return {name}" for name in "abc"),
    }


def test_a_mutant_says_where_and_what_was_changed():
    (mutant,) = [
        one
        for one in mutants(PROGRAM, 0)
        if one.mutated == "return best - 0 if seen else min(0, best - 1)"
    ]
    assert (mutant.operator, mutant.line) == ("operator", 10)
    assert mutant.original == "return best + 0 if seen else min(0, best - 1)"
    (gone,) = [
        one
        for one in mutants(PROGRAM, 0)
        if one.original == "seen.append(xs[i])" and one.mutated == ""
    ]
    assert (gone.operator, gone.line) == ("dropped_statement", 7)
    assert gone.source.splitlines()[6] == "        elif xs[i] == least:"


def test_windows_newlines_and_wide_characters_shift_nothing():
    source = "a = 'éé' + b\r\nc = 'é' < d  # ü\r\nif c:\r\n d = 1\r\n e = 2\r\n"
    changed = {one.source for one in mutants(source, 0)}
    assert source.replace("+", "-") in changed
    assert source.replace("<", ">") in changed
    assert source.replace(" e = 2\r\n", "") in changed


def test_only_the_asked_part_of_a_program_changes():
    head = PROGRAM.splitlines()[:5]
    found = mutants(PROGRAM, 0, first_line=6)
    assert {one.line for one in found} == {6, 7, 8, 9, 10}
    assert all(one.source.splitlines()[:5] == head for one in found)


def test_the_operators_take_turns():
    everything = mutants(PROGRAM, 3)
    there = {one.operator for one in everything}
    assert len(there) == 9
    assert {one.operator for one in mutants(PROGRAM, 3, 9)} == there


def test_a_seed_makes_the_same_mutants_and_another_seed_other_ones():
    assert mutants(PROGRAM, 1, 12) == mutants(PROGRAM, 1, 12)
    assert mutants(PROGRAM, 1, 12) != mutants(PROGRAM, 2, 12)
    assert mutants(PROGRAM, 1, 5) == mutants(PROGRAM, 1)[:5]


def test_what_is_no_python_is_refused():
    with pytest.raises(ValueError, match=facts("Python program … 'def f(:'")):
        mutants("def f(:", 0)


def test_a_program_with_nothing_to_change_has_no_mutants():
    assert mutants("", 0) == mutants("import os\n", 0) == []


SYMBOLS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "and",
    "or",
    "<",
    "<=",
    "==",
    "!=",
    "in",
    "is",
]
NAMES = st.sampled_from(["a", "b", "naïve", "xs"])
EXPRESSIONS = st.recursive(
    NAMES
    | st.integers(-3, 2**70).map(str)
    | st.sampled_from(["'é'", '""', "True", "None", "1.5", "f'{a}'", "b'x'"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(SYMBOLS), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        )
        | st.tuples(inner, inner).map(lambda pair: f"range({pair[0]}, {pair[1]})[{pair[0]}:]")
        | st.tuples(inner, inner).map(lambda pair: f"[{pair[0]} for a in xs if not ({pair[1]})]")
        | st.tuples(inner, inner).map(lambda pair: f"(lambda b: {pair[0]})({pair[1]}, *xs)")
    ),
    max_leaves=6,
)
STATEMENTS = st.one_of(
    EXPRESSIONS.map("a = {}  # é\n".format),
    EXPRESSIONS.map("b += {}\n".format),
    EXPRESSIONS.map("f({})\n".format),
    EXPRESSIONS.map("if {}: a = 1\n".format),
    EXPRESSIONS.map("if a:\n  b = 1\n elif {}:\n  pass\n".format),
    EXPRESSIONS.map("for a in {}:\n  b = a; xs = b\n".format),
    EXPRESSIONS.map("return {}\n".format),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(STATEMENTS, min_size=1, max_size=4), st.integers(0, 9), st.sampled_from(["\n", "\r\n"])
)
def test_every_mutant_is_another_program_changed_in_one_place(statements, seed, newline):
    source = ("def f(xs, a, b):\n " + " ".join(statements)).replace("\n", newline)
    lines = source.split("\n")
    trees = [ast.dump(ast.parse(source))]
    for mutant in mutants(source, seed, 40):
        trees.append(ast.dump(ast.parse(mutant.source)))
        changed = mutant.source.split("\n")
        before, behind = mutant.line - 1, len(lines) - mutant.line - mutant.original.count("\n")
        assert changed[:before] == lines[:before]
        assert changed[len(changed) - behind :] == lines[len(lines) - behind :]
        assert mutant.original in source
        assert mutant.mutated in mutant.source
    assert len(set(trees)) == len(trees)
