import pytest

from motet.safety.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\n\tlines, é 你好\u3000 🎼", "two\n\tlines, é 你好\u3000 🎼"),
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("over\rwritten\x00\x9b", "over\\rwritten\\x00\\x9b"),
        ("a\u202eb\u2028", "a\\u202eb\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_only_what_can_be_seen_reaches_a_terminal(text, shown):
    assert visible(text) == shown
