"""Agents call tools before they answer: in any environment, at the same time, within limits."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from codejudge import SandboxFault
from motet.core import (
    Completion,
    Environment,
    Message,
    Reply,
    Sampled,
    Solves,
    Task,
    Team,
    ToolCall,
    Transition,
    class_name,
)
from motet.environments.tool_use import ToolGame
from motet.errors import EnvironmentFault
from motet.rollout.collect import collect
from motet.settings import Decode, Plan, ToolUse
from motet.user_code.timeouts import guarded, run_loop
from motet.user_code.tool_runs import Chain, ToolError, as_text, bounded, offered, run_tool
from tests.fixtures.messages import says


@dataclass
class Given:
    """A tool that does what it is told."""

    name: str
    does: Any
    description: str = "Does something."
    parameters: dict = field(default_factory=lambda: {"type": "object", "properties": {}})

    def __call__(self, **arguments):
        return self.does(**arguments)


def add(a=0, b=0):
    return a + b


ADD = Given("add", add)


class Sums(Environment):
    """Two agents answer one question at the same time."""

    agents = ("solver", "checker")
    branches = True
    most_turns = 2

    def start(self, task, seed):
        return ()

    def observe(self, state):
        return {agent: f"{agent} {len(state)}" for agent in self.agents}

    def step(self, state, replies, seed):
        after = (*state, {agent: reply.text for agent, reply in replies.items()})
        right = float(replies["solver"].text == "7")
        return Transition(after, dict.fromkeys(self.agents, right), len(after) == 2, success=right)

    def solve(self, state, seed):
        return dict.fromkeys(self.agents, "7")


def run(work):
    async def begun():
        with guarded(20.0, 8):
            return await work

    return run_loop(begun())


def game(*tools, turns=None, **limits):
    return ToolGame(Sums(), {"solver": list(tools or (ADD,))}, ToolUse(**limits), turns)


def calls(*made, text="", thinking=""):
    return Reply(text, thinking=thinking, calls=made)


ASKED = ToolCall("add", {"a": 3, "b": 4})


def test_an_agent_reads_its_calls_and_results_and_the_other_waits():
    async def play():
        it = game()
        state = await it.start(Task("t", {}), 0)
        first = it.observe(state)
        moved = await it.step(
            state, {"solver": calls(ASKED, text="I add.", thinking="hm"), "checker": Reply("ok")}, 0
        )
        second = it.observe(moved.state)
        last = await it.step(moved.state, {"solver": Reply("7")}, 0)
        return first, moved, second, last, it.observe(last.state)

    first, moved, second, last, third = run(play())
    (asked,) = first["solver"]
    assert (asked.content, [one.name for one in asked.tools]) == ("solver 0", ["add"])
    assert first["checker"] == "checker 0"
    assert (moved.done, set(moved.rewards.values())) == (False, {0.0})
    call = ToolCall("add", {"a": 3, "b": 4}, "call00001")
    assert second == {
        "solver": (
            asked,
            Message("assistant", "I add.", thinking="hm", calls=(call,)),
            Message("tool", "7", "add", call_id="call00001"),
        )
    }
    assert last.state.inner == ({"solver": "7", "checker": "ok"},)
    assert last.rewards == {"solver": 1.0, "checker": 1.0}
    assert third["solver"][0].content == "solver 1"
    assert len(third["solver"]) == 1, "a new question begins without the old chain"


def test_after_the_last_round_and_at_the_last_turn_the_text_is_the_answer():
    async def play(it, most):
        state = await it.start(Task("t", {}), 0)
        for turn in range(most):
            moved = await it.step(
                state, {agent: calls(ASKED, text="7") for agent in it.observe(state)}, 0
            )
            state = moved.state
            if state.inner:
                return turn
        return None

    assert run(play(game(rounds=2), 9)) == 2
    assert run(play(game(rounds=9, turns=2), 9)) == 1
    assert game(rounds=2).most_turns == 2 * 3


def test_calls_of_an_agent_without_tools_are_text():
    async def play():
        it = game()
        state = await it.start(Task("t", {}), 0)
        return await it.step(state, {"solver": Reply("7"), "checker": calls(ASKED, text="c")}, 0)

    assert run(play()).state.inner == ({"solver": "7", "checker": "c"},)


def chain_of(it, reply):
    async def play():
        state = await it.start(Task("t", {}), 0)
        moved = await it.step(state, {"solver": reply, "checker": Reply("ok")}, 0)
        return it.observe(moved.state)["solver"][1:]

    return run(play())


def test_a_call_that_cannot_be_read_is_shown_as_it_was_written():
    said, told = chain_of(game(), Reply("<tool_call>{", unread="it is no JSON"))
    assert said == Message("assistant", "<tool_call>{")
    assert told == Message(
        "user", "Your call cannot be read: it is no JSON. Write it again, or answer."
    )


def boom():
    raise KeyError("x")


def told():
    raise ToolError("there is no such page")


def leaves():
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("tool", "call", "content"),
    [
        (ADD, ToolCall("sub"), "Error: there is no tool 'sub'; tools are add"),
        (Given("add", boom), ToolCall("add"), "Error: KeyError: 'x'"),
        (Given("add", told), ToolCall("add"), "Error: there is no such page"),
        (
            Given("add", leaves),
            ToolCall("add"),
            "Error: tool add called sys.exit",
        ),
        (
            Given("add", add, parameters={"properties": {"a": {"type": "string"}}}),
            ASKED,
            "Error: argument 'a' must be of type string, got 3",
        ),
        (Given("add", lambda: time.sleep(30)), ToolCall("add"), "Error: it took more than 0.2 s"),
        (
            Given("add", lambda: asyncio.sleep(30)),
            ToolCall("add"),
            "Error: it took more than 0.2 s",
        ),
    ],
)
def test_what_goes_wrong_is_a_result(tool, call, content):
    begun = time.monotonic()
    _, result = chain_of(game(tool, timeout_seconds=0.2), calls(call))
    assert result.content.startswith(content)
    assert result.failed
    assert time.monotonic() - begun < 10


def test_a_failure_of_the_sandbox_is_no_result():
    def fails():
        raise SandboxFault("gone")

    with pytest.raises(SandboxFault, match="gone"):
        chain_of(game(Given("add", fails)), calls(ToolCall("add")))


def test_the_calls_of_a_turn_run_at_the_same_time():
    gate = asyncio.Event()
    seen = []

    async def meets(first=False):
        seen.append(first)
        if len(seen) == 2:
            gate.set()
        await asyncio.wait_for(gate.wait(), 10)
        return "met"

    results = chain_of(
        game(Given("meet", meets), timeout_seconds=15),
        calls(ToolCall("meet", {"first": True}), ToolCall("meet")),
    )
    assert [one.content for one in results[1:]] == ["met", "met"]
    assert [one.call_id for one in results[1:]] == ["call00001", "call00002"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ({"a": [1, "ü", None]}, '{"a": [1, "ü", null]}'),
        (None, "null"),
        (7.5, "7.5"),
    ],
)
def test_results_become_text(value, text):
    assert as_text(value) == text


@pytest.mark.parametrize("value", [{1}, object(), float])
def test_an_object_is_no_result(value):
    """Its text may have an address, which differs from run to run."""
    _, result = chain_of(game(Given("add", lambda: value)), calls(ToolCall("add")))
    assert result.failed
    assert says(result.content, f"Error: it returned {type(value).__name__} … a text, a number")


def test_two_tools_of_one_name_are_refused_wherever_they_are_offered():
    with pytest.raises(EnvironmentFault, match="two tools with the name 'add'"):
        offered("3 + 4?", [ADD, ADD], Chain())


def test_a_long_or_broken_result_becomes_one_that_a_tokenizer_reads():
    assert bounded("ab\ud800c", 100) == "ab?c"
    cut = bounded("a" * 600 + "z" * 600, 90)
    assert cut == "a" * 60 + "\n... (1,110 characters left out) ...\n" + "z" * 30
    result = run(run_tool(ToolCall("add"), {"add": Given("add", lambda: "y" * 9000)}, ToolUse()))
    assert len(result.text) < 4100


def test_messages_name_the_environment_and_not_its_wrapper():
    assert class_name(ToolGame(ToolGame(Sums(), {}), {})) == class_name(Sums()) == "Sums"


def test_the_abilities_are_those_of_the_environment():
    it = game()
    assert isinstance(it, Solves)
    state = run(it.start(Task("t", {}), 0))
    assert it.solve(state, 0) == {"solver": "7", "checker": "7"}
    moved = run(it.step(state, {"solver": calls(ASKED), "checker": Reply("ok")}, 0))
    assert it.solve(moved.state, 0) == {"solver": "7"}
    assert it.rewards_at_end


class Scripted:
    """A sampler: the solver calls at its first turn, and then answers with the result."""

    def __init__(self):
        self.prompts = []

    async def sample(self, requests, on_answer=None):
        found = []
        for request in requests:
            self.prompts.append(request.prompt)
            made, text = (), "ok"
            if request.policy == "solver":
                last = request.prompt[-1]
                made = (ASKED,) if last.role == "user" else ()
                text = last.content if last.role == "tool" else ""
            one = Completion(request.policy, text, "stop", tokens=(1,), logprobs=(0.0,), calls=made)
            found.append(Sampled((1,), (one,) * len(request.keys)))
        return found


def test_a_whole_game_has_a_round_for_each_round_of_calls():
    team = Team(
        {"solver": ("solver",), "checker": ("checker",)},
        {"solver": Decode(), "checker": Decode()},
        system={"solver": "Be exact."},
    )
    plan = Plan(samples=(2, 1, 1, 1))
    (episode,) = run(collect(game(), [Task("t", {})], Scripted(), team, plan, 0, "x"))
    first = episode.root
    assert len(first.outcomes) == 2
    second = first.outcomes[1].next
    assert list(second.prompts) == ["solver"]
    system, question = second.prompts["solver"][:2]
    assert (system.role, system.content) == ("system", "Be exact.")
    assert question.tools
    third = second.outcomes[0].next
    assert second.outcomes[0].rewards == {"solver": 1.0, "checker": 1.0}
    assert [one.samples["solver"][0].calls for one in (first, second, third)] == [
        (ASKED,),
        (),
        (ASKED,),
    ]
    assert third.outcomes[0].next.outcomes[0].end == "done"
