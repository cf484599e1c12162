"""Which tests of a problem a look-up of the examples in its prompt passes.

Many problems show examples, and many of their tests ask for the same. A program that only looks up
the shown answers passes these tests without solving anything. docs/rewards.md has the figures.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from codejudge.suite import Suite

_PASSED = "candidate"
"""What the tests of HumanEval call the function."""


def unseen(suite: Suite, examples: Sequence[str], entry_point: str) -> tuple[int, ...]:
    """Return the tests that ask for something else than the examples, as indices of `suite.cases`.

    A test is shown if it calls the function, and each of its calls is that of an example. If all
    tests are shown, all are returned: a problem without tests could not be graded.
    """
    known = {call for text in examples for call in _calls(text, {entry_point})}
    found = []
    for index, case in enumerate(suite.cases):
        calls = list(_calls(case.text, {entry_point, _PASSED}))
        if not calls or not known.issuperset(calls):
            found.append(index)
    return tuple(found) or tuple(range(len(suite.cases)))


def look_up(examples: Sequence[str], entry_point: str) -> str:
    """Return a program that only looks up the answers of the examples.

    For any other input, it returns the most frequent of these answers.
    """
    lines = [f"def {entry_point}(*args, **named):"]
    answers: Counter[str] = Counter()
    for text in examples:
        for node in ast.walk(_tree(text)):
            if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Call):
                continue
            call = node.left
            if isinstance(call.func, ast.Name) and call.func.id == entry_point:
                asked = "".join(f"{ast.unparse(one)}, " for one in call.args)
                answer = ast.unparse(node.comparators[0])
                lines.append(f"    if args == ({asked}): return {answer}")
                answers[answer] += 1
    other = answers.most_common(1)[0][0] if answers else "None"
    return "\n".join([*lines, f"    return {other}", ""])


def _calls(text: str, names: set[str]) -> Iterator[str]:
    """Yield the arguments of every call of these functions, in one spelling."""
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            given = [_spelled(one) for one in node.args]
            named = [f"{one.arg}={_spelled(one.value)}" for one in node.keywords]
            yield ", ".join([*given, *sorted(named)])


def _spelled(node: ast.expr) -> str:
    try:
        return repr(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)


def _tree(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])
