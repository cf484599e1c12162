"""Which earlier turns the prompt of an agent contains."""

import itertools

import pytest

from motet.core import Message
from motet.environments.history import Exchange, compose, flatten
from tests.fixtures.messages import facts

FIRST = Exchange(
    {"aux": "write aux", "main": "write main"}, {"aux": "def aux(): 1", "main": "def main(): 1"}
)
SECOND = Exchange(
    {"aux": "aux fails", "main": "main fails"}, {"aux": "def aux(): 2", "main": "def main(): 2"}
)
CHOICES = (None, True, False)


def said(chat):
    return [(message.role, message.content) for message in chat]


def test_the_first_prompt_is_the_same_under_every_history():
    for history in ("own", "joint", "none"):
        assert compose(history, "aux", [], "write aux") == (Message("user", "write aux"),)


def test_own_is_the_agents_own_chat():
    assert said(compose("own", "aux", [FIRST, SECOND], "again")) == [
        ("user", "write aux"),
        ("assistant", "def aux(): 1"),
        ("user", "aux fails"),
        ("assistant", "def aux(): 2"),
        ("user", "again"),
    ]


def test_joint_adds_what_the_others_answered_by_name():
    chat = said(compose("joint", "aux", [FIRST, SECOND], "again"))
    assert chat[:2] == [("user", "write aux"), ("assistant", "def aux(): 1")]
    assert chat[2] == ("user", "main answered:\ndef main(): 1\n\naux fails")
    assert chat[4] == ("user", "main answered:\ndef main(): 2\n\nagain")


def test_none_is_one_message_of_the_task_the_last_answer_and_what_is_new():
    assert said(compose("none", "main", [FIRST, SECOND], "again")) == [
        ("user", "write main\n\nYour last answer:\ndef main(): 2\n\nagain")
    ]


@pytest.mark.parametrize(
    ("problem", "answer", "expected"),
    [
        (True, True, "write aux\n\nYour last answer:\ndef aux(): 1\n\nagain"),
        (True, False, "write aux\n\nagain"),
        (False, True, "Your last answer:\ndef aux(): 1\n\nagain"),
        (False, False, "again"),
    ],
)
def test_what_is_restated_can_be_chosen_under_every_history(problem, answer, expected):
    for history in ("own", "none"):
        chat = compose(
            history, "aux", [FIRST], "again", restate_problem=problem, restate_answer=answer
        )
        assert chat[-1] == Message("user", expected)


def test_roles_alternate_and_each_chat_goes_on_from_the_one_before():
    for history, problem, answer in itertools.product(("own", "joint"), CHOICES, CHOICES):
        restate = {"restate_problem": problem, "restate_answer": answer}
        for agent in ("aux", "main"):
            chats = [
                compose(history, agent, turns, asked, **restate)
                for turns, asked in (
                    ([], FIRST.asked[agent]),
                    ([FIRST], SECOND.asked[agent]),
                    ([FIRST, SECOND], "again"),
                )
            ]
            for chat in chats:
                assert [message.role for message in chat] == ["user", "assistant"] * (
                    len(chat) // 2
                ) + ["user"]
            for shorter, longer in itertools.pairwise(chats):
                assert longer[: len(shorter)] == shorter


def test_only_joint_shows_what_another_agent_wrote():
    for history, problem, answer in itertools.product(("own", "none", "joint"), CHOICES, CHOICES):
        chat = compose(
            history, "aux", [FIRST], "again", restate_problem=problem, restate_answer=answer
        )
        assert any("def main" in message.content for message in chat) == (history == "joint")
        assert not any("write main" in message.content for message in chat)


def test_agents_that_take_turns_hear_all_that_was_said_since_they_spoke():
    review = Exchange({"reviewer": "find it"}, {"reviewer": "line 3"})
    fix = Exchange({"fixer": "mend it"}, {"fixer": "x = 1"})
    assert said(compose("joint", "fixer", [review], "mend it")) == [
        ("user", "reviewer answered:\nline 3\n\nmend it"),
    ]
    assert said(compose("joint", "reviewer", [review, fix], "look again")) == [
        ("user", "find it"),
        ("assistant", "line 3"),
        ("user", "fixer answered:\nx = 1\n\nlook again"),
    ]
    assert said(compose("own", "fixer", [review], "mend it")) == [("user", "mend it")]


def test_an_empty_answer_is_restated_as_nothing_and_indentation_stays():
    silent = Exchange({"aux": "write aux"}, {"aux": " \n"})
    assert (
        "Your last answer:\n(nothing)\n\nagain"
        in compose("none", "aux", [silent], "again")[0].content
    )
    deep = Exchange({"aux": "write aux"}, {"aux": "\n    return 1\n"})
    assert (
        "Your last answer:\n    return 1\n\nagain"
        in compose("none", "aux", [deep], "again")[0].content
    )


def test_flat_text_is_what_was_said_with_an_empty_line_between():
    assert flatten(compose("own", "aux", [], "def f(x):\n")) == "def f(x):\n"
    assert flatten(compose("own", "aux", [FIRST], "again")) == "write aux\n\ndef aux(): 1\n\nagain"


def test_an_exchange_names_the_same_agents_twice():
    with pytest.raises(ValueError, match=facts("replies of main … replies of aux")):
        Exchange({"aux": "write"}, {"main": "def main(): 1"})
