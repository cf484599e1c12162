import asyncio
import json

import pytest

from motet.clients.endpoint import Endpoint
from motet.clients.http_client import ServerAway
from motet.core import Fault, Message, SampleRequest, ToolCall, ToolSchema, Usage
from motet.rollout.answer_file import AnswerFile
from motet.rollout.endpoint_sampler import EndpointSampler
from motet.settings import Decode, Thinking
from tests.fixtures.chat_server import ChatServer, completion
from tests.fixtures.http_servers import running
from tests.fixtures.messages import says


def endpoint(server, **settings):
    chosen = {"timeout_seconds": 20.0, "retries": 0, "concurrency": 4, "jitter": lambda: 0.0}
    return Endpoint(server.url, "big", **{**chosen, **settings})


def request(number, prompt="why?", keys=(5, (1 << 31) + 6), **said):
    return SampleRequest((number,), "q", prompt, Decode(max_new_tokens=9), keys, **said)


def ask(server, *requests, answers=None, told=None, **settings):
    sampler = EndpointSampler(endpoint(server, **settings), answers)
    return asyncio.run(sampler.sample(requests, told))


def test_a_completion_is_a_request_with_the_settings_of_its_agent():
    with running(ChatServer()) as server:
        chat = (Message("system", "Be brief."), Message("user", "why?", name="ann"))
        (answer,) = ask(server, request(0, chat, keys=(5,)))
    assert server.asked == [
        {
            "model": "big",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "why?", "name": "ann"},
            ],
            "temperature": 1.0,
            "top_p": 1.0,
            "max_tokens": 9,
            "seed": 5,
        }
    ]
    (said,) = answer.completions
    assert (answer.prompt_tokens, said.policy, said.tokens) == ((), "q", None)
    assert (said.stop, said.usage) == ("stop", Usage(7, 2))


@pytest.mark.parametrize(
    ("said", "thinking", "parts"),
    [
        ("<think>hm</think>\n\n5", Thinking(), ("hm", "5")),
        ("<think>hm", Thinking(), ("hm", "")),
        ("5", Thinking(), ("", "5")),
        ("<think>hm</think>5", Thinking(shown=True), ("hm", "<think>hm</think>5")),
        ("<think>hm</think>5", None, ("", "<think>hm</think>5")),
    ],
)
def test_the_thinking_of_an_answer_is_told_from_it(said, thinking, parts):
    asked = SampleRequest((0,), "q", "why?", Decode(thinking=thinking), (5,))
    with running(ChatServer(lambda asked: completion(said))) as server:
        (answer,) = ask(server, asked)
    (found,) = answer.completions
    assert (found.thinking, found.text) == parts


def test_seeds_have_31_bits_and_a_cut_answer_says_so():
    with running(ChatServer(lambda asked: completion("x", finish_reason="length"))) as server:
        (answer,) = ask(server, request(0))
    assert {one["seed"] for one in server.asked} == {5, 6}
    assert [one.stop for one in answer.completions] == ["length", "length"]


def test_answers_have_the_order_of_the_requests_and_are_passed_on():
    def behave(asked):
        return completion(f"{asked['messages'][0]['content']} {asked['seed']}")

    told = {}
    with running(ChatServer(behave)) as server:
        answers = ask(server, request(0, "a"), request(1, "b"), told=told.__setitem__)
    assert [[one.text for one in each.completions] for each in answers] == [
        ["a 5", "a 6"], ["b 5", "b 6"]
    ]  # fmt: skip
    assert told == dict(enumerate(answers))


def test_one_key_that_fails_makes_its_request_a_fault_and_the_other_answer_is_kept(tmp_path):
    def behave(asked):
        return (422, b"no") if asked["seed"] == 6 else completion("yes")

    path = tmp_path / "answers.jsonl"
    with running(ChatServer(behave)) as server:
        fault, sampled = ask(
            server, request(0), request(1, keys=(7,)), answers=AnswerFile(path, writes=True)
        )
        assert isinstance(fault, Fault)
        assert (fault.where, fault.cause) == ("sampler", "refused")
        assert says(fault.message, f"policy q … {server.url} … 422 … no")
        assert sampled.completions[0].text == "yes"
        before = len(server.asked)
        server.behave = lambda asked: completion("now")
        again, _ = ask(server, request(0), request(1, keys=(7,)), answers=AnswerFile(path))
    assert [one.text for one in again.completions] == ["yes", "now"]
    assert len(server.asked) == before + 1


