import ast

import pytest

from motet.rewards.simplified import simplified


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("return x\nprint(x)", "return x"),
        ("if True:\n    a = 1\nelse:\n    b = 1", "a = 1"),
        ("while 0:\n    a = 1", ""),
        ("while 1:\n    return x", "return x"),
        ("if x:\n    return 1\nelse:\n    return 2\nprint(x)", "if x:\n    return 1\nelse:\n    return 2"),
        ("while True:\n    if x:\n        break\nprint(x)", "while True:\n    if x:\n        break\nprint(x)"),
        ("if a:\n    return x\nif b:\n    return x\nreturn x", "a\nb\nreturn x"),
        ("a = x and 1 and y or 0 or z", "a = x and y or z"),
        ("a = x or x or 0", "a = x or 0"),
        ("a = [x, y][1] if not 0 else y", "a = y"),
        ("a = [*x, y][1]", "a = [*x, y][1]"),
        ("if 1 < 2 and 'a' != 1:\n    return 1\nreturn 2", "return 1"),
        ("if 1 < 'a':\n    return 1\nreturn 2", "if 1 < 'a':\n    return 1\nreturn 2"),
        ("def g():\n    return g()\nh = lambda: g()\nreturn x", "return x"),
        ("def g():\n    return 1\nreturn g()", "def g():\n    return 1\nreturn g()"),
        ("'Doc.'\nassert 1\nassert x", "assert x"),
    ],
)
def test_what_is_never_run_is_gone_and_the_rest_stays(text, simple):
    def inside(code):
        return ast.Module([ast.FunctionDef("f", NO_ARGUMENTS, ast.parse(code).body, [])], [])

    assert ast.dump(simplified(inside(text))) == ast.dump(inside(simple))


NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
