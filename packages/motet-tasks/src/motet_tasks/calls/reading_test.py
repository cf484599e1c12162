import json

import pytest

from motet_tasks.calls.reading import FunctionCall, canonical, read_calls, unique

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "properties": {"days": {}, "city": {}, "unit": {}},
        "required": ["city"],
    },
}
ADD = {"name": "math.add", "parameters": {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}}
FUNCTIONS = [WEATHER, ADD]
OSLO = FunctionCall("get_weather", {"city": "Oslo"})
SUM = FunctionCall("math.add", {"a": 1, "b": -2.5})


def read(text: str) -> list[FunctionCall]:
    return read_calls(text, FUNCTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "get_weather(city='Oslo')\nmath.add(a=1, b=-2.5)",
        "[get_weather(city='Oslo'), math.add(a=1, b=-2.5)]",
        "get_weather(city='Oslo'), math.add(a=1, b=-2.5)",
        "get_weather('Oslo'); math.add(1, -2.5)",
        "```python\nget_weather(city='Oslo')\nmath.add(a=1, b=-2.5)\n```",
        "```\nget_weather(city='Oslo')\n```\nand\n```py\nmath.add(1, -2.5)\n```",
        "```get_weather(city='Oslo'), math.add(1, -2.5)```",
        '[{"name": "get_weather", "arguments": {"city": "Oslo"}},'
        ' {"function": "math.add", "parameters": {"a": 1, "b": -2.5}}]',
        '[{"get_weather": {"city": "Oslo"}}, {"math.add": {"a": 1, "b": -2.5}}]',
        'Calls: [{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"},'
        ' {"type": "function",'
        ' "function": {"name": "math.add", "arguments": {"a": 1, "b": -2.5}}}]',
        "First get_weather(city='Oslo'), then math.add(1, -2.5).",
        "x = get_weather(city='Oslo')\ny = math.add(1, -2.5)",
        "x: str = get_weather(city='Oslo')\nmath.add(1, -2.5)\nprint(x)",
        "x, y = get_weather(city='Oslo'), await math.add(1, -2.5)",
        "print(get_weather(city='Oslo'))\nprint(sum(math.add(a=1, b=-2.5)))",
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}\n'
        '{"name": "math.add", "arguments": {"a": 1, "b": -2.5}}',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "math.add", "arguments": {"a": 1, "b": -2.5}}\n</tool_call>',
        'In {braces}: {"name": "get_weather", "arguments": {"city": "Oslo"}} and [1], then '
        '{"name": "math.add", "arguments": {"a": 1, "b": -2.5}}.',
        "<think>math.add(7, 7)?</think>get_weather('Oslo')\nmath.add(1, -2.5)",
    ],
)
def test_two_calls_in_every_form(text: str) -> None:
    assert read(text) == [OSLO, SUM]


@pytest.mark.parametrize(
    "text", ["", "[]", "I cannot.", "get_weather", "get_weather(", "{", '{"name"', "(" * 300, "\0"]
)
def test_no_call(text: str) -> None:
    assert read(text) == []


def test_arguments_are_values_and_what_is_no_literal_is_text() -> None:
    (call,) = read("f(a=true, b=None, c=[1, (2, null)], d={'x': false}, e=today(), g=1 + 1, h=now)")
    assert call.arguments == {
        "a": True, "b": None, "c": [1, [2, None]], "d": {"x": False}, "e": "today()", "g": "1 + 1",
        "h": "now",
    }  # fmt: skip


def test_arguments_without_a_name_are_the_required_ones_first() -> None:
    (call,) = read("get_weather('Oslo', 2, 'C', 'too many')")
    assert call.arguments == {"city": "Oslo", "days": 2, "unit": "C"}
    assert read("unknown(1)") == [FunctionCall("unknown", {})]


def test_brackets_and_json_inside_an_argument_are_part_of_it() -> None:
    assert read("Say get_weather(city='a) b', unit='(') now") == [
        FunctionCall("get_weather", {"city": "a) b", "unit": "("})
    ]
    assert read("get_weather(city=[{'name': 'x'}])") == [
        FunctionCall("get_weather", {"city": [{"name": "x"}]})
    ]


def test_an_object_inside_the_arguments_of_a_call_is_no_call() -> None:
    users = {"users": [{"name": "Bob"}]}
    assert read(f'Here: {{"name": "add_users", "arguments": {json.dumps(users)}}}') == [
        FunctionCall("add_users", users)
    ]
    assert read('So get_weather(city=[{"name": "Bob"}]), I think.') == [
        FunctionCall("get_weather", {"city": [{"name": "Bob"}]})
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get_weather", "arguments": {"place": {"lat": 1}}',
        '{"name": "get_weather", "arguments": {"users": [{"name": "Bob"}], "ci',
    ],
)
def test_what_is_inside_a_call_that_was_cut_off_is_no_call(text: str) -> None:
    assert read(text) == []


def test_a_list_of_calls_that_was_cut_off_has_its_whole_calls() -> None:
    whole = '[{"name": "get_weather", "arguments": {"city": "Oslo"}}, {"name": "math.add", "argu'
    assert read(whole) == [OSLO]


def test_a_parameter_may_have_the_name_of_a_word_of_python() -> None:
    convert = {"name": "convert", "parameters": {"properties": {"amount": {}, "from": {}}}}
    for text in ('convert(amount=5, from="USD")', 'Use convert(5, from = "USD").'):
        found = read_calls(text, [convert])
        assert found == [FunctionCall("convert", {"amount": 5, "from": "USD"})]


def test_only_known_functions_are_looked_for_in_prose() -> None:
    assert read("Use print('x') or my.get_weather('x') or get_weather_now(city='x').") == []


def test_equal_calls_differ_in_case_spaces_quotes_and_order() -> None:
    one = FunctionCall("f", {"a": " New  York", "b": [1.0, "'X'"]})
    other = FunctionCall("f", {"b": [1, "x"], "a": "new york"})
    assert one.key == other.key
    assert unique([OSLO, one, other, OSLO]) == [OSLO, one]
    assert canonical({"b": 1, "a": (None, "A")}) == (("a", (None, "a")), ("b", 1))


@pytest.mark.parametrize(
    "call",
    [
        OSLO, SUM, FunctionCall("f", {}), FunctionCall("f", {"class": 1, "a b": [True]}),
        FunctionCall("get weather", {"x": {"y": None}}), FunctionCall("f", {"a": "it's \"b\"\n"}),
    ],
)  # fmt: skip
def test_a_written_call_is_read_again(call: FunctionCall) -> None:
    assert read(str(call)) == [call]


def test_what_is_nested_deeply_is_read_without_an_error() -> None:
    deep = '{"name": "f", "arguments": {"a": ' + "[" * 500 + "]" * 500 + "}}"
    (call,) = read(deep)
    assert call.key == call.key
    assert read("[" * 90_000) == []
    assert read('{"a": ' * 15_000) == []
