"""The tool python runs code in the sandbox only, and says what went wrong."""

import asyncio

import pytest

from codejudge import Limits, Sandbox
from motet.core.tools import ToolCall, wrong_tool
from motet.environments.python_tool import PythonTool
from motet.settings import ToolUse
from motet.user_code.tool_runs import ToolError, run_tool


@pytest.fixture(scope="module")
def python():
    with Sandbox(1, limits=Limits(wall_seconds=3.0, cpu_seconds=1, memory_mb=256)) as sandbox:
        yield PythonTool(sandbox)


def run(python, code):
    return asyncio.run(python(code))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("2 + 3", "5\n"),
        ("x = 4\nprint('x is', x)\nx * 2", "x is 4\n8\n"),
        ("import math\nmath.gcd(12, 18)", "6\n"),
        (
            "if True:\n    from collections import Counter\nCounter('aab')",
            "Counter({'a': 2, 'b': 1})\n",
        ),
        ("def f(n):\n    return n and n + f(n - 1)\nf(4)", "10\n"),
        ("x = 1", "(it printed nothing)"),
        ("'ü'", "'ü'\n"),
    ],
)
def test_what_a_program_prints_and_its_last_value_are_the_result(python, code, said):
    assert run(python, code) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (line 1)"),
        ("print('so far')\n\nraise ValueError('no')", "ValueError: no (line 3)\nso far\n"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import os\nos.listdir('/')", "Error"),
        ("open('/etc/passwd').read()", "Error"),
        ("while True: pass", "timeout"),
        ("'a' * 10**7", "Oversize"),
        ("[0] * 10**9", "MemoryError"),
        ("import os\nos._exit(0)", ""),
        ("raise SystemExit(3)", "SystemExit: 3 (line 1)"),
        ("\0", "Error"),
    ],
)
def test_a_program_that_fails_tells_the_model(python, code, said):
    with pytest.raises(ToolError) as caught:
        run(python, code)
    assert said in str(caught.value)
    assert run(python, "1 + 1") == "2\n", "the next program runs"


def test_it_is_a_tool_whose_call_is_checked(python):
    assert wrong_tool(python) == ""
    tools, limits = {"python": python}, ToolUse()
    bad = asyncio.run(run_tool(ToolCall("python", {"code": 3}), tools, limits))
    assert bad.text == "Error: argument 'code' must be of type string, got 3"
    good = asyncio.run(run_tool(ToolCall("python", {"code": "3 * 3"}), tools, limits))
    assert (good.text, good.failed) == ("9\n", False)
