import ast
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codejudge.source import Source, definition
from motet_tasks.rewards.extract import extract, without

AUX = "def aux(x):\n    return x"

TABLE = {
    "bare code": (AUX, AUX),
    "a fence": (f"```python\n{AUX}\n```", AUX),
    "a fence called py": (f"```py\n{AUX}\n```", AUX),
    "a fence without a language": (f"```\n{AUX}\n```", AUX),
    "a fence of tildes": (f"~~~python\n{AUX}\n~~~", AUX),
    "a fence of four": (f"````python\n{AUX}\n````", AUX),
    "a fence that nothing closes": (f"Here you go:\n```python\n{AUX}", AUX),
    "a fence that the prompt opened": (f"{AUX}\n```\nThis works because x is x.", AUX),
    "a fence in a list": (
        f"1. First:\n   ```python\n   {AUX.replace(chr(10), chr(10) + '   ')}\n   ```",
        AUX,
    ),
    "prose before, between and after": (
        f"Sure! Here's the helper:\n\n{AUX}\n\nIt isn't long. And the import of it:\n\n"
        "import math\n\nThat's all (I think).",
        f"{AUX}\n\nimport math",
    ),
    "a block per function": (
        f"```python\n{AUX}\n```\nand\n```python\ndef g():\n    return 1\n```",
        f"{AUX}\n\ndef g():\n    return 1",
    ),
    "a block that is no Python": (f"```bash\npip install aux\n```\n```python\n{AUX}\n```", AUX),
    "a second fence where the first is still open": (
        f"```\nsome words\n```python\n{AUX}\n```",
        AUX,
    ),
    "tests and prints after it": (
        f"{AUX}\n\nprint(aux(3))\nassert aux(1) == 1\naux(2)\n"
        "for i in range(3):\n    print(aux(i))",
        AUX,
    ),
    "a main block": (
        f"{AUX}\n\nif __name__ == '__main__':\n    import sys\n    print(aux(3))",
        AUX,
    ),
    "a value that is only tried": (f"{AUX}\n\nresult = aux(input())\nprint(result)", AUX),
    "a value that is read": (
        "import re\n\nWORD = re.compile('x')\n\ndef aux(x):\n    return WORD.match(x)\n\n"
        "found = aux('x')",
        "import re\n\nWORD = re.compile('x')\n\ndef aux(x):\n    return WORD.match(x)",
    ),
    "imports that may fail": (
        f"try:\n    import numpy as np\nexcept ImportError:\n    np = None\n{AUX}",
        f"try:\n    import numpy as np\nexcept ImportError:\n    np = None\n\n{AUX}",
    ),
    "decorators, classes and async": (
        "@cache\n@other(1)\ndef aux(x):\n    return x\n\nclass A(B):\n    x = 1\n\n"
        "async def f():\n    pass\nprint(1)",
        "@cache\n@other(1)\ndef aux(x):\n    return x\n\nclass A(B):\n    x = 1\n\n"
        "async def f():\n    pass",
    ),
    "decorators amid prose": (
        "So:\n@cache\ndef aux(x):\n    return x\nIs that it?",
        "@cache\ndef aux(x):\n    return x",
    ),
    "all of it indented": (f"    {AUX.replace(chr(10), chr(10) + '    ')}", AUX),
    "indented under prose": (
        f"The code:\n\n    {AUX.replace(chr(10), chr(10) + '    ')}\n\nGood luck!",
        AUX,
    ),
    "tabs": (
        "def aux(x):\n\tif x:\n\t\treturn x\n\treturn 0",
        "def aux(x):\n\tif x:\n\t\treturn x\n\treturn 0",
    ),
    "tabs among spaces": (
        "def aux(x):\n\tif x:\n        return x\n\treturn 0",
        "def aux(x):\n    if x:\n        return x\n    return 0",
    ),
    "lines that end as on Windows": (AUX.replace("\n", "\r\n"), AUX),
    "a docstring at the margin, amid prose": (
        'Look:\ndef aux(x):\n    """What\nit does.\n"""\n    return x\nDone.',
        'def aux(x):\n    """What\nit does.\n"""\n    return x',
    ),
    "comments at the margin, amid prose": (
        "Look:\ndef aux(x):\n    y = x\n# then\n    return y\nDone.",
        "def aux(x):\n    y = x\n# then\n    return y",
    ),
    "comments inside": (
        "def aux(x):\n    # why\n    return x  # what",
        "def aux(x):\n    # why\n    return x",
    ),
    "chat markers": (f"<|im_start|>assistant\n{AUX}<|im_end|>\n<|im_start|>user\nThanks", AUX),
    "an end marker": (f"{AUX}</s>", AUX),
    "thoughts": (f"<think>\ndef aux(x):\n    return 0\n</think>\n{AUX}", AUX),
    "thoughts that do not end": (f"<think>\n{AUX}", ""),
    "thoughts that the prompt began": (f"def aux(x):\n    return 0\n</think>\n{AUX}", AUX),
    "spaces of a web page": (AUX.replace("    ", "\u00a0\u00a0 \u00a0"), AUX),
    "a class for a function": (
        "class Solution:\n    def aux(self, x):\n        return x",
        "class Solution:\n    def aux(self, x):\n        return x\n\n"
        "def aux(*given, **named):\n    return Solution().aux(*given, **named)",
    ),
    "a table that is filled": (
        f"T = []\nfor i in range(3):\n    T.append(i)\nT.append(9)\n{AUX} + T[0]\n"
        "T.sort(key=print)\nfor t in T:\n    assert t",
        f"T = []\n\nfor i in range(3):\n    T.append(i)\n\nT.append(9)\n\n{AUX} + T[0]",
    ),
    "a list that is only tried": (
        f"{AUX}\nx = [aux(3)]\nx.append(aux(4))\nfor i in x:\n    x[i] = aux(i)",
        AUX,
    ),
    "room for recursion": (
        f"import sys\nsys.setrecursionlimit(10**6)\nsys.exit(0)\n{AUX}",
        f"import sys\n\nsys.setrecursionlimit(10**6)\n\n{AUX}",
    ),
    "REPL prompts": (">>> def aux(x):\n...     return x\n...\n>>> aux(3)\n3", AUX),
    "a rest that was cut off": (f"{AUX}\n\ndef another(n):\n    if n > ", AUX),
    "said twice, the second cut off": (f"{AUX}\n\n{AUX[:-6]}", AUX),
    "statements on one line": (f"import os; print(os)\n{AUX}", f"import os\n\n{AUX}"),
    "cut off itself": (
        "Here:\ndef aux(x):\n    for y in x:\n        if y",
        "def aux(x):\n    for y in x:\n        if y",
    ),
    "prose alone": ("I would import the module from there; class dismissed = done.", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "code"), TABLE.values(), ids=TABLE.keys())
