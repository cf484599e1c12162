import asyncio
import inspect
import operator

import pytest

from motet.core import (
    ABILITIES,
    Demonstration,
    Drawing,
    Environment,
    Grade,
    Reply,
    Task,
    Transition,
)
from motet.environments.rewarded import Rewarded
from motet_compare.messages import MessageShuffle
from motet_compare.protocols import Discussion, Pipeline

TASK = Task("t", {})


class Bare(Environment):
    agents = ("a", "b")
    branches = True

    async def start(self, task, seed):
        return "started"

    def observe(self, state):
        return dict.fromkeys(self.agents, "?")

    async def step(self, state, replies, seed):
        return Transition(state, dict.fromkeys(self.agents, 0.0), True, success=1.0)


class Full(Bare):
    """Every optional method returns its arguments, every attribute differs from its default."""

    labels = ("yes", "no")
    most_turns = 3
    says_right = True
    rewards_at_end = True

    def __init__(self):
        self.closed = []

    async def close(self, state):
        self.closed.append(state)

    def tasks(self, split):
        return [Task(split, {})]

    def task(self, row):
        return Task("row", row)

    def demonstrate(self, task, seed):
        return Demonstration("a", task.id, str(seed))

    def solve(self, state, seed):
        return {"a": state, "b": str(seed)}

    def level(self, task):
        return len(task.id)

    def convention(self, task, agent, text):
        return f"{task.id} {agent} {text}"

    def alone(self):
        return Bare()

    def answer(self, task, texts):
        return texts["a"]

    def drawing(self, task, texts):
        return Drawing([{task.id: [[texts["a"]]]}])

    def chat_task(self, text):
        return Task(text, {})

    def chat_answer(self, task, texts):
        return f"{task.id}: {texts['a']}"

    def question(self, task):
        return f"{task.id}?"

    async def grade(self, task, text):
        return Grade(text, True)


CALLS = {
    "tasks": ("train",),
    "task": ({"x": 1},),
    "level": (TASK,),
    "demonstrate": (TASK, 7),
    "convention": (TASK, "a", "text"),
    "answer": (TASK, {"a": "x"}),
    "drawing": (TASK, {"a": "x"}),
    "chat_task": ("a question",),
    "chat_answer": (TASK, {"a": "x"}),
    "question": (TASK,),
    "grade": (TASK, "text"),
}
"""The optional methods that every wrapper forwards unchanged, with arguments."""
WRAPPERS = {
    "rewarded": lambda inner: Rewarded(inner, lambda task, texts: 1.0),
    "shuffle": lambda inner: MessageShuffle(inner, 0, {"t": {"a": Reply("x"), "b": Reply("y")}}),
    "pipeline": Pipeline,
    "discussion": Discussion,
}
EVERY_WRAPPER = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


def call(environment, method):
    result = operator.methodcaller(method, *CALLS[method])(environment)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@EVERY_WRAPPER
@pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)
def test_a_wrapper_has_the_abilities_of_the_wrapped_environment(wrap, ability):
    for method in ability.methods():
        gives_up = type("GivesUp", (Full,), {method: None})
        found = [isinstance(wrap(kind()), ability) for kind in (Full, Bare, gives_up)]
        assert found == [True, False, False]
        others = [one for one in ABILITIES if one is not ability]
        assert all(isinstance(wrap(gives_up()), other) for other in others)


@EVERY_WRAPPER
def test_a_wrapper_that_lacks_an_ability_is_still_of_its_class(wrap):
    whole, bare = wrap(Full()), wrap(Bare())
    assert isinstance(bare, type(whole))
    assert (type(bare).__name__, type(bare).__module__) == (
        type(whole).__name__,
        type(whole).__module__,
    )
    assert type(wrap(Bare())) is type(bare), "one class for all of them"
    twice = Rewarded(bare, lambda task, texts: 1.0)
    assert not any(isinstance(twice, ability) for ability in ABILITIES)


@EVERY_WRAPPER
@pytest.mark.parametrize("method", CALLS)
def test_a_call_of_an_optional_method_reaches_the_wrapped_environment(wrap, method):
    assert call(wrap(Full()), method) == call(Full(), method)


@EVERY_WRAPPER
def test_the_wrapped_environment_solves_and_closes_its_own_state(wrap):
    inner = Full()
    environment = wrap(inner)
    state = asyncio.run(environment.start(TASK, 0))
    assert environment.solve(state, 7) == {"a": "started", "b": "7"}
    asyncio.run(environment.close(state))
    assert inner.closed == ["started"]


@EVERY_WRAPPER
def test_the_game_of_one_agent_is_that_of_the_wrapped_environment(wrap):
    alone = wrap(Full()).alone()
    found = alone.environment if isinstance(alone, Rewarded) else alone
    assert type(found) is Bare


@EVERY_WRAPPER
def test_a_wrapper_shows_the_labels_and_the_agents(wrap):
    environment = wrap(Full())
    assert (environment.labels, environment.agents, environment.branches) == (
        ("yes", "no"),
        ("a", "b"),
        True,
    )
    assert wrap(Bare()).labels == ()


@pytest.mark.parametrize(
    ("name", "most_turns", "says_right", "rewards_at_end"),
    [
        ("rewarded", 3, True, False),
        ("shuffle", 3, True, True),
        ("pipeline", 6, False, True),
        ("discussion", 6, False, True),
    ],
)
def test_a_wrapper_promises_only_what_still_holds(name, most_turns, says_right, rewards_at_end):
    environment = WRAPPERS[name](Full())
    assert environment.most_turns == most_turns
    assert (environment.says_right, environment.rewards_at_end) == (says_right, rewards_at_end)
    bare = WRAPPERS[name](Bare())
    assert (bare.most_turns, bare.says_right, bare.rewards_at_end) == (None, False, False)
