import ast

import pytest

from codejudge.blocks import lenient


def blocks(*sources: str) -> list[tuple[str, int, int]]:
    return list(
        lenient(
            [ast.parse(source) for source in sources],
            [f"<{number}>" for number in range(len(sources))],
        )
    )


@pytest.mark.parametrize(
    "body",
    [
        "1 / 0",
        "int('a')",
        "block.risky()",
        "x = block.value",
        "self.box.risky()",
        "risky(block, 3)",
        "int(risky())",
        "pass",
    ],
)
def test_a_block_in_which_nothing_checks_lets_every_exception_be_swallowed(body: str) -> None:
    assert blocks(f"def test(self):\n    with self.box as block:\n        {body}\n") == [
        ("<0>", 2, 0)
    ]


@pytest.mark.parametrize(
    "body",
    [
        "assert block", "self.assertEqual(1, 2)", "self.verify(block)", "self.fail()",
        "helper(block)", "list(map(helper, block))", "if block.x: raise KeyError",
        "wrong = block.x == 3", "wrong += block.x", "got.append(block.x)", "yield block",
        "np.all(block)", "check(block)", "block.run(lambda: helper(1))",
        "for each in checks: each(block)", "checks[0](block)", "exec('assert 0')",
        "with other() as inner: inner.run(helper)",
    ],
)  # fmt: skip
def test_a_block_in_which_something_may_check_lets_none(body: str) -> None:
    source = (
        "import numpy as np\ndef helper(x): assert x\n"
        "class T:\n    def verify(self, x): helper(x)\n"
    )
    source += f"got, checks = [], []\ndef test(self):\n    with Block() as block:\n        {body}\n"
    assert blocks(source, "check = functools.partial(helper, 1)") == []


def test_what_a_block_ends_with_is_the_tests_own_and_may_be_swallowed() -> None:
    assert blocks("with a():\n    b()\n    raise KeyError") == [("<0>", 1, 3)]
    assert blocks("with a(), b():\n    with c():\n        raise KeyError") == [
        ("<0>", 1, 3),
        ("<0>", 2, 3),
    ]
    assert blocks("with a(): raise KeyError") == [("<0>", 1, 1)]
    assert blocks("with a():\n    if b(): raise KeyError") == []
    assert blocks("with a():\n    with c(): raise KeyError\n    assert b") == [("<0>", 2, 2)]


def test_the_items_of_a_block_may_take_several_lines() -> None:
    assert blocks("with (a(),\n      b()):\n    c()") == [("<0>", 1, 0), ("<0>", 2, 0)]


def test_texts_share_their_names() -> None:
    assert blocks("def check(x): assert x", "with a() as b: check(b)", "with a() as b: b.c()") == [
        ("<2>", 1, 0)
    ]
