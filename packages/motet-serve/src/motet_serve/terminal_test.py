import asyncio
import io
import sys

import pytest

from motet.errors import ConfigError
from motet_serve.team import AnswerSettings
from motet_serve.terminal import converse, texts_of, typed_lines
from tests.fixtures.asked_teams import Saying, saying_team
from tests.fixtures.messages import facts


def conversation(*lines, show=False):
    written, complaints = [], []
    team = saying_team(Saying())

    def ask(text, told):
        return asyncio.run(team.ask(text, AnswerSettings(1, temperature=0.0), told))

    count = converse(ask, written.append, complaints.append, show=show, lines=iter(lines))
    return count, written, complaints


def test_every_text_gets_an_answer_and_a_wrong_one_an_error():
    count, written, complaints = conversation("12+39", "", "hello", "12+39")
    assert count == 1
    assert written[0] == written[1]
    assert len(written) == 2
    assert len(complaints) == 1
    assert "got 'hello'" in complaints[0]


def test_show_writes_what_the_agents_say_to_each_other():
    _, written, _ = conversation("12+39", show=True)
    heads = ["[a, turn 1] ", "[b, turn 1] ", "[a, turn 2] ", "[b, turn 2] ", "[team] "]
    assert [line[: len(head)] for line, head in zip(written, heads, strict=True)] == heads


def test_lines_between_fences_are_one_text():
    lines = [
        "one\n",
        "\n",
        "```\n",
        "def f(x):\n",
        "\n",
        "    pass\n",
        "```\n",
        "two",
        "```",
        "end",
    ]
    assert list(texts_of(iter(lines))) == ["one", "def f(x):\n\n    pass", "two", "end"]


def test_a_closed_standard_input_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match=facts("standard input … closed")):
        next(typed_lines("you> "))


def test_a_line_in_another_encoding_is_one_text_and_the_next_are_read(monkeypatch):
    said = io.TextIOWrapper(io.BytesIO("12+39\ncaf\xe9\n50-05\n".encode("latin-1")), "utf-8")
    monkeypatch.setattr(sys, "stdin", said)
    count, written, complaints = conversation(*typed_lines("you> "))
    assert (count, len(written), len(complaints)) == (1, 2, 1)
