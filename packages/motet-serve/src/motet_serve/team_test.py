import asyncio
from dataclasses import replace

import pytest

import motet
from motet.core import Environment, Message, Task, Team, Transition
from motet.environments.free_form import FreeForm
from motet.environments.quickstart import Quickstart
from motet.environments.relay import Relay
from motet.environments.tool_use import ToolGame
from motet.errors import ConfigError
from motet.settings import Decode, Plan
from motet_serve.team import AnswerSettings, ChatTeam, Unanswered
from tests.fixtures.asked_teams import AGENTS, Saying, saying_team
from tests.fixtures.messages import facts

GREEDY = AnswerSettings(seed=1, temperature=0.0)


def ask(team, text, settings=GREEDY):
    told = []
    answer = asyncio.run(team.ask(text, settings, told.append))
    assert tuple(told) == answer.messages
    return answer


def test_a_question_goes_through_all_turns_and_the_answer_is_the_teams():
    saying = Saying()
    answer = ask(saying_team(saying), "12+39")
    assert [(one.agent, one.turn) for one in answer.messages] == [
        ("a", 0), ("b", 0), ("a", 1), ("b", 1)
    ]  # fmt: skip
    first, second, *last = [one.text for one in answer.messages]
    prompts = [request.prompt for request in saying.asked]
    assert prompts == ["12+39;", "12+39;", f"12+39;{first}/{second}=", f"12+39;{second}/{first}="]
    said = last[0] if last[0] == last[1] else f"a: {last[0]}\n\nb: {last[1]}"
    assert answer.text == said
    assert answer.prompt_tokens == sum(map(len, prompts))
    assert (answer.completion_tokens, answer.stop) == (8, "stop")
    assert saying.batches == [2, 2]


