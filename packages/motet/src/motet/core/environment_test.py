"""The base class of environments."""

import asyncio
import inspect

import pytest

from motet.core import Environment, Task
from motet.errors import NotProvided

TASK = Task("t", {})
CALLS = {
    Environment.tasks: ("train",),
    Environment.task: ({},),
    Environment.demonstrate: (TASK, 0),
    Environment.solve: (None, 0),
    Environment.convention: (TASK, "a", "text"),
    Environment.alone: (),
    Environment.answer: (TASK, {}),
    Environment.question: (TASK,),
    Environment.grade: (TASK, "text"),
    Environment.drawing: (TASK, {}),
    Environment.chat_task: ("text",),
    Environment.chat_answer: (TASK, {}),
}
"""Every optional method, with arguments."""
OPTIONAL = pytest.mark.parametrize("method", CALLS, ids=lambda method: method.__name__)


class Bare(Environment):
    agents = ("a",)

    async def start(self, task, seed): ...
    def observe(self, state): ...
    async def step(self, state, replies, seed): ...


def test_every_public_method_is_required_or_closes_or_asks_or_is_optional():
    methods = {name for name, value in vars(Environment).items() if inspect.isfunction(value)}
    public = {name for name in methods if not name.startswith("_")}
    optional = {method.__name__ for method in CALLS}
    assert public == optional | {"start", "observe", "step", "close", "provides"}
    assert Environment.__abstractmethods__ == {"start", "observe", "step"}


@pytest.mark.parametrize("left_out", ["start", "observe", "step"])
def test_an_environment_without_a_required_method_cannot_be_made(left_out):
    kept = {name: value for name, value in vars(Bare).items() if name != left_out}
    with pytest.raises(TypeError, match=f"abstract method '?{left_out}"):
        type("Half", (Environment,), kept)()


def test_the_defaults_promise_nothing():
    bare = Bare()
    assert (bare.branches, bare.labels, bare.most_turns) == (False, (), None)
    assert (bare.says_right, bare.rewards_at_end, bare.Options) == (False, False, None)
    assert asyncio.run(bare.close(None)) is None


async def called(environment, method):
    result = method(environment, *CALLS[method])
    return await result if inspect.iscoroutine(result) else result


@OPTIONAL
def test_a_method_that_is_not_overridden_is_not_provided_and_says_so(method):
    name = method.__name__
    assert not Bare().provides(method)
    with pytest.raises(
        NotProvided,
        match=rf"^Bare does not define {name}: .*provides\(Environment.{name}\) is true",
    ):
        asyncio.run(called(Bare(), method))


@OPTIONAL
def test_a_method_is_provided_by_a_subclass_or_a_mixin_until_it_is_withdrawn(method):
    own = {method.__name__: lambda self, *given: given}
    kind = type("Own", (Bare,), own)
    mixed = type("Mixed", (type("Mixin", (), own), Bare), {})
    withdrawn = type("Withdrawn", (kind,), {method.__name__: method})
    inherits = type("Inherits", (kind,), {})
    provided = [one().provides(method) for one in (kind, inherits, mixed, withdrawn)]
    assert provided == [True, True, True, False]
    others = [other for other in CALLS if other is not method]
    assert not any(kind().provides(other) for other in others)
