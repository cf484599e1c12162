"""Reading and writing answers."""

from pathlib import Path

import pytest

from motet.core import Message
from motet.errors import ConfigError
from motet_verifier.answers import (
    LabelledAnswer,
    WrittenAnswers,
    as_chat,
    by_question,
    read_answers,
    some_answers,
    write_answers,
)
from tests.fixtures.messages import facts

ASKED = (Message("system", "be brief"), Message("user", "2+2?\u2028"))


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    answers = [
        LabelledAnswer("q1", ASKED, "é 4", "4", True, "gold", ease=0.5),
        LabelledAnswer("q1", ASKED, "five\n", "5", False, "sampled", "alice", 0.7),
        LabelledAnswer("q2", as_chat("12+39;"), "41", "41", True),
    ]
    write_answers(tmp_path / "new" / "answers.jsonl", answers)
    assert read_answers(tmp_path / "new" / "answers.jsonl") == answers
    assert {question: len(said) for question, said in by_question(answers).items()} == {
        "q1": 2,
        "q2": 1,
    }
    assert answers[2].chat == (Message("user", "12+39;"), Message("assistant", "41"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["answers.jsonl"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "answers.jsonl:2 … the line … Invalid JSON"),
        (
            '{"question": "q", "prompt": [], "text": "", "answer": "", "right": true}',
            "prompt … at least 1",
        ),
        (
            (
                '{"question": "q", "prompt": [{"role": "u", "content": ""}], "text": "", "answer": '
                '"", "right": true}'
            ),
            "prompt.0.role",
        ),
        (
            (
                '{"question": "q", "prompt": [{"role": "user", "content": ""}], "text": "", '
                '"answer": "", "right": 1}'
            ),
            "right: Input",
        ),
        ('{"question": 1}', "question … string"),
        ('{"quest": "q"}', "question … required"),
        ("[]", "the line … object"),
        ('"q"', "the line … object"),
        (
            (
                '{"question": "q", "prompt": [{"role": "user", "content": "", "x": 1}], "text": '
                '"", "answer": "", "right": true}'
            ),
            "prompt.0.x: Unexpected keyword argument",
        ),
        (
            (
                '{"question": "q", "prompt": [{"role": "user", "content": ""}], "text": "", '
                '"answer": "", "right": true, "ease": 2}'
            ),
            "ease … less … 1",
        ),
    ],
)
def test_a_line_that_is_no_answer_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_bytes(LabelledAnswer("q", ASKED, "x", "x", True).line() + f"\n{line}\n".encode())
    with pytest.raises(ConfigError, match=facts(complaint)):
        read_answers(file)


def test_a_file_that_is_absent_or_none_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=facts("none.jsonl does not exist")):
        read_answers(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match=facts(f"{tmp_path.name} … folder … expected … file")):
        read_answers(tmp_path)
    for noise in (
        b"\xff\xfe{}",
        '{"question": "ü"}'.encode("latin-1"),
        "{}".encode("utf-16"),
        b"\x1f\x8b\x08",
    ):
        (tmp_path / "bytes").write_bytes(
            LabelledAnswer("q", ASKED, "x", "x", True).line() + b"\n" + noise
        )
        with pytest.raises(ConfigError, match=facts("bytes:2 … the line … Invalid JSON")):
            read_answers(tmp_path / "bytes")


def test_a_file_without_answers_is_some_where_none_are_needed_only(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    assert read_answers(tmp_path / "empty") == []
    with pytest.raises(ConfigError, match=facts("empty has no answers … one per line")):
        some_answers(tmp_path / "empty")


def test_answers_that_were_written_in_an_interrupted_call_are_read_without_a_torn_line(
    tmp_path: Path,
) -> None:
    answers = [LabelledAnswer("q1", ASKED, text, text, True) for text in "45"]
    written = WrittenAnswers(tmp_path / "new" / "balanced.jsonl")
    assert written.read() == []
    for answer in answers:
        written.add([answer])
    with written.path.open("ab") as file:
        file.write(answers[0].line()[:20])
    assert written.read() == answers
    written.add([answers[0]])
    assert written.read() == [*answers, answers[0]]
    written.remove()
    assert written.read() == []
