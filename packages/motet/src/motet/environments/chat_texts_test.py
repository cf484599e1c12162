"""What environments make of a person's text, and of the agents' last texts."""

import asyncio

import pytest

from codejudge import Limits, Sandbox
from motet.core import Chats, Reply
from motet.environments.centralized import Centralized
from motet.environments.chat_texts import one_or_each
from motet.environments.debate_tiny import TinyDebate
from motet.environments.functions import FunctionTeam
from motet.environments.quickstart import Quickstart
from motet.environments.relay import Relay
from motet.errors import ConfigError
from motet_tasks.coding.bug_fix import BugFix
from motet_tasks.coding.bug_fix_tiny import TinyBugFix
from motet_tasks.coding.generation import CodeGeneration
from motet_tasks.debate.game import Debate
from motet_tasks.length_ratio import LengthRatio
from motet_tasks.word_games.taboo import Taboo
from motet_tasks.word_games.telegram import Telegram
from motet_tasks.writing import WritingEnvironment
from tests.fixtures.messages import facts

STUB = '''
import math

def area(radius):
    """Return the area of a circle.

    >>> area(0)
    0.0
    """
'''
GAMES = {
    "quickstart": (Quickstart, {}, "sum of xs plus 3 if above 2", "largest of nothing"),
    "relay": (Relay, {}, "12 34", "12 345"),
    "debate_tiny": (TinyDebate, {}, " 12 + 39 ; ", "12>39"),
    "debate": (Debate, {}, "What is 6 * 7?", "  "),
    "anli": (Debate, {"dataset": "anli"}, "Premise: It rains.\nHypothesis: It is dry.", "Is it?"),
    "bug_fix_tiny": (TinyBugFix, {}, "sum of xs plus 3 if above 2, number 4", "sum of xs"),
    "code_generation": (CodeGeneration, {}, STUB, "Write a function, please."),
    "tldr": (WritingEnvironment, {}, "A long post.", ""),
    "length_ratio": (LengthRatio, {}, "Describe a lamp.", ""),
    "taboo": (Taboo, {}, "elephant", "a big animal"),
    "telegram": (Telegram, {}, "tiger, Piano!", "tiger"),
}
"""Name -> its class, options, a text that it reads, and one that it does not."""


def build(kind, options):
    needs = kind in (Quickstart, TinyBugFix, CodeGeneration)
    return kind(kind.Options(**options), **({"sandbox": FakeSandbox()} if needs else {}))


class FakeSandbox(Sandbox):
    """Has the packages of the standard library only, and runs nothing."""

    def __init__(self):
        self.packages = ()


@pytest.mark.parametrize("name", GAMES)
def test_an_environment_reads_a_persons_text_and_says_what_it_expects_of_others(name):
    kind, options, good, bad = GAMES[name]
    environment = build(kind, options)
    assert isinstance(environment, Chats)
    task = environment.chat_task(good)
    assert task == environment.chat_task(good)
    assert environment.observe(asyncio.run(environment.start(task, 0)))
    with pytest.raises(ConfigError):
        environment.chat_task(bad)


def test_texts_that_agree_are_one_and_others_get_their_names():
    assert one_or_each({"a": "1 ", "b": "1"}, ["a", "b"]) == "1"
    assert one_or_each({"a": "1", "b": "2"}, ["a", "b"]) == "a: 1\n\nb: 2"


def test_a_debate_without_a_gold_answer_goes_on_and_its_answer_is_that_of_the_majority():
    debate = Debate(Debate.Options(agents=3))
    task = debate.chat_task("What is 6 * 7?")
    texts = {"alice": "I say \\boxed{41}", "bob": "\\boxed{42}", "carol": "so \\boxed{42}"}
    state = asyncio.run(debate.start(task, 0))
    replies = {agent: Reply(text) for agent, text in texts.items()}
    led_to = asyncio.run(debate.step(state, replies, 0))
    assert set(led_to.rewards.values()) == {0.0}
    assert "so \\boxed{42}" in debate.observe(led_to.state)["alice"][0].content
    assert debate.chat_answer(task, texts) == "\\boxed{42}"
    tie = {**texts, "carol": "nothing"}
    assert debate.chat_answer(task, tie).startswith("alice: I say")