def test_answers_come_from_the_file_whatever_the_address(tmp_path):
    path = tmp_path / "answers.jsonl"
    with running(ChatServer()) as server:
        first = ask(server, request(0), answers=AnswerFile(path, writes=True))
    gone = ChatServer()
    gone.server_close()
    assert ask(gone, request(0), answers=AnswerFile(path)) == first
    assert len(path.read_text().splitlines()) == 2
    assert "why?" not in path.read_text()


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": 1}, 5,
              {"prompt_tokens": "7", "completion_tokens": 2}]
)  # fmt: skip
def test_tokens_that_are_not_said_are_unknown(usage):
    with running(ChatServer(lambda asked: completion("x", usage))) as server:
        (answer,) = ask(server, request(0, keys=(1,)))
    assert answer.completions[0].usage == Usage(None, None)


def test_sixteen_failures_in_a_row_end_the_call_and_a_later_one_asks_again():
    many = [request(number, keys=(1,)) for number in range(40)]
    with running(ChatServer(lambda asked: (503, b""))) as server:
        sampler = EndpointSampler(endpoint(server, concurrency=1))
        with pytest.raises(ServerAway, match=server.url):
            asyncio.run(sampler.sample(many))
        assert len(server.asked) < 20
        with pytest.raises(ServerAway):
            asyncio.run(sampler.sample(many[:1]))
        server.behave = lambda asked: completion("back")
        (answer,) = asyncio.run(sampler.sample(many[:1]))
        server.behave = lambda asked: (503, b"")
        (fault,) = asyncio.run(sampler.sample(many[:1]))
    assert answer.completions[0].text == "back"
    assert isinstance(fault, Fault)


def test_prompts_that_the_server_refuses_do_not_count_as_failures_of_it():
    with running(ChatServer(lambda asked: (400, b"too long"))) as server:
        answers = ask(server, *(request(number, keys=(1,)) for number in range(20)))
    assert {one.cause for one in answers} == {"refused"}
    assert len(server.asked) == 20


def test_an_empty_answer_is_one():
    with running(ChatServer(lambda asked: completion(""))) as server:
        (answer,) = ask(server, request(0, keys=(1,)))
    assert answer.completions[0].text == ""


ADD = ToolSchema("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = ToolCall("add", {"a": 3}, "call00001")


def calling(*functions, content=None):
    calls = [{"id": str(n), "type": "function", "function": one} for n, one in enumerate(functions)]
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    return lambda asked: (200, json.dumps(body).encode())


def test_tools_calls_and_results_are_those_of_the_protocol(tmp_path):
    chat = (
        Message("user", "3?", tools=(ADD,)),
        Message("assistant", "I add.", calls=(CALL,)),
        Message("tool", "3", "add", call_id="call00001"),
    )
    answers = AnswerFile(tmp_path / "answers.jsonl", writes=True)
    with running(ChatServer(calling({"name": "add", "arguments": '{"a": 4}'}))) as server:
        (answer,) = ask(server, request(0, chat, keys=(5,)), answers=answers)
        (again,) = ask(server, request(0, chat, keys=(5,)), answers=answers)
    (asked,) = server.asked
    assert asked["tools"] == [ADD.function]
    assert asked["messages"][1:] == [
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [
                {
                    "type": "function",
                    "id": "call00001",
                    "function": {"name": "add", "arguments": '{"a": 3}'},
                }
            ],
        },
        {"role": "tool", "content": "3", "tool_call_id": "call00001"},
    ]
    (said,) = answer.completions
    assert (said.text, said.calls, said.unread) == ("", (ToolCall("add", {"a": 4}),), "")
    assert again == answer, "kept answers have their calls"


@pytest.mark.parametrize(
    ("arguments", "why"), [("{", "its arguments are no JSON"), ("[1]", "expected an object")]
)
def test_a_broken_call_of_a_server_is_told_to_its_agent(arguments, why, tmp_path):
    behave = calling({"name": "add", "arguments": arguments}, content="So.")
    answers = AnswerFile(tmp_path / "answers.jsonl", writes=True)
    with running(ChatServer(behave)) as server:
        (answer,) = ask(server, request(0, keys=(5,)), answers=answers)
        (again,) = ask(server, request(0, keys=(5,)), answers=answers)
    (said,) = answer.completions
    assert (said.text, said.calls) == ("So.", ())
    assert why in said.unread
    assert again == answer
