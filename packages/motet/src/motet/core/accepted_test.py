"""Prompts as in OpenAI's API, and plain functions where Motet awaits."""

import asyncio

import pytest

from motet.core import (
    ABILITIES,
    Demonstration,
    Environment,
    Grade,
    Grades,
    Message,
    Prompt,
    Reply,
    Task,
    ToolCall,
    Transition,
)
from motet.core.accepted import AWAITED, PLAIN, as_prompt
from motet.errors import ConfigError, EnvironmentFault
from tests.fixtures.messages import facts

ASKED = {"role": "user", "content": "Hello"}
SYSTEM = {
    "role": "system",
    "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
}
HELLO = Message("user", "Hello")
CALLED = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
SAID = {"role": "assistant", "content": "Hi", "tool_calls": [CALLED]}


class Plain(Environment):
    """All methods as somebody writes them who knows OpenAI's API and not asyncio."""

    agents = ("a",)
    branches = True

    def start(self, task, seed):
        return 0

    def observe(self, state):
        return {"a": [SYSTEM, ASKED]}

    def step(self, state, replies, seed):
        return Transition(state + 1, {"a": 1.0}, True, success=1.0)

    def question(self, task):
        return [ASKED]

    def demonstrate(self, task, seed):
        return Demonstration("a", [ASKED], "Hi")


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        ("raw text", "raw text"),
        (ASKED, (HELLO,)),
        ([ASKED], (HELLO,)),
        ([HELLO, ASKED], (HELLO, HELLO)),
        ([SYSTEM], (Message("system", "Be brief."),)),
        ([{**ASKED, "name": "ann"}], (Message("user", "Hello", "ann"),)),
        (
            [{"role": "assistant", "content": "5", "reasoning_content": "2+3"}],
            (Message("assistant", "5", thinking="2+3"),),
        ),
        (
            [ASKED, {**SAID, "content": None}, {**ASKED, "role": "tool", "tool_call_id": "1"}],
            (
                HELLO,
                Message("assistant", "", calls=(ToolCall("add", {"a": 1}, "1"),)),
                Message("tool", "Hello", "add", call_id="1"),
            ),
        ),
    ],
)
def test_dicts_and_lists_of_them_are_prompts(given, prompt: Prompt):
    assert as_prompt(given) == prompt


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"role": "user"}], "prompt … {'role': 'user'} … expected {"),
        ([{**ASKED, "audio": {}}], "'audio' … optionally a name"),
        ([{**ASKED, "tool_calls": [CALLED]}], "of an assistant also tool_calls"),
        ([{**ASKED, "role": "judge"}], "judge … role … system, user, assistant, tool"),
        ([{**SAID, "tool_calls": [{"id": "1"}]}], "has the call … no function; expected {"),
        (
            [{**SAID, "tool_calls": [{"function": {"name": "add", "arguments": "{"}}]}],
            "its arguments are no JSON … expected {",
        ),
        ([{**ASKED, "role": "tool", "tool_call_id": 7}], "of a tool tool_call_id"),
        ([{**ASKED, "reasoning_content": 5}], "'reasoning_content': 5 … expected {"),
        ([{**ASKED, "content": [{"type": "image_url"}]}], "and strings"),
    ],
)
def test_a_dict_that_is_no_message_is_refused_with_what_it_lacks(given, message):
    with pytest.raises(EnvironmentFault, match=facts(message)):
        as_prompt(given)


def test_an_environment_may_return_dicts_everywhere_and_needs_no_async():
    environment, task = Plain(), Task("t", {})
    chat = (Message("system", "Be brief."), HELLO)
    assert environment.observe(0) == {"a": chat}
    assert environment.question(task) == (HELLO,)
    assert environment.demonstrate(task, 0).prompt == (HELLO,)

    async def play():
        state = await environment.start(task, 0)
        return await environment.step(state, {"a": Reply("Hi")}, 0)

    assert asyncio.run(play()) == Transition(1, {"a": 1.0}, True, success=1.0)


def test_a_plain_grade_is_awaited_and_a_withdrawn_method_stays_withdrawn():
    class Marks(Plain):
        def grade(self, task, text):
            return Grade(text, True)

    class Without(Marks):
        grade = None

    assert asyncio.run(Marks().grade(Task("t", {}), "1")) == Grade("1", True)
    assert isinstance(Marks(), Grades)
    assert not isinstance(Without(), Grades)


async def awaits(self, *given):
    return {"a": "Hello"}


async def yields(self, *given):
    yield "Hello"


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("method", [awaits, yields, staticmethod(awaits)])
def test_an_async_method_that_nobody_awaits_is_refused_when_its_class_is_defined(name, method):
    with pytest.raises(ConfigError, match=facts(f"Hasty.{name} is async … plain function")):
        type("Hasty", (Plain,), {name: method})


def test_the_error_about_an_async_observe_says_where_to_await():
    class Mixin:
        observe = awaits

    with pytest.raises(ConfigError, match=facts("Hasty.observe … await in start or step … state")):
        type("Hasty", (Mixin, Plain), {})


def test_every_method_of_an_environment_is_awaited_or_plain():
    methods = {name for ability in ABILITIES for name in ability.methods()}
    assert {*AWAITED, *PLAIN} == {"start", "observe", "step", "close", *methods}
    assert not set(AWAITED) & set(PLAIN)
