"""verifiers evaluates an environment of Motet with a server of chat completions on this machine."""

import asyncio
import importlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import motet
from motet.errors import ConfigError
from motet_foreign.for_verifiers import as_plugin
from tests.fixtures.chat_server import ChatServer
from tests.fixtures.http_servers import running

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(find_spec("verifiers") is None, reason="verifiers is not installed")


def saying(text, status=200):
    """Return an answer of a server that says always the same."""
    said = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    counted = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps({**head, "choices": [said], "usage": counted}).encode()
    return lambda request: (status, body)


def evaluated(taskset, url, tasks=1):
    """Play tasks of a taskset with verifiers; return the episodes."""
    import verifiers.v1 as vf

    async def played():
        env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": taskset}}))
        client = vf.EvalClientConfig(base_url=url, api_key_var="KEY_OF_TEST")
        context = vf.ModelContext(model="m", client=client)
        async with env.serving():
            return [
                await env.run_slot(env.slots(task)[0], context) for task in env.taskset.take(tasks)
            ]

    return asyncio.run(played())


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """Return a function that writes a module: (name, text)."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KEY_OF_TEST", "no secret")
    before = set(sys.modules)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) in map(str, tmp_path.glob("*.py")):
            del sys.modules[name]


def test_the_module_of_the_page_is_evaluated(page_block, importable):
    own = (ROOT / "docs" / "own_environment.md").read_text()
    importable("own_environment", own.partition("```python\n")[2].partition("```")[0])
    importable("same_number_v1", page_block("python", "Your environment under verifiers"))
    with running(ChatServer(saying("3"))) as server:
        episodes = evaluated("same_number_v1", server.url, tasks=2)
    assert [episode.ok for episode in episodes] == [True, True]
    traces = [trace for episode in episodes for trace in episode.traces]
    assert [trace.agent.name for trace in traces] == ["left", "right"] * 2
    assert [(trace.reward, trace.metrics) for trace in traces] == [(1.0, {"success": 1.0})] * 4
    assert server.asked[0]["messages"] == [{"role": "user", "content": "left, a number up to 3: "}]


TWO_TURNS = """
import motet
from motet_foreign.for_verifiers import as_plugin

class Counted(motet.Environment):
    agents = ("a", "b")

    def tasks(self, split):
        return [motet.Task(split, {})]

    async def start(self, task, seed):
        return []

    def observe(self, state):
        return {"ab"[len(state)]: [{"role": "system", "content": "Count."},
                                   {"role": "user", "content": str(state)}]}

    async def step(self, state, replies, seed):
        state = [*state, *(reply.text for reply in replies.values())]
        done = len(state) == 2
        return motet.Transition(state, {"a": 0.25, "b": -1.0}, done, success=0.5 if done else None)

Games, Play, Chat = as_plugin(Counted())
__all__ = ["Games", "Play", "Chat"]
"""


def test_a_trace_has_the_whole_return_of_its_agent(importable):
    importable("counted_v1", TWO_TURNS)
    with running(ChatServer(saying("one"))) as server:
        (episode,) = evaluated("counted_v1", server.url)
    assert [(trace.agent.name, trace.reward) for trace in episode.traces] == [("a", 0.5), ("b", -2)]
    assert {trace.metrics["success"] for trace in episode.traces} == {0.5}
    assert server.asked[1]["messages"] == [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "['one']"},
    ]


def test_an_agent_without_an_answer_ends_the_episode_with_an_error(importable):
    importable("counted_v1", TWO_TURNS)
    with running(ChatServer(saying("one", status=400))) as server:
        (episode,) = evaluated("counted_v1", server.url)
    assert not episode.ok
    assert "a gave no answer" in episode.errors[-1].message


def test_an_environment_without_tasks_of_its_own_is_refused():
    class Bare(motet.Environment):
        agents = ("a",)

        def start(self, task, seed):
            return None

        def observe(self, state):
            return {"a": "?"}

        def step(self, state, replies, seed):
            return motet.Transition(state, {"a": 0.0}, True, success=0.0)

    with pytest.raises(ConfigError, match="Bare has no tasks of its own; expected one with tasks"):
        as_plugin(Bare())
