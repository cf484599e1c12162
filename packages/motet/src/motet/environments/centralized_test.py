import asyncio
import time

import pytest

from motet.core import (
    Chat,
    Demonstration,
    Environment,
    Grades,
    Message,
    PlaysAlone,
    Reply,
    Solves,
    Task,
    Transition,
)
from motet.environments.centralized import Centralized
from motet.environments.check import check_environment
from motet.environments.debate_tiny import TinyDebate
from motet.environments.relay import Relay
from motet.errors import ConfigError
from motet_tasks.minecraft.house_build import HouseBuild
from motet_tasks.minecraft.str_build import StrBuild
from tests.fixtures.messages import facts

TASK = Task("12-34", {"a": "12", "b": "34"})


class TwoTurns(Environment):
    """Both agents act at turn 1, only `b` at turn 2. Rewards are the lengths of the texts."""

    agents = ("a", "b")
    branches = True
    says_right = True

    async def start(self, task, seed):
        return 0

    def observe(self, state):
        return {"a": "A?", "b": "B?"} if state == 0 else {"b": "B again?"}

    async def step(self, state, replies, seed):
        self.seen = {agent: reply.text for agent, reply in replies.items()}
        rewards = {agent: float(len(self.seen.get(agent, ""))) for agent in self.agents}
        right, bonus = {"a": True, "b": False}, {"a": -1.0}
        done = state == 1
        return Transition(state + 1, rewards, done, success=True, right=right, bonus=bonus)

    async def grade(self, task, text):
        raise AssertionError

    def alone(self):
        return self


def play(environment, *texts, stop="stop"):
    async def run():
        state = await environment.start(TASK, 0)
        for text in texts:
            moved = await environment.step(state, {"joint": Reply(text, stop)}, 0)
            state = moved.state
        return moved

    return asyncio.run(run())


def test_sections_are_the_agents_completions_and_the_reward_is_their_mean():
    inner = TwoTurns()
    moved = play(
        Centralized(inner), "said before <agent_0>\n abc \n</agent_0> <agent_1>12345</agent_1>"
    )
    assert inner.seen == {"a": "abc", "b": "12345"}
    assert moved.rewards == {"joint": (3.0 + 5.0 - 1.0) / 2}, "with the personal penalty of a"
    assert moved.terms == {"success": 1.0}, "who was right is about agents that are not there"
    assert not moved.done


def test_only_those_who_act_are_asked_and_heard():
    inner = TwoTurns()
    environment = Centralized(inner)
    state = asyncio.run(environment.start(TASK, 0))
    assert environment.observe(state) == {"joint": "A?B?"}
    moved = play(environment, "", "<agent_0>no</agent_0><agent_1>yes</agent_1>")
    assert inner.seen == {"b": "yes"}
    assert moved.done
    assert moved.rewards == {"joint": (3.0 - 1.0) / 2}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("no tag", {"a": "", "b": ""}),
        ("<agent_0>cut off", {"a": "", "b": ""}),
        ("< AGENT_1 >x< / Agent_1 >", {"a": "", "b": "x"}),
        ("<agent_0>x</agent_0><agent_0>y</agent_0>", {"a": "x", "b": ""}),
        ("</agent_0><agent_0>x</agent_0>", {"a": "x", "b": ""}),
    ],
)
def test_a_missing_section_is_an_empty_completion(text, seen):
    inner = TwoTurns()
    play(Centralized(inner), text)
    assert inner.seen == seen


def test_sections_are_found_in_linear_time():
    environment = Centralized(TwoTurns())
    for hostile in ("<agent_0>" * 100_000, "<" + " " * 1_000_000, "<agent_0>" + "< / " * 200_000):
        begun = time.process_time()
        assert environment.section(hostile, "a") == ""
        assert time.process_time() - begun < 5.0, "a quadratic search takes minutes"


class Chats(TwoTurns):
    def observe(self, state):
        first: Chat = (Message("system", "You write."), Message("user", "A?"))
        return {"a": first, "b": (Message("user", "B?"),)}


def test_chats_become_one_user_message_with_every_assignment_and_the_form():
    environment = Centralized(Chats(), tags={"a": "auxiliary", "b": "main"})
    (message,) = environment.observe(asyncio.run(environment.start(TASK, 0)))["joint"]
    assert message.role == "user"
    for part in (
        "Assignment of auxiliary:\nsystem: You write.\nuser: A?",
        "Assignment of main:\nB?",
        "<auxiliary>\n...\n</auxiliary>\n<main>\n...\n</main>",
    ):
        assert part in message.content


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"a": "x"}, "names a … tag … a, b"),
        ({"a": "x", "b": "x y"}, "tags.b … 'x y' … letters, digits and _"),
        ({"a": "x", "b": "X"}, "x, X … different tags"),
    ],
)
def test_bad_tags_are_refused(tags, message):
    with pytest.raises(ConfigError, match=facts(message)):
        Centralized(TwoTurns(), tags=tags)


def test_it_provides_what_the_game_provides_except_what_is_about_one_agent():
    environment = Centralized(TwoTurns())
    assert not isinstance(environment, PlaysAlone)
    assert not isinstance(environment, Grades)
    assert not isinstance(environment, Solves)
    assert isinstance(Centralized(Relay(Relay.Options())), Solves)
    assert not environment.says_right


@pytest.mark.parametrize(
    "inner",
    [
        Relay(Relay.Options()),
        TinyDebate(TinyDebate.Options()),
        StrBuild(StrBuild.Options()),
        HouseBuild(HouseBuild.Options()),
    ],
    ids=["relay", "debate", "str_build", "house_build"],
)
def test_embedded_games_keep_the_rules_and_solutions_succeed(inner):
    environment = Centralized(inner)
    tasks = environment.tasks("eval")[:3]
    assert len(check_environment(environment, tasks).rules) > 10

    async def solved(task):
        state, done = await environment.start(task, 0), False
        while not done:
            replies = {"joint": Reply(environment.solve(state, 0)["joint"])}
            moved = await environment.step(state, replies, 0)
            state, done = moved.state, moved.done
        return moved.terms["success"]

    assert [asyncio.run(solved(task)) for task in tasks] == [1.0, 1.0, 1.0]


def test_a_demonstration_has_a_section_of_every_agent_for_one_turn():
    inner = Relay(Relay.Options())
    environment = Centralized(inner, tags={"a": "a", "b": "b"})
    turns = set()
    for seed in range(20):
        shown = environment.demonstrate(inner.tasks("train")[0], seed)
        assert isinstance(shown, Demonstration)
        assert shown.agent == "joint"
        parts = [environment.section(shown.text, agent) for agent in ("a", "b")]
        assert all(parts)
        assert environment.joined(dict(zip(("a", "b"), parts, strict=True))) == shown.text
        turns.add(shown.turn)
    assert turns == {0, 1}
