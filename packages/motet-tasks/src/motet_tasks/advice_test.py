"""Dividing one string of feedback among the agents."""

import pytest

from motet_tasks.advice import by_line, by_part

AGENTS = ("aux", "main")


@pytest.mark.parametrize(
    ("answer", "aux", "main"),
    [
        ('{"aux": "a", "main": "m"}', "a", "m"),
        ('Here you are:\n```json\n{"aux": "a", "main": "m"}\n```\nGood luck!', "a", "m"),
        ('{"Aux": "a", "`main`": ["m1", "m2"]}', "a", "m1\nm2"),
        ('{"aux": "line 1\nline 2", "main": null}', "line 1\nline 2", ""),
        ('{"main": "m"}', "", "m"),
        ('{"edits": {"aux": "a", "main": "m"}}', "a", "m"),
        ('{"aux": "a", "general": "all"}', "a\nall", "all"),
        ('{"aux": {"replace": "x"}}', '{"replace": "x"}', ""),
        ('A program such as {x: 1} is wrong. {"aux": "a"}', "a", ""),
        ("aux: a\nmain: m", "a", "m"),
        ("## aux\na1\na2\n\n## main\nm", "a1\na2", "m"),
        ("**Edits for aux:**\n- a\n**Edits for `main`:** m", "- a", "m"),
        ("All in all good.\n\n### aux\na", "All in all good.\na", "All in all good."),
        ("aux agent: a", "a", ""),
        ("main:\n```python\n# aux\nmain: int = 1\n```", "", "```python\n# aux\nmain: int = 1\n```"),
        (
            "Both should agree on a list.",
            "Both should agree on a list.",
            "Both should agree on a list.",
        ),
        ("{broken json", "{broken json", "{broken json"),
        ('{"aux": "unfinished', '{"aux": "unfinished', '{"aux": "unfinished'),
        ('{\n "aux": "a",\n "main": "m, which was cut', '{\n"a",', '{\n"m, which was cut'),
        (
            "# what aux gives to main:\nx",
            "# what aux gives to main:\nx",
            "# what aux gives to main:\nx",
        ),
        ("", "", ""),
    ],
)
def test_an_experts_answer_is_divided_as_far_as_it_can_be(answer, aux, main):
    assert by_part(answer, AGENTS) == {"aux": aux, "main": main}


@pytest.mark.parametrize(
    "answer", ['{"a":' * 5_000, "{" * 20_000, '{"' * 10_000, "[" * 100_000, "\x00é🎼" * 1_000]
)
def test_any_text_is_divided_somehow(answer):
    assert by_part(answer, AGENTS) == {"aux": answer, "main": answer}


def test_a_name_that_begins_another_is_not_taken_for_it():
    assert by_part("agent_10: ten\nagent_1: one", ("agent_1", "agent_10")) == {
        "agent_1": "one",
        "agent_10": "ten",
    }


def test_a_persons_lines_are_for_everybody_or_for_the_one_they_name():
    assert by_line("all of you\nmain: m\nnote: this too\nmain: n", AGENTS) == {
        "aux": "all of you\nnote: this too",
        "main": "all of you\nm\nnote: this too\nn",
    }