def test_the_same_seed_gives_the_same_answer_and_another_one_another():
    team = saying_team(Saying())
    found = [ask(team, "12+39", AnswerSettings(seed)).messages for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_what_a_question_sets_reaches_every_agent_and_the_rest_stays():
    saying = Saying()
    answer = ask(saying_team(saying), "12+39", AnswerSettings(1, 0.5, 0.9, 1, ("x",)))
    changed = Decode(temperature=0.5, top_p=0.9, max_new_tokens=1, stop=("x",))
    assert [request.decode for request in saying.asked] == [changed] * len(saying.asked)
    assert answer.stop == "length"


def test_an_agent_alone_reads_the_chat_behind_its_system_message():
    saying = Saying()
    team = saying_team(saying)
    team.team = replace(team.team, system={"b": "Be brief."})
    chat = (Message("user", "1"), Message("assistant", "2"), Message("user", "3"))
    answer = asyncio.run(team.ask_agent("b", chat, GREEDY))
    (request,) = saying.asked
    assert request.prompt == (Message("system", "Be brief."), *chat)
    assert [message.agent for message in answer.messages] == ["b"]
    assert team.names == ("team", "team/a", "team/b")


def test_a_text_that_the_environment_cannot_read_is_refused_before_anything_is_sampled():
    saying = Saying()
    with pytest.raises(ConfigError, match=r"got 'hello'; expected two numbers .* such as 12\+39"):
        ask(saying_team(saying), "hello")
    assert not saying.asked


class Shouting(Saying):
    async def sample(self, requests, on_answer=None):
        return await super().sample([replace(one, prompt="x" * 999) for one in requests])


def test_a_fault_says_why_there_is_no_answer():
    with pytest.raises(Unanswered) as caught:
        ask(saying_team(Shouting()), "12+39")
    assert caught.value.fault.cause == "long_prompt"


class Counting(Relay):
    steps = 0

    async def step(self, state, replies, seed):
        self.steps += 1
        return await super().step(state, replies, seed)


def test_the_last_turn_is_not_stepped_because_nobody_can_reward_it():
    environment = Counting(Relay.Options())
    team = Team({agent: (agent,) for agent in AGENTS}, dict.fromkeys(AGENTS, Decode()))
    ask(ChatTeam(environment, team, Plan(samples=(4, 1)), Saying()), "12 34")
    assert environment.steps == 1


def look_up(name: str) -> str:
    """Look a name up.

    Args:
        name: the name.
    """
    return name


class Unrewarded(Environment[Task]):
    """One turn, which cannot be rewarded without the right answer."""

    agents = ("solver",)
    most_turns = 1

    def chat_task(self, text):
        return Task(text, {})

    def chat_answer(self, task, texts):
        return texts["solver"]

    async def start(self, task, seed):
        return task

    def observe(self, state):
        return {"solver": state.id}

    async def step(self, state, replies, seed):
        return Transition(state, {"solver": float(state.fields["gold"])}, True)


def test_a_team_whose_agents_call_no_tool_is_not_stepped_at_its_last_turn_either():
    game = ToolGame(Unrewarded(), {"solver": [motet.tool(look_up)]}, turns=3)
    team = Team({"solver": ("p",)}, {"solver": Decode()})
    assert ask(ChatTeam(game, team, Plan(samples=(4, 1, 1)), Saying()), "1+1").text


class Mute(Environment[Task]):
    agents = AGENTS

    async def start(self, task, seed):
        return task

    def observe(self, state):
        return dict.fromkeys(AGENTS, "?")

    async def step(self, state, replies, seed):
        return Transition(state, dict.fromkeys(AGENTS, 0.0), True)


class Half(Mute):
    def chat_task(self, text):
        return Task(text, {})


@pytest.mark.parametrize(
    ("environment", "lacks"),
    [
        (Mute(), "Mute … does not define chat_task and chat_answer"),
        (Half(), "Half … does not define chat_answer"),
    ],
)
def test_an_environment_that_cannot_be_asked_is_refused_with_what_it_lacks(environment, lacks):
    team = Team({agent: (agent,) for agent in AGENTS}, dict.fromkeys(AGENTS, Decode()))
    asked = ChatTeam(environment, team, Plan(), Saying())
    with pytest.raises(ConfigError, match=facts(lacks)):
        ask(asked, "x")
    assert asked.names == ("team/a", "team/b")
    chat = (Message("user", "hi"),)
    answer = asyncio.run(asked.ask_agent("b", chat, GREEDY))
    assert answer.messages[0].agent == "b"


async def shopping(task, agents):
    item = await agents.a.ask(f"Buy {task.fields['wish']}")
    price = await agents.b.ask(f"What does {item.text} cost?")
    return {"rewards": float(price.text == task.fields["price"])}


class Shop(FreeForm):
    def chat_task(self, text):
        return Task(text, {"wish": text})

    def chat_answer(self, task, texts):
        return f"{texts['a']} costs {texts['b']}"


def test_a_free_form_dialogue_can_be_asked_without_what_only_its_reward_needs():
    team = Team({agent: (agent,) for agent in AGENTS}, dict.fromkeys(AGENTS, Decode()))
    shop = Shop(shopping, agents=AGENTS)
    answer = ask(ChatTeam(shop, team, Plan(samples=(1, 1)), Saying()), "tea")
    item, price = (message.text for message in answer.messages)
    assert answer.text == f"{item} costs {price}"


def test_quickstart_joins_both_halves():
    environment = Quickstart(Quickstart.Options(), sandbox=None)
    task = environment.chat_task("sum of xs squared if even")
    assert set(environment.observe(asyncio.run(environment.start(task, 0)))) == {"aux", "main"}
    program = environment.chat_answer(task, {"aux": "def aux(x):\n return x\n", "main": "def main"})
    assert program == "def aux(x):\n return x\n\ndef main\n"


@pytest.mark.parametrize("temperature", [1e-300, 1e-38, 1e31, float("inf"), float("nan"), -1.0])
def test_a_temperature_that_logits_cannot_be_divided_by_is_refused(temperature):
    with pytest.raises(ConfigError, match=r"expected 1e-30 to 1e\+30: .*; 0 takes the most likely"):
        AnswerSettings(1, temperature)
    assert AnswerSettings(1, 0.0).greedy
