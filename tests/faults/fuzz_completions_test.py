"""Any completion, in every environment, leads to a reward or to a recorded fault.

It does so quickly, because a run waits for the slowest one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from codejudge import Limits, Sandbox
from motet.core import Task
from tests.faults.hostile import ODD_TEXTS, Endings, one_of, repeatable, texts, within
from tests.faults.sound_rows import ANLI, CLASS, FIX, HUMANEVAL, ROWS
from tests.faults.talking import environment_of, played
from tests.fixtures.attacks_on_judges import FORGING, LYING, TAMPERING

pytestmark = pytest.mark.slow

SECONDS = 5.0
"""Maximum CPU seconds for one text that all agents answer at every turn.

The text is read a dozen times and has up to megabytes. Nearly all texts take a hundredth of a
second. The time of programs is not counted.
"""
CASES: Mapping[str, int] = {
    "gsm8k": 800, "anli": 440, "tldr": 500, "arxiv": 300, "relay": 530, "debate_tiny": 600,
    "maths": 30, "code_generation": 600, "code_completion": 500, "bug_fix": 300, "quickstart": 250,
    "bug_fix_tiny": 150, "str_build": 300, "house_build": 300, "function_calling": 200,
    "travel_plan": 200,
}  # fmt: skip
"""6,000 cases in total."""
MOST = 1_000_000
"""Characters: more than any parser reads."""
SAID = (
    HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"], FIX["buggy_solution"],
    CLASS["solution_code"], ANLI["premise"],
    ("def aux(x):\n    return x * x\n\ndef total(xs):\n    return sum(map(aux, " "xs))\n"),
    "Line 2 is wrong: `x + x`", "The answer is \\boxed{18}.", "#### 18",
    "So the answer is: $1,218.50, not 7", "\\boxed{entailment}", "3/4 of 10^2 = 75", "1 2 3",
    "12+34=46", "x = 3", "<think>hm</think>", "However, in addition, first of all",
    "[PARAGRAPH_SPLIT]", "/setblock 0 4 0 stone\n/setblock 1 4 0 obsidian",
    "/kill\n/fill 0 0 0 3 0 3 minecraft:white_concrete",
    "get_weather(city='Oslo')\nmusic.play(song=\"Solveig's Song\")",
    '[{"name": "get_weather", "arguments": {"city": "Oslo", "days": [1, 2]}}]',
    '{"agent_id": 0, "assignments": [{"day": 1, "field": "lunch", "value": "Old Mill, Bergen"}]}',
)  # fmt: skip
"""Plausible completions; the tests cut and splice them."""
PIECES = (
    "```", "```python\n", "~~~", "````", "<think>", "</think>", "<|im_end|>", "</s>", "[INST]",
    "\\boxed{", "\\boxed{}", "\\fbox{", "{", "}", "\\}", "\\\\", "####", "#### ", "answer is ",
    "the answer is not ", "$", "\\$", "\\frac{", "\\frac{1}{", "\\sqrt{", "^", "^{", "9", "0", "1,",
    "1.", "1/", "-", "e9", "1e9", "½", "٣", "²", "= ", "+", "(", ")", "[", "]", ":", "'", '"',
    "'''", '"""', "\\", "\n", "\r", "\t", " ", "\0", "\x0c", "\x1c", "\u2028", "\u202e", "\ufeff",
    "\u00a0", "\ud800", "é", "🎵", "#", ">>> ", "... ", "def ", "def total(xs):\n", "class A:\n",
    "    ", "return ", "return total(xs)\n", "lambda: ", "not ", "x.", "if x:\n", "else:\n", "@a\n",
    "try:\n", "import os\n", "yield ", "f'{", "**", "a", "a ", "ab", "entailment ", "neutral",
    "neither ", "contradiction, ", "not entailment ", "however ", "first ", "Line 1 ", "line ", "<",
    "|",
)  # fmt: skip
HEAVY = (
    "9" * 10_000, "9" * MOST, "1," * MOST, "1e" + "9" * 5000, "\\boxed{" * 100_000, "{" * MOST,
    "}" * MOST, "\\boxed{a}" * 50_000, "\\boxed{" + "9^" * 30 + "9}", "\\boxed{10^{10^{10}}}",
    "\\boxed{" + "x+" * 3000 + "x}", "\\boxed{" + "\\frac{1}{" * 300 + "1" + "}" * 300 + "}",
    "\\boxed{\\int_0^\\infty x^x dx}", "\\boxed{(x+1)^{10000}}", "\\boxed{1000000!}",
    "\\boxed{" + "\\sqrt{" * 200 + "2" + "}" * 201, "answer is " * 100_000, "#### " * 200_000,
    "```\n" * 200_000, "```python\n" + "x = 1\n" * 50_000, "a" * MOST, "a " * (MOST // 2),
    "\n" * MOST, " " * MOST, "\t" * 200_000 + "x", "<think>" * 100_000, "</think>" * 100_000,
    "<" * MOST, "def total(xs):\n" * 50_000, "    " * 100_000 + "return 1",
    "def total(xs):\n    return " + "(" * 90 + "1" + ")" * 90,
    "def total(xs):\n    return " + "-" * 100_000 + "1", "x = " + "[" * 100_000,
    "def total(xs):\n    return " + "+".join(["1"] * 20_000),
    "def total(xs):\n" + "".join(" " * n + "if x:\n" for n in range(1, 120)), "class A:\n" * 20_000,
    "'''" * 100_001, "@a\n" * 100_000, "try:\n" * 50_000, ">>> " * 100_000, ">>> x\n" * 100_000,
    "if x: pass\nel" * 50_000, "$" * MOST, "1/" * 300_000, "1 " * 300_000, "½" * 300_000,
    "-" * MOST, "not " * 200_000, "entailment " * 90_000, "Line 1 " * 100_000,
    "import a\n" * 100_000, "total" * 200_000, "def total(xs): return '" + "\\" * 100_000,
    "first, " * 100_000, "(" * 300_000 + ")" * 300_000, "def total(xs):\n    while True: pass\n",
    "def total(xs):\n    return [0] * 10**10\n", "def total(xs): return total(xs)", "exit()",
    "\0" * 100_000,
    *[attack for group in (FORGING, LYING, TAMPERING) for attack in list(group.values())[:4]],
)  # fmt: skip
"""Texts for which extractors, parsers and regular expressions might need very long."""


@st.composite
def completions(draw: DrawFn) -> str:
    """Draw valid texts cut and spliced, repeated pieces, and sometimes a heavy text."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        match draw(
            one_of(
                (
                    "said",
                    "said",
                    "said",
                    "said",
                    "piece",
                    "piece",
                    "piece",
                    "pieces",
                    "pieces",
                    "odd",
                    "heavy",
                )
            )
        ):
            case "said":
                text = draw(one_of(SAID))
                parts.append(
                    text[draw(st.integers(0, 3)) : draw(one_of((None, -1, -3, len(text) // 2)))]
                )
            case "piece":
                parts.append(
                    draw(one_of(PIECES))
                    * draw(one_of((1, 1, 1, 2, 2, 30, 30, 3000, 3000, 100_000)))
                )
            case "pieces":
                parts.append(
                    "".join(draw(st.lists(one_of(PIECES), min_size=2, max_size=6)))
                    * draw(one_of((1, 1, 1, 30, 500, 20_000)))
                )
            case "odd":
                parts.append(draw(one_of(ODD_TEXTS) | texts()))
            case "heavy":
                parts.append(draw(one_of(HEAVY)))
    text = draw(one_of(("", "\n", "\n\n"))).join(parts)
    return f"```python\n{text}\n```" if draw(one_of((False, False, False, True))) else text


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(wall_seconds=2.0, cpu_seconds=1)) as running:
        yield running


class _NoWords:
    """A tokenizer that accepts any text.

    Prompts that repeat a million characters are not tested here.
    """

    chat_template = None
    is_fast = False
    added_tokens_decoder: Mapping[int, Any] = {}
    all_special_tokens: Sequence[str] = ()
    unk_token_id = None

    def __len__(self) -> int:
        return 2

    def get_vocab(self) -> dict[str, int]:
        return {}

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [1]}


@pytest.mark.parametrize("kind", CASES)
def test_a_completion_is_rewarded_or_a_fault(kind, sandbox, tmp_path, tell):
    environment = environment_of(kind, sandbox)
    made = environment.task(ROWS[kind][0]) if kind in ROWS else environment.tasks("train")[0]
    task = made if isinstance(made, Task) else made[0]
    endings = Endings()

    @repeatable(CASES[kind])
    @given(completions())
    def check(text):
        with within(SECONDS):
            endings.count[
                played(
                    environment,
                    task,
                    lambda agent, turn: text,
                    _NoWords(),
                    tmp_path / "episode.jsonl",
                )
            ] += 1

    check()
    assert endings.count["played"] > 0
    tell("random completions", kind=kind, **endings.columns())


def test_the_limit_of_time_ends_what_hangs():
    with pytest.raises(AssertionError, match=r"more than 0\.2 s"), within(0.2):
        _hang()


def _hang() -> None:
    while True:
        pass
