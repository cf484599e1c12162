import pytest

from motet_tasks.planning.answers import answered, printed, program_of


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('so\n#### ["U", "R"]', ["U", "R"]),
        ("#### ['U', 'R']", ["U", "R"]),
        ("#### [U, R]", ["U", "R"]),
        ("####[]", []),
        ("#### [D]\n#### [U] and [R]", ["U"]),
        ("#### [[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
        ("#### [U, 3, [1]]", ["U", 3, [1]]),
        ("[U, R]", None),
        ("#### U, R", None),
        ("#### [U, R", None),
        ("#### [U; R]", None),
        ("#### [[[1]]]", [[1]]),
        ('#### ["R", "D",]', ["R", "D"]),
        ("#### [(0, 1, 3), (1, 2, 4),]", [[0, 1, 3], [1, 2, 4]]),
        ("#### ('R', 'D')", ["R", "D"]),
        ("#### (two moves) [U, R]", ["U", "R"]),
        ("", None),
    ],
)
def test_an_answer_is_the_first_list_after_the_last_mark(text, action):
    assert answered(text) == action


def test_a_program_prints_its_list_last():
    assert printed("trying [1]\nActions: ['U', 'D']\n") == ["U", "D"]
    assert printed("no way") is None
    assert printed("('R','D')\n") == ["R", "D"]
    assert printed("['U', 'D'] (2 moves)") == ["U", "D"]
    assert printed("[(0, 1, 3), (1, 2, 4)]") == [[0, 1, 3], [1, 2, 4]]


def test_long_and_deep_texts_are_read_in_no_time():
    for text in (
        "(" * 100_000,
        "[(" * 50_000,
        "[" * 100_000,
        "[]" * 50_000,
        "[a" * 50_000,
        "#### " + "[1," * 30_000,
    ):
        answered(text)
        printed(text)


def test_a_program_is_the_last_block_or_everything():
    assert program_of("a\n```python\nx = 1\n```\nb\n```\nx = 2\n```") == "x = 2\n"
    assert program_of("```python\nx = 1") == "x = 1"
    assert program_of("print([])") == "print([])"
