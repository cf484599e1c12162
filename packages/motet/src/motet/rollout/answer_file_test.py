import json

import pytest

from motet.clients.endpoint import ChatAnswer
from motet.core import Usage
from motet.errors import ConfigError
from motet.rollout.answer_file import AnswerFile, key_of
from tests.fixtures.messages import facts

ASKED = {"model": "big", "messages": [{"role": "user", "content": "why?"}], "seed": 5}
FIRST = ChatAnswer("a\nb \u2028 é", "length", Usage(3, 4))
SECOND = ChatAnswer("c", "stop", Usage())


@pytest.fixture
def path(tmp_path):
    answers = AnswerFile(tmp_path / "answers.jsonl", writes=True)
    answers.keep("one", FIRST)
    answers.keep("two", SECOND)
    return tmp_path / "answers.jsonl"


def test_the_name_of_an_answer_depends_on_all_that_was_asked():
    others = [
        key_of({**ASKED, "model": "small"}, 7),
        key_of({**ASKED, "temperature": 0.0}, 7),
        key_of({**ASKED, "messages": []}, 7),
        key_of(ASKED, 7 + (1 << 31)),
    ]
    assert key_of(dict(reversed(ASKED.items())), 7) == key_of(ASKED, 7)
    assert len({*others, key_of(ASKED, 7)}) == 5


def test_answers_are_found_again_in_the_same_and_in_another_process(path):
    for writes in (True, False):
        again = AnswerFile(path, writes=writes)
        assert (again.find("one"), again.find("two"), again.find("three")) == (FIRST, SECOND, None)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_line_that_a_kill_cut_off_is_replaced_by_the_next_one(path, cut):
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    answers = AnswerFile(path, writes=True)
    assert answers.find("two") is None
    answers.keep("two", SECOND)
    assert path.read_bytes() == whole
    assert answers.find("two") == SECOND


def test_a_file_that_is_only_read_is_not_changed_and_none_is_made(path, tmp_path):
    before = path.read_bytes()
    AnswerFile(path).keep("three", FIRST)
    AnswerFile(tmp_path / "no.jsonl").keep("three", FIRST)
    assert path.read_bytes() == before
    assert not (tmp_path / "no.jsonl").exists()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b'{"key": 5}\n',
        json.dumps({"key": "k", "text": "", "stop": "why"}).encode() + b"\n",
        b"\xff\n",
    ],
)
def test_a_broken_line_is_named(path, line):
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(ConfigError, match=facts("answers.jsonl, line 3 … delete the line")):
        AnswerFile(path)


def test_what_is_no_regular_file_is_refused(tmp_path):
    (tmp_path / "answers.jsonl").mkdir()
    with pytest.raises(ConfigError, match=facts("answers.jsonl … folder … regular file")):
        AnswerFile(tmp_path / "answers.jsonl")


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OSError, match=r"answers\.jsonl"):
        AnswerFile(tmp_path / "gone" / "answers.jsonl", writes=True).keep("one", FIRST)
