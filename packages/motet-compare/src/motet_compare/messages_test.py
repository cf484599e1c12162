import asyncio

import pytest

from motet.core import Environment, Episode, Reply, Task
from motet.environments.check import check_environment
from motet.environments.debate_tiny import TinyDebate
from motet.environments.registry import resolve
from motet.environments.relay import Relay
from motet.errors import ConfigError, EnvironmentFault
from motet_compare.messages import MessageShuffle, blanked, shifted, shuffled
from tests.fixtures.finished_games import BROKEN, outcome, round_
from tests.fixtures.messages import facts

TASK = Task("12-34", {"a": "12", "b": "34"})
DONORS = {"12-34": {"a": Reply("aa"), "b": Reply("bb")}}


def relay():
    return Relay(Relay.Options())


class Talk(Environment):
    """Three turns in which every agent reads all replies. The state is the list of replies."""

    agents = ("a", "b", "c")
    branches = True

    async def start(self, task, seed):
        return ()

    def observe(self, state):
        return dict.fromkeys(self.agents, "say:" + "|".join(state))

    async def step(self, state, replies, seed):
        from motet.core import Transition

        said = (*state, "".join(replies[agent].text for agent in self.agents))
        return Transition(
            said,
            dict.fromkeys(self.agents, 0.0),
            len(said) == 3,
            success=float(said[0] == "123"),
        )


async def prompts_and_end(environment, task, *turns):
    state, prompts = await environment.start(task, 0), []
    for replies in turns:
        prompts.append(dict(environment.observe(state)))
        transition = await environment.step(
            state, {agent: Reply(text) for agent, text in replies.items()}, 0
        )
        state = transition.state
    return prompts, transition


def test_each_agent_hears_the_others_of_another_problem_and_its_own_message():
    environment = MessageShuffle(relay(), 0, DONORS)
    prompts, last = asyncio.run(
        prompts_and_end(environment, TASK, {"a": "x", "b": "y"}, {"a": "1234", "b": "1234"})
    )
    assert prompts == [{"a": "A12:", "b": "B34:"}, {"a": "A12:x/bb=", "b": "B34:y/aa="}]
    assert last.terms["success"] == 1.0


def test_what_was_heard_stays_heard_and_what_was_said_is_graded():
    donors = {"t": {"a": Reply("7"), "b": Reply("8"), "c": Reply("9")}}
    turns = [
        {"a": "1", "b": "2", "c": "3"},
        {"a": "4", "b": "5", "c": "6"},
        {"a": "", "b": "", "c": ""},
    ]
    prompts, last = asyncio.run(
        prompts_and_end(MessageShuffle(Talk(), 0, donors), Task("t", {}), *turns)
    )
    assert prompts[1] == {"a": "say:189", "b": "say:729", "c": "say:783"}
    assert prompts[2] == {"a": "say:189|456", "b": "say:729|456", "c": "say:783|456"}
    assert last.terms["success"] == 1.0


def test_a_blank_message_is_read_in_place_of_each_partner_and_the_real_one_is_graded():
    prompts, last = asyncio.run(
        prompts_and_end(blanked(relay(), 0), TASK, {"a": "x", "b": "y"}, {"a": "1234", "b": "1234"})
    )
    assert prompts == [{"a": "A12:", "b": "B34:"}, {"a": "A12:x/=", "b": "B34:y/="}]
    assert last.terms["success"] == 1.0
    turns = [dict(zip("abc", texts, strict=True)) for texts in ("123", "456", "789")]
    prompts, last = asyncio.run(prompts_and_end(blanked(Talk(), 1), Task("t", {}), *turns))
    assert prompts[1] == dict.fromkeys("abc", "say:123")
    assert prompts[2] == {"a": "say:123|4", "b": "say:123|5", "c": "say:123|6"}
    assert last.terms["success"] == 1.0


def test_a_later_turn_can_be_the_shuffled_one():
    donors = {"t": {"a": Reply("7"), "b": Reply("8"), "c": Reply("9")}}
    turns = [
        {"a": "1", "b": "2", "c": "3"},
        {"a": "4", "b": "5", "c": "6"},
        {"a": "", "b": "", "c": ""},
    ]
    prompts, _ = asyncio.run(
        prompts_and_end(MessageShuffle(Talk(), 1, donors), Task("t", {}), *turns)
    )
    assert prompts[1] == dict.fromkeys("abc", "say:123")
    assert prompts[2] == {"a": "say:123|489", "b": "say:123|759", "c": "say:123|786"}


