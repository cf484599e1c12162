"""Which arguments fit a schema, and which tools and calls are refused."""

import pytest

from motet.core.tools import ToolCall, ToolSchema, call_of, fits, misfit, not_plain, wrong_tool

OBJECT = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
        "unit": {"type": "string", "enum": ["cm", "inch"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "many": {"type": ["number", "boolean"]},
        "maybe": {"type": "integer", "nullable": True},
    },
    "required": ["count"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "value",
    [
        {"count": 1},
        {"count": 9.0, "unit": "cm", "tags": ["a", "b"], "either": None, "many": True},
        {"count": 3, "maybe": None, "either": "x", "many": 0.5},
    ],
)
def test_values_that_fit(value):
    assert fits(value, OBJECT, "the arguments") == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "the arguments lack 'count'; expected ['count', "),
        ({"count": "3"}, "argument 'count' must be of type integer, got '3'"),
        ({"count": True}, "argument 'count' must be of type integer, got True"),
        ({"count": 0}, "argument 'count' must be at least 1, got 0"),
        ({"count": 10}, "argument 'count' must be less than 10, got 10"),
        ({"count": 1, "unit": "m"}, "argument 'unit' must be one of ['cm', 'inch'], got 'm'"),
        ({"count": 1, "tags": ["a", 2]}, "argument 'tags'[1] must be of type string, got 2"),
        ({"count": 1, "either": 2}, "argument 'either' must be of type string, got 2"),
        ({"count": 1, "many": "x"}, "argument 'many' must be of type number or boolean, got 'x'"),
        ({"count": 1, "other": 1}, "the arguments have 'other'; expected only ['count', "),
    ],
)
def test_values_that_do_not_fit_say_why(value, said):
    assert fits(value, OBJECT, "the arguments").startswith(said)


def test_patterns_references_and_nonsense_of_a_stranger_are_passed_over():
    hostile = {"pattern": "(a+)+$", "$ref": "http://127.0.0.1:1/x", "enum": 7, "minimum": "x"}
    assert fits("a" * 50 + "!", hostile, "x") == ""
    assert fits({"a": 1}, {"properties": [], "required": 3}, "x") == ""
    assert fits(1, {"type": 3, "anyOf": "x"}, "x") == ""


def test_a_call_of_an_unknown_tool_names_those_that_there_are():
    tools = (ToolSchema("add", "", OBJECT), ToolSchema("find", "", {}))
    assert misfit(ToolCall("sub"), tools) == "there is no tool 'sub'; tools are add, find"
    assert misfit(ToolCall("find", {"x": 1}), tools) == ""
    assert misfit(ToolCall("add", {"count": 0}), tools).startswith("argument 'count'")


def test_a_call_may_have_its_arguments_as_a_text_or_none():
    assert call_of("add", '{"a": 1}') == ToolCall("add", {"a": 1})
    assert call_of("now", None) == call_of("now", " ") == ToolCall("now")
    assert str(call_of("add", {"a": "x"})) == 'add(a="x")'


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("", {}, "its name is ''"),
        (7, {}, "its name is 7"),
        ("add", "{", "its arguments are no JSON"),
        ("add", [1], "expected an object"),
        ("a\ud800", {}, "a lone surrogate"),
        ("add", {"a": float("inf")}, "the number inf"),
    ],
)
def test_what_is_no_call_says_why(name, arguments, said):
    assert said in call_of(name, arguments)


def test_values_that_no_record_holds_are_named():
    assert not_plain({"a": [1, None, "x", 0.5, True]}) == ""
    assert not_plain({1: 2}) == "a key that is no string"
    assert not_plain({"a": {1, 2}}) == "a value of type set"
    deep: list = []
    for _ in range(40):
        deep = [deep]
    assert not_plain(deep) == "values nested deeper than 32 levels"


class Named:
    name, description, parameters = "add", "Adds.", {"type": "object"}

    def __call__(self, **arguments):
        return 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"name": "a b"}, "the name 'a b'; expected up to 64 letters"),
        ({"name": None}, "an object of type Tool without name; expected a function"),
        ({"description": 3}, "a description of type int; expected a string"),
        ({"parameters": {"type": "string"}}, "expected a JSON schema of an object"),
        ({"parameters": {"properties": [1]}}, "properties [1]; expected a mapping"),
        ({"parameters": {"x": {1, 2}}}, "a schema with a value of type set"),
    ],
)
def test_what_is_no_tool_says_what_it_lacks(change, said):
    found = wrong_tool(type("Tool", (Named,), change)())
    assert found == "" if not said else said in found


def test_an_object_that_cannot_be_called_is_no_tool():
    class Still:
        name, description, parameters = "add", "Adds.", {}

    assert "without __call__" in wrong_tool(Still())