def test_the_code_is_found_and_nothing_else(text, code):
    assert extract(text, "aux").text == code


BODY = "    for y in x:\n        return y\n    return 0"
HEAD = "def aux(x: list):"


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        f"\n{BODY}\n\n\ndef other():\n    return 1\n\nprint(aux(1))",
        BODY.lstrip(),
        "\n".join(line[4:] for line in BODY.splitlines()),
        f"```python\n{BODY}\n```",
        f"{BODY}\n\n# and now the tests\nassert aux([",
    ],
)
def test_a_bare_body_goes_on_from_its_head(text):
    assert extract(text, "aux", HEAD).text.startswith(f"{HEAD}\n{BODY}")


@pytest.mark.parametrize(
    "text", ["I return the result.", "    pass", "def other(x):\n    return x", "return", ""]
)
def test_what_returns_nothing_is_no_body(text):
    assert "aux" not in extract(text, "aux", HEAD).text


def test_a_head_is_not_needed_where_the_function_stands():
    assert extract(f"{HEAD}\n{BODY}", "aux", "def aux(y):").text == f"{HEAD}\n{BODY}"


def test_a_prompt_that_is_repeated_comes_with_its_body():
    text = (
        f'from typing import List\n\n{HEAD}\n    """Doc.\n    >>> aux([])\n    0\n    """\n{BODY}\n'
    )
    tree = extract(text, "aux", HEAD).tree
    assert [type(node) for node in tree.body] == [ast.ImportFrom, ast.FunctionDef]
    assert len(definition(tree, "aux").body) == 3


def test_a_function_is_found_behind_much_that_is_none():
    imports = "\n".join(f"import m{number}" for number in range(60))
    prose = "\n".join(f"import the module {number} from there = it is easy" for number in range(60))
    assert (
        extract(f"{prose}\n{imports}\n{AUX}\nDone.", "aux").text
        == imports.replace("\n", "\n\n") + f"\n\n{AUX}"
    )


def test_without_a_name_all_code_is_kept_but_broken_parts():
    assert (
        extract(f"{AUX}\n\ndef g(:\n    pass\n\nclass A:\n    pass").text
        == f"{AUX}\n\nclass A:\n    pass"
    )


def test_names_are_taken_out_at_the_top_only():
    code = (
        "from m import aux\n\ndef aux(x):\n    return x\n\nif x:\n    aux = 1\n\ndef main(x):\n"
        "    aux = x\n    return aux"
    )
    assert without(Source(code), {"aux"}).text == "def main(x):\n    aux = x\n    return aux"
    assert without(Source("def aux(:"), {"aux"}).text == "def aux(:"


# --------------------------------------------------------------------------------------- totality

ODD = [
    "\r",
    "\x0c",
    "\u2028",
    "é",
    "\ud800",
    "\0",
    "\ufeff",
    *"`~@#\"'()[]{}:\\;,\t",
    '"""',
    "```",
    "```python",
    "</think>",
]
CODE = [
    "def aux(x):",
    "    return x",
    "class A:",
    "    ",
    ">>> ",
    "... ",
    "@cache",
    "import x",
    "x = (",
    "try:",
    "if x:",
    "x = 1; y",
]
LINES = st.sampled_from([*ODD, *CODE, "<|im_end|>"])


@given(
    st.lists(st.one_of(LINES, st.text(max_size=12)), max_size=30).map("\n".join),
    st.sampled_from(["", HEAD]),
)
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_a_string_comes_back_and_its_functions_parse(text, opening):
    code = extract(text, "aux", opening)
    assert isinstance(code.text, str)
    assert code.tree is not None or "def aux" in code.text


@given(st.lists(LINES, max_size=20).map("\n".join))
@settings(max_examples=150, deadline=None)
def test_extracting_twice_changes_nothing_where_the_code_parses(text):
    code = extract(text, "aux")
    if code.tree is not None:
        assert extract(code.text, "aux") == code


@pytest.mark.parametrize(
    "text",
    [
        "def aux(x):\n" * 20_000,
        "@a\n" * 40_000,
        "x = (\n" * 20_000,
        "```python\n" * 20_000,
        "(" * 100_000,
        '"""\n' * 20_000,
        "try:\n import x\n" * 8_000,
        "def aux(x):\n    return (\n" * 5_000,
        "<|a" * 40_000,
        "return\n```python\n" + "x = 1\n" * 50_000,
        "```python\n[INST]0\n" + "def aux(x):\n" * 20_000,
    ],
)
def test_a_hostile_text_takes_no_longer_than_a_moment(text):
    begun = time.process_time()
    assert isinstance(extract(text, "aux", HEAD).text, str)
    assert time.process_time() - begun < 1.5