def test_a_debate_that_shows_who_is_right_cannot_be_asked():
    with pytest.raises(ConfigError, match=facts("show_scores … exact")):
        Debate(Debate.Options(show_scores="exact")).chat_task("6 * 7?")


def test_the_answer_of_coders_is_their_whole_program_and_examples_are_its_tests():
    team = build(CodeGeneration, {})
    task = team.chat_task(STUB)
    assert task.fields["statements"] == ["assert area(0) == 0.0"]
    program = team.chat_answer(
        task,
        {
            "helper": "```python\ndef aux(radius):\n    return radius ** 2\n```",
            "main": "def area(radius):\n    return math.pi * aux(radius)",
        },
    )
    names = {}
    exec(program, names)  # noqa: S102 the test's own program
    assert names["area"](0) == 0.0
    assert round(names["area"](1), 2) == 3.14


def test_coders_with_feedback_from_tests_need_examples():
    team = CodeGeneration(CodeGeneration.Options(), sandbox=FakeSandbox(), turns=2)
    assert team.chat_task(STUB).fields["examples"]
    with pytest.raises(ConfigError, match="add one, such as >>> double"):
        team.chat_task('def double(x):\n    """Return x times two."""')


FAULTY = '''
import math

def area(radius):
    """Return the area of a circle.

    >>> area(1) > 3
    True
    """
    return math.pi + radius - 3
'''


def test_a_reviewer_reads_the_bug_and_the_example_that_fails_and_the_answer_is_the_repair():
    with Sandbox(workers=1, limits=Limits(wall_seconds=5.0, cpu_seconds=2)) as sandbox:
        team = BugFix(BugFix.Options(), sandbox=sandbox, turns=2)
        task = team.chat_task(FAULTY)
        state = asyncio.run(team.start(task, 0))
        (prompt,) = team.observe(state)["reviewer"]
        assert "area of a circle" in prompt.content
        assert "2 |     return math.pi + radius - 3" in prompt.content
        assert "It fails here:" in prompt.content
        led_to = asyncio.run(team.step(state, {"reviewer": Reply("Line 2: it must multiply.")}, 0))
        assert "it must multiply" in team.observe(led_to.state)["fixer"][0].content
    repair = "```python\ndef area(radius):\n    return math.pi * radius ** 2\n```"
    program = team.chat_answer(task, {"reviewer": "Line 2", "fixer": repair})
    assert program.startswith("import math")
    assert program.endswith("return math.pi * radius ** 2")


def test_a_bug_fix_of_several_attempts_and_a_text_without_a_bug_are_refused():
    fake = FakeSandbox()
    with pytest.raises(ConfigError, match="has 2 attempts"):
        BugFix(BugFix.Options(), sandbox=fake, turns=4).chat_task(FAULTY)
    with pytest.raises(ConfigError, match=facts("Python function … bug")):
        BugFix(BugFix.Options(), sandbox=fake, turns=2).chat_task(STUB)


def test_a_team_of_functions_reads_a_row_as_json():
    team = FunctionTeam(
        FunctionTeam.Options(
            agents={"a": f"{__name__}:prompt", "b": f"{__name__}:prompt"},
            reward=f"{__name__}:reward",
        ),
        turns=1,
    )
    task = team.chat_task('{"topic": "the sea"}')
    prompts = team.observe(asyncio.run(team.start(task, 0)))
    assert "the sea" in prompts["a"][0].content
    assert team.chat_answer(task, {"a": "1", "b": "2"}) == "a: 1\n\nb: 2"
    with pytest.raises(ConfigError, match=facts("row … JSON object … team's data")):
        team.chat_task("the sea")


def prompt(row):
    return f"Write about {row['topic']}."


def reward(row, texts):
    raise AssertionError("a person's question has no reward")


def test_one_model_for_all_agents_answers_with_the_sections_of_its_text():
    team = Centralized(Relay(Relay.Options()))
    task = team.chat_task("12 34")
    text = team.joined({"a": "1234", "b": "1234"})
    assert team.chat_answer(task, {team.agents[0]: text}) == "1234"
