"""The environment of functions: prompts, turns, feedback and reward."""

import asyncio

import pytest

from motet.core import OwnsTasks, Reply, Task
from motet.environments.check import check_environment
from motet.environments.functions import REVISE, FunctionTeam
from motet.errors import ConfigError, EnvironmentFault, RewardFault
from motet.user_code.objects import keep
from tests.fixtures.messages import facts


def made(turns=1, reward=lambda row, texts: 1.0, feedback=None, **options):
    return FunctionTeam(
        FunctionTeam.Options(
            agents={
                "writer": keep(lambda row: f"Write about {row['topic']}."),
                "critic": keep(lambda row: f"Judge {row['topic']}."),
            },
            reward=keep(reward),
            feedback=None if feedback is None else keep(feedback),
            **options,
        ),
        turns=turns,
    )


def said(writer="a line", critic="good"):
    return {"writer": Reply(writer), "critic": Reply(critic)}


def played(environment, *turns, row=None):
    """Play a row. Return the prompts of every turn as text, and the transitions."""

    async def play():
        state, asked, found = await environment.start(Task("t", row or {"topic": "sea"}), 0), [], []
        for replies in turns:
            prompts = environment.observe(state)
            asked.append({agent: chat[-1].content for agent, chat in prompts.items()})
            found.append(await environment.step(state, replies, 0))
            state = found[-1].state
        return asked, found

    return asyncio.run(play())


def test_it_keeps_the_rules_of_environments():
    environment = made(turns=2, reward=lambda row, texts: {"writer": 0.5, "critic": 1.0})
    check_environment(environment, [Task("t", {"topic": "sea"})])
    assert not isinstance(environment, OwnsTasks)


def test_one_turn_asks_every_agent_and_pays_all():
    asked, (end,) = played(made(reward=lambda row, texts: len(texts["writer"])), said())
    assert asked == [{"writer": "Write about sea.", "critic": "Judge sea."}]
    assert end.done
    assert end.rewards == {"writer": 6.0, "critic": 6.0}
    assert end.terms == {"success": 1.0}


def test_a_later_turn_shows_what_the_others_wrote_and_the_feedback():
    def feedback(row, texts):
        return {"writer": f"The critic said {texts['critic']}.", "critic": "Again."}

    asked, (first, last) = played(made(2, feedback=feedback), said(), said())
    assert not first.done
    assert last.done
    assert asked[1]["writer"] == "critic answered:\ngood\n\nThe critic said good."
    assert asked[1]["critic"].endswith("Again.")
    asked, _ = played(made(2, history="own"), said(), said())
    assert asked[1] == {"writer": REVISE, "critic": REVISE}


def test_success_is_a_reward_of_success_at_or_what_the_reward_says():
    from motet.core import Score

    _, (end,) = played(made(reward=lambda row, texts: 0.5), said())
    assert end.terms["success"] == 0.0
    _, (end,) = played(made(reward=lambda row, texts: 0.5, success_at=0.5), said())
    assert end.terms["success"] == 1.0
    own = made(reward=lambda row, texts: Score(0.0, {"words": 3.0}, success=True))
    assert played(own, said())[1][0].terms == {"success": 1.0, "words": 3.0}
    each = made(reward=lambda row, texts: Score(1, right={"critic": 1}, bonus={"critic": -0.5}))
    (end,) = played(each, said())[1]
    assert (end.success, end.right, end.bonus) == (True, {"critic": 1.0}, {"critic": -0.5})


def test_an_async_reward_and_a_reward_per_agent():
    async def reward(row, texts):
        await asyncio.sleep(0)
        return {"writer": 1.0, "critic": 0.0}

    assert played(made(reward=reward), said())[1][0].rewards == {"writer": 1.0, "critic": 0.0}


def test_a_row_is_a_task_with_a_stable_id():
    task = made().task
    assert task({"id": 7, "topic": "sea"}).id == "7"
    assert task({"topic": "sea"}).id == task({"topic": "sea"}).id != task({"topic": "sun"}).id


@pytest.mark.parametrize(
    ("options", "turns", "error", "text"),
    [
        (
            {"reward": lambda row, texts: None},
            1,
            RewardFault,
            "None … reward of writer … finite number",
        ),
        (
            {"reward": lambda row, texts: row["no"]},
            1,
            RewardFault,
            "on task {\"topic\": \"sea\"}: MissingField: 'no'; there are: 'topic'",
        ),
        (
            {"reward": lambda row, texts: texts["author"]},
            1,
            RewardFault,
            "MissingField: 'author'; there are: 'writer', 'critic'",
        ),
        ({"feedback": lambda row, texts: None}, 2, EnvironmentFault, "feedback to writer … None"),
        (
            {"feedback": lambda row, texts: {"writer": "x"}},
            2,
            EnvironmentFault,
            "feedback … no text … critic",
        ),
    ],
)
def test_mistakes_of_functions_are_faults(options, turns, error, text):
    with pytest.raises(error, match=facts(text)):
        played(made(turns, **options), said())


@pytest.mark.parametrize("text", ["snow", "[1]", '{"topic": ' + "[" * 100_000, "9" * 5_000])
def test_a_persons_text_that_is_no_row_is_refused(text):
    with pytest.raises(ConfigError, match=facts("row … team's data")):
        made().chat_task(text)


def test_a_field_that_a_row_lacks_is_named_with_those_that_it_has():
    with pytest.raises(KeyError) as caught:
        played(made(), said(), row={"colour": "red", "id": 3})
    assert str(caught.value) == "'topic'; there are: 'colour', 'id'"


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (3, "3 … string"),
        (None, "None … string … Does its function return"),
        ([{"role": "user", "content": "Hi"}], "Hi … string … user's message … team.AGENT.system"),
    ],
)
def test_a_prompt_must_be_a_string(returned, said):
    asked = {"a": keep(lambda row: returned)}
    options = FunctionTeam.Options(agents=asked, reward=keep(lambda row, texts: 0.0))
    with pytest.raises(EnvironmentFault, match=facts(f"prompt of agent a for row … {said}")):
        played(FunctionTeam(options, turns=1), {"a": Reply("x")})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"reward": lambda texts: 0.0}, r"environment\.reward: got <lambda>\(texts\); expected a "
         r"function that is called as <lambda>\(row, texts\)"),
        ({"feedback": lambda row: "x"}, r"environment\.feedback: got <lambda>\(row\); expected"),
    ],
)  # fmt: skip
def test_a_function_of_other_arguments_is_refused_before_anything_is_played(wrong, said):
    with pytest.raises(ConfigError, match=said):
        made(**wrong)


@pytest.mark.parametrize("reward", [lambda *given: 0.0, lambda row, texts, weight=1: 0.0, max])
def test_a_function_may_take_more_arguments_or_not_say_which(reward):
    made(reward=reward)


def test_a_reference_must_name_a_function():
    with pytest.raises(ConfigError, match=r"environment\.reward is 'math:pi' of type float"):
        FunctionTeam(FunctionTeam.Options(agents={"a": "math:sqrt"}, reward="math:pi"), turns=1)
