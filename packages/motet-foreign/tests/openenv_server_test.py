"""A real server of OpenEnv on this machine: who acts, what is paid, and what becomes a fault."""

import asyncio

import pytest

import motet
from motet.core import Reply, Team
from motet.errors import ConfigError, EnvironmentFault
from motet.rollout.play import check_plan
from motet.settings import Decode, Plan
from motet_foreign.openenv_server import OpenEnv

pytest.importorskip("openenv", reason="openenv is not installed")
TWINS = {"agents": ("a", "b"), "acts": "player", "prompt": "prompt"}


def made(url, **changed):
    return OpenEnv(OpenEnv.Options(url=url, **(TWINS | changed)))


async def played(game, answer):
    """Play the first task to its end; returns who acted, and the last Transition."""
    acted, state = [], await game.start(game.tasks("train")[0], 0)
    try:
        while True:
            ((agent, prompt),) = game.observe(state).items()
            acted.append(agent)
            moved = await game.step(state, {agent: Reply(answer(prompt))}, 0)
            if moved.done:
                return acted, moved
            state = moved.state
    finally:
        await game.close(state)


def asked(prompt):
    """Return the number that the server asks for."""
    return prompt[-1].content.removeprefix("Say ").removesuffix(": ")


def test_both_earn_the_reward_of_the_last_step(twins_server):
    acted, last = asyncio.run(played(made(twins_server), asked))
    assert (acted, last.rewards, last.success) == (["a", "b"], {"a": 1.0, "b": 1.0}, 1.0)
    _, last = asyncio.run(played(made(twins_server), lambda prompt: "none"))
    assert (last.rewards, last.success) == ({"a": 0.0, "b": 0.0}, 0.0)


def test_without_a_field_for_it_agents_act_in_their_order_and_read_json(twins_server):
    acted, last = asyncio.run(
        played(
            made(twins_server, agents=("b", "a"), acts="", prompt=""),
            lambda prompt: prompt[0].content,
        )
    )
    assert acted == ["b", "a"]
    assert not last.success


def test_it_keeps_the_rules_of_environments(twins_server):
    assert motet.check_environment(made(twins_server))


def test_a_field_that_is_not_there_is_named(twins_server):
    for changed, said in (
        ({"prompt": "text"}, "no field 'text'; it has metadata, prompt, player"),
        ({"agents": ("c",)}, "player of the observation is 'a'; expected one of .* c$"),
        ({"rewards": "player"}, "player of the observation is 'b'; expected the reward of each"),
    ):
        with pytest.raises(EnvironmentFault, match=said):
            asyncio.run(played(made(twins_server, **changed), asked))


def test_an_error_of_the_server_is_a_fault_that_names_openenv(twins_server):
    with pytest.raises(EnvironmentFault, match="openenv raised RuntimeError: Server error") as told:
        asyncio.run(played(made(twins_server, answer="no_such_field"), asked))
    assert (told.value.cause, told.value.may_pass) == ("openenv.RuntimeError", False)


def test_a_server_that_is_not_there_may_come_back():
    with pytest.raises(EnvironmentFault, match="openenv raised ConnectionError") as told:
        asyncio.run(played(made("http://127.0.0.1:9"), asked))
    assert (told.value.cause, told.value.may_pass) == ("openenv.ConnectionError", True)


def test_a_tree_is_refused_before_anything_is_asked():
    team = Team({"a": ("p",), "b": ("p",)}, {"a": Decode(), "b": Decode()})
    check_plan(Plan(samples=(4, 1)), made("http://127.0.0.1:9"), team)
    with pytest.raises(ConfigError, match=r"OpenEnv has branches = False: use samples \[4, 1\]"):
        check_plan(Plan(samples=(4, 2)), made("http://127.0.0.1:9"), team)
