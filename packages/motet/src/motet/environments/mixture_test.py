"""A mixture plays one of its environments at a time, and is what they have in common."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from motet.core import (
    ABILITIES,
    Chats,
    Demonstrates,
    Demonstration,
    Environment,
    NamesConventions,
    OwnsTasks,
    PlaysAlone,
    RanksTasks,
    Reply,
    Solves,
    Task,
    Transition,
)
from motet.environments.centralized import Centralized
from motet.environments.check import check_environment
from motet.environments.mixture import Mixture, MixtureState
from motet.environments.relay import Relay
from motet.errors import ConfigError, EnvironmentFault
from tests.fixtures.messages import facts


class Echo(Environment[str]):
    """Two agents must say a word. Each is paid for its own answer."""

    agents = ("a", "c")
    branches = True
    most_turns = 1

    def __init__(self, alone: str = "solo") -> None:
        self._alone, self.closed = alone, list[str]()

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split} {word}", {"word": word}) for word in ("no", "yes", "so")]

    def level(self, task: Task) -> int:
        return len(task.fields["word"])

    async def start(self, task: Task, seed: int) -> str:
        assert task.environment == ""
        return str(task.fields["word"])

    def observe(self, state: str) -> dict[str, str]:
        return dict.fromkeys(self.agents, f"say {state}: ")

    async def step(self, state: str, replies: Mapping[str, Reply], seed: int) -> Transition:
        rewards = {agent: float(replies[agent].text == state) for agent in self.agents}
        said = sum(len(reply.text) for reply in replies.values())
        return Transition(
            state, rewards, True, {"length": said}, success=min(rewards.values()), bonus={"c": 0.5}
        )

    async def close(self, state: str) -> None:
        self.closed.append(state)

    def solve(self, state: str, seed: int) -> dict[str, str]:
        return dict.fromkeys(self.agents, state)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        return Demonstration("c", f"say {task.fields['word']}: ", task.fields["word"])

    def convention(self, task: Task, agent: str, text: str) -> str:
        return "short" if len(text) < 3 else "long"

    def chat_task(self, text: str) -> Task:
        return Task(text, {"word": text})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        return texts["a"]

    def alone(self) -> Environment[Any]:
        made = Echo()
        made.agents = (self._alone,)
        return made


def relay() -> Relay:
    return Relay(Relay.Options(digits=1))


@pytest.fixture
def mixture() -> Mixture:
    return Mixture({"relay": relay(), "echo": Echo()}, {"relay": 2.0, "echo": 1.0})


def test_a_mixture_keeps_the_rules_of_environments(mixture):
    assert check_environment(mixture).rules


def test_its_agents_are_those_of_all_and_its_attributes_what_holds_for_all(mixture):
    assert mixture.agents == ("a", "b", "c")
    assert (mixture.branches, mixture.most_turns) == (True, 2)
    assert mixture.rewards_at_end  # games of one and of two turns
    assert dict(mixture.task_weights) == {"relay": 2.0, "echo": 1.0}
    live = Echo()
    live.branches, live.most_turns = False, None
    both = Mixture({"relay": relay(), "live": live})
    assert (both.branches, both.most_turns) == (False, None)


def test_tasks_have_the_name_of_their_environment_and_come_in_turn(mixture):
    held_out = mixture.tasks("eval")
    assert [task.environment for task in held_out[:7]] == ["relay", "echo"] * 3 + ["relay"]
    assert held_out[1] == Task("echo/eval no", {"word": "no"}, "echo")
    assert len(held_out) == 20 + 3


def play(mixture: Mixture, task: Task, replies: Mapping[str, str]) -> Transition:
    async def run() -> Transition:
        state = await mixture.start(task, 0)
        assert set(mixture.observe(state)) == set(replies)
        moved = await mixture.step(state, {k: Reply(v) for k, v in replies.items()}, 0)
        await mixture.close(state)
        return moved.checked(mixture.agents)

    return asyncio.run(run())


def test_an_agent_that_an_environment_lacks_gets_the_mean_reward_of_the_others(mixture):
    moved = play(mixture, mixture.tasks("train")[1], {"a": "no", "c": "yes"})
    assert moved.state == MixtureState("echo", "no")
    assert moved.rewards == {"a": 1.0, "b": 0.5, "c": 0.0}
    assert (moved.success, moved.bonus) == (0.0, {"c": 0.5})
    assert moved.metrics == {"echo/length": 5.0}
    assert mixture.environments["echo"].closed == ["no"]


def test_a_task_of_no_environment_is_a_fault(mixture):
    with pytest.raises(EnvironmentFault, match=facts("task x … '' … relay, echo")):
        asyncio.run(mixture.start(Task("x", {}), 0))


def test_its_abilities_are_those_that_all_environments_have(mixture):
    assert {ability for ability in ABILITIES if isinstance(mixture, ability)} == {
        OwnsTasks, Demonstrates, Solves, NamesConventions, Chats,
    }  # fmt: skip
    echoes = Mixture({"one": Echo(), "two": Echo()})
    assert isinstance(echoes, RanksTasks)
    assert isinstance(echoes, PlaysAlone)
    assert echoes.level(echoes.tasks("train")[2]) == 3
    assert isinstance(Centralized(mixture), Solves)


def test_optional_methods_ask_the_environment_of_a_task(mixture):
    task = mixture.tasks("train")[1]
    assert mixture.demonstrate(task, 0).text == "no"
    assert mixture.solve(MixtureState("echo", "hm"), 0) == {"a": "hm", "c": "hm"}
    assert mixture.convention(task, "a", "hmm") == "echo/long"
    asked = mixture.chat_task("relay: 1 2")
    assert asked == Task("relay/1-2", {"a": "1", "b": "2"}, "relay")
    assert mixture.chat_answer(asked, {"a": "12", "b": "12"}) == "12"
    with pytest.raises(ConfigError, match=facts("got '1 2' … relay: TEXT … relay, echo")):
        mixture.chat_task("1 2")


def test_one_agent_plays_all_environments_if_it_has_one_name():
    alone = Mixture({"one": Echo(), "two": Echo()}, {"one": 1, "two": 3}).alone()
    assert alone.agents == ("solo",)
    assert dict(alone.task_weights) == {"one": 1, "two": 3}
    with pytest.raises(ConfigError, match=facts("me, solo … one name")):
        Mixture({"one": Echo(), "two": Echo("me")}).alone()


def test_tasks_that_are_given_replace_those_of_an_environment():
    own = {"train": [Task("x", {"word": "x"})]}
    mixture = Mixture({"one": Echo(), "two": Echo()}, tasks={"two": own})
    names = [task.id for task in mixture.tasks("train")]
    assert names == ["one/train no", "two/x", "one/train yes", "one/train so"]
    assert {task.environment for task in mixture.tasks("eval")} == {"one"}
    with pytest.raises(ConfigError, match=facts("two … no training tasks … data.train")):
        Mixture({"one": Echo(), "two": Echo()}, tasks={"two": {}}).tasks("train")


class Armed(Echo):
    def __init__(self, tool: Any = None, default: str | None = None) -> None:
        super().__init__()
        self.tools = {} if tool is None else {"a": [tool]}
        self.defaults = {} if default is None else {"a": default}


def test_tools_and_defaults_of_an_agent_are_common():
    both = Mixture({"one": Armed(len, "hm"), "two": Armed(len, "hm")})
    assert (both.tools, both.defaults) == ({"a": [len]}, {"a": "hm"})
    with pytest.raises(ConfigError, match=facts("one and two … tools … agent a")):
        Mixture({"one": Armed(len), "two": Armed()})
    with pytest.raises(ConfigError, match=facts("one and two … defaults … agent a")):
        Mixture({"one": Armed(), "two": Armed(default="hm")})


@pytest.mark.parametrize(
    ("environments", "weights", "said"),
    [
        ({}, {}, "no environments"),
        ({"a b": Echo()}, {}, "'a b' … letters"),
        ({"right": Echo()}, {}, "'right' … right, personal"),
        ({"one": Mixture({"x": Echo()})}, {}, "environment.of.one … within a mixture"),
        ({"one": "echo"}, {}, "environment.of.one … str … motet.Environment"),
        ({"one": Echo()}, {"on": 1.0}, "weights names 'on' … environments are one"),
        ({"one": Echo()}, {"one": 0.0}, "weights.one is 0.0 … above 0"),
        ({"one": Echo()}, {"one": -1.0}, "weights.one is -1.0 … above 0"),
        ({"one": Echo(), "two": Echo()}, {"one": 1.0}, "none for two … no weights"),
    ],
)
def test_wrong_names_and_weights_are_one_line(environments, weights, said):
    with pytest.raises(ConfigError, match=facts(said)) as raised:
        Mixture(environments, weights)
    assert "\n" not in str(raised.value)
