"""Games in the terminal: answers and outcomes that read the same are one line."""

import pytest

from motet.commands.episodes import print_episode
from motet.core import Completion, Episode, Outcome, Round, SampleId, Task


def game(texts: str, rewards: str) -> Episode:
    said = tuple(Completion("ann", text, "length" if text == "c" else "stop") for text in texts)
    paid = tuple(
        Outcome({"ann": index}, {"ann": float(reward)}, {"words": 1.0}, end="done")
        for index, reward in enumerate(rewards)
    )
    return Episode("1:t", Task("t", {}), Round(0, {"ann": "?"}, {"ann": (1,)}, {"ann": said}, paid))


def lines(capsys: pytest.CaptureFixture[str], *given: object) -> list[str]:
    print_episode(*given)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("ann", "j"))]


def test_what_reads_the_same_is_one_line_with_all_its_numbers(capsys) -> None:
    assert lines(capsys, game("aabaaacb", "11011100")) == [
        "ann (0, 1, 3-5): a",
        "ann (2, 7): b",
        "ann (6, cut off): c",
        "joint actions 0, 1, 3-5: reward ann 1; words 1; end: done",
        "joint actions 2, 6, 7: reward ann 0; words 1; end: done",
    ]


def test_other_advantages_are_other_lines_and_a_rounding_error_is_none(capsys) -> None:
    advantages = dict(
        zip(
            (SampleId("1:t", (), "ann", index) for index in range(3)),
            (0.5, 0.0, 2e-17),
            strict=True,
        )
    )
    assert lines(capsys, game("aaa", "100"), advantages) == [
        "ann (0, advantage +0.5): a",
        "ann (1, 2, advantage +0): a",
        "joint action 0: reward ann 1; words 1; end: done",
        "joint actions 1, 2: reward ann 0; words 1; end: done",
    ]


def test_a_single_answer_has_no_number(capsys) -> None:
    assert lines(capsys, game("a", "1")) == ["ann: a"]
