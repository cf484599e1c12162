"""The base class of environments."""

import asyncio
import inspect

import pytest

from motet.core import Environment


class Bare(Environment):
    agents = ("a",)

    async def start(self, task, seed): ...
    def observe(self, state): ...
    async def step(self, state, replies, seed): ...


def test_the_base_class_has_only_what_every_game_needs():
    methods = {name for name, value in vars(Environment).items() if inspect.isfunction(value)}
    public = {name for name in methods if not name.startswith("_")}
    assert public == {"start", "observe", "step", "close"}
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
