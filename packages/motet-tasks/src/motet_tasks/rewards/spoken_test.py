import pytest

from motet_tasks.rewards.spoken import spoken


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A cat.", "A cat."),
        ("<think>\nhm, <b>\n</think>\n\n A cat. ", "\n\n A cat. "),
        (" \n<think></think>A cat.", "A cat."),
        ("<think>\nand then it ran out of tok", ""),
        ("which the prompt began</think>A cat.", "A cat."),
        ("I <think> so</think>", "I <think> so</think>"),
        ("I <think> so", "I <think> so"),
        ("", ""),
    ],
)
def test_thoughts_are_not_said(text, said):
    assert spoken(text) == said