def test_a_reader_who_believes_what_it_hears_now_fails():
    environment = relay()
    said = {task.id: {"a": "", "b": ""} for task in environment.tasks("eval")[:5]}
    for task in environment.tasks("eval")[:5]:
        state = asyncio.run(environment.start(task, 0))
        said[task.id] = {agent: Reply(text) for agent, text in environment.solve(state, 0).items()}
    letters = environment.codes[0]

    def believe(prompt):
        own, heard = prompt[1:3], "".join(str(letters.index(letter)) for letter in prompt[7:9])
        return own + heard if prompt[0] == "A" else heard + own

    async def success(game, task):
        state = await game.start(task, 0)
        state = (await game.step(state, said[task.id], 0)).state
        replies = {agent: Reply(believe(prompt)) for agent, prompt in game.observe(state).items()}
        return (await game.step(state, replies, 0)).terms["success"]

    tasks = environment.tasks("eval")[:5]
    assert [asyncio.run(success(environment, task)) for task in tasks] == [1.0] * 5
    moved = MessageShuffle(environment, 0, shifted(said))
    assert [asyncio.run(success(moved, task)) for task in tasks] == [0.0] * 5


def test_donors_are_the_replies_on_the_next_task():
    said = {name: {"a": Reply(name)} for name in "xyz"}
    assert shifted(said) == {"x": said["y"], "y": said["z"], "z": said["x"]}
    with pytest.raises(ConfigError, match="got replies on 1 tasks, expected at least 2"):
        shifted({"x": said["x"]})


def test_donors_in_a_mixture_are_of_the_same_environment():
    said = {name: {"a": Reply(name)} for name in "wxyz"}
    found = shifted(said, {"w": "one", "x": "two", "y": "one", "z": "two"})
    assert found == {"w": said["y"], "y": said["w"], "x": said["z"], "z": said["x"]}
    with pytest.raises(ConfigError, match="got replies on 1 tasks, expected at least 2"):
        shifted(said, {"w": "one"})


def test_missing_donors_are_faults():
    async def run(donors):
        environment = MessageShuffle(relay(), 0, donors)
        state = await environment.start(TASK, 0)
        await environment.step(state, {"a": Reply("x"), "b": Reply("y")}, 0)

    with pytest.raises(EnvironmentFault, match=facts("no recorded replies … task 12-34")):
        asyncio.run(run({}))
    with pytest.raises(EnvironmentFault, match=facts("task 12-34 … none of b at turn 0")):
        asyncio.run(run({"12-34": {"a": Reply("x")}}))


def test_a_view_that_ends_before_the_real_game_is_a_fault():
    class Hush(Talk):
        async def step(self, state, replies, seed):
            from dataclasses import replace

            transition = await super().step(state, replies, seed)
            return replace(transition, done=any(reply.text == "stop" for reply in replies.values()))

    donors = {"t": dict.fromkeys("abc", Reply("stop"))}
    with pytest.raises(
        EnvironmentFault, match=facts("episode of a ends … real messages … continues")
    ):
        asyncio.run(
            prompts_and_end(
                MessageShuffle(Hush(), 0, donors), Task("t", {}), dict.fromkeys("abc", "go")
            )
        )


def test_an_environment_that_cannot_branch_is_refused():
    class Once(Talk):
        branches = False

    with pytest.raises(
        ConfigError, match="but Once has branches = False; expected branches = True"
    ):
        MessageShuffle(Once(), 0, {})


def test_a_shuffled_environment_keeps_every_rule():
    for environment in (MessageShuffle(relay(), 0, DONORS), blanked(relay(), 0)):
        assert "success" in str(check_environment(environment, [TASK]))


def test_the_donors_are_the_first_games_of_the_episodes_that_were_played():
    def episode(name, *texts):
        return Episode(name, Task(name, {}), round_(0, texts, outcome(0, 0.0)))

    lost = Episode("l", Task("l", {}), None, fault=BROKEN)
    episodes = [episode("x", "one", "two"), lost, episode("y", "three")]
    assert shuffled(relay(), episodes, 0).donors == {
        "x": {"a": Reply("three", "stop"), "b": Reply("threethree", "stop")},
        "y": {"a": Reply("one", "stop"), "b": Reply("oneone", "stop")},
    }
    with pytest.raises(ConfigError, match=facts("episode x … before turn 2")):
        shuffled(relay(), episodes, 1)


def test_messages_of_another_problem_can_be_shuffled():
    debate = resolve("debate_tiny")(TinyDebate.Options())
    task = Task("12+39", {"left": "12", "operation": "+", "right": "39"})
    donors = {"12+39": {"a": Reply("55"), "b": Reply("66")}}
    wrapped = MessageShuffle(debate, 0, donors)

    async def second_prompts():
        state = await wrapped.start(task, 0)
        moved = await wrapped.step(state, {"a": Reply("41"), "b": Reply("07")}, 0)
        return wrapped.observe(moved.state)

    assert asyncio.run(second_prompts()) == {"a": "12+39;41/66=", "b": "12+39;07/55="}
