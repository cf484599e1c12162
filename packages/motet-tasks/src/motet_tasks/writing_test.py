import asyncio

import pytest
from pydantic import ValidationError

from motet.core import Reply
from motet.environments.check import check_environment
from motet.environments.rules import Rule
from motet.errors import ConfigError
from motet_tasks.rewards.writing import BEST, LENGTH, STRUCTURE, VOCABULARY
from motet_tasks.writing import SPLIT, WritingEnvironment
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely

POST = {
    "prompt": "SUBREDDIT: r/cats\n\nTITLE: My cat\n\nPOST: He sleeps.\n\nTL;DR:",
    "completion": " Cat sleeps.",
}
ABSTRACT = {"abstract_text": "We show that cats sleep."}
SHORT = "cat ran off mud rug den sun ice"
LONG = "moreover the cat went over the brown field, thus far, but then rested near a warm wall"
"""LONG / SHORT: 86 / 31 characters, 16 / 8 different words, one of them shared. LONG has four kinds
of transition words."""


def environment(**options):
    return WritingEnvironment(WritingEnvironment.Options(**options))


def play(env, row, **texts):
    async def once():
        state = await env.start(env.task(row), 0)
        return await env.step(state, {agent: Reply(text) for agent, text in texts.items()}, 0)

    return asyncio.run(once())


@pytest.mark.parametrize("writers", widely([1, 2], keep=[2]))
@pytest.mark.parametrize(("kind", "row"), [("tldr", POST), ("arxiv", ABSTRACT)])
def test_it_keeps_the_rules_of_environments(kind, row, writers):
    env = environment(kind=kind, writers=writers)
    assert check_environment(env, [env.task(row)]).rules[Rule.SUCCESS] > 0


def test_each_agent_reads_the_text_and_its_own_part_of_the_work():
    env = environment()
    prompts = env.observe(asyncio.run(env.start(env.task(POST), 0)))
    assert list(prompts) == ["summary", "detail"]
    for (message,) in prompts.values():
        assert message.role == "user"
        assert "He sleeps." in message.content
        assert "Cat sleeps." not in message.content
    assert "transition words" in prompts["detail"][0].content
    assert "transition words" not in prompts["summary"][0].content


def test_success_is_every_gate_in_full_and_enough_style():
    won = play(environment(), POST, summary=SHORT, detail=LONG)
    assert won.done
    assert won.terms["transition_kinds"] == 4.0
    # 0.5 + 1 + 0.5, then 0.4 x (0.4 + 3 x 0.05) + 0.6
    assert won.rewards == {agent: pytest.approx(2.82) for agent in ("summary", "detail")}
    assert won.terms["success"] == 1.0
    assert (
        play(environment(style_for_success=0.83), POST, summary=SHORT, detail=LONG).terms["success"]
        == 0.0
    )
    assert (
        play(environment(), POST, summary=SHORT, detail=LONG + " " + LONG).terms["success"] == 0.0
    )


def test_the_reward_is_scaled_and_shifted_and_success_is_not():
    scaled = play(
        environment(reward={"scale": 2.0, "shift": -3.0}), POST, summary=SHORT, detail=LONG
    )
    assert (scaled.rewards["detail"], scaled.terms["levels"]) == (
        pytest.approx(2 * 2.82 - 3),
        pytest.approx(2.82),
    )
    assert scaled.terms["success"] == 1.0


def test_three_kinds_of_transition_are_enough_style():
    three = play(environment(), POST, summary=SHORT, detail=LONG.replace("but", "and"))
    assert (three.terms["transition_kinds"], three.terms["success"]) == (3.0, 1.0)
    two = play(environment(), POST, summary=SHORT, detail=LONG.replace("but then", "and he"))
    assert (two.terms["transition_kinds"], two.terms["success"]) == (2.0, 0.0)


def test_a_style_that_nobody_can_reach_is_refused():
    best_style = BEST - STRUCTURE - LENGTH - VOCABULARY
    assert best_style == pytest.approx(0.98)
    assert WritingEnvironment.Options(style_for_success=0.98).style_for_success == 0.98
    with pytest.raises(ValidationError, match=facts("style_for_success … 0.98")):
        WritingEnvironment.Options(style_for_success=0.99)


def test_a_single_agent_writes_both_parts_and_earns_the_same():
    alone = environment().alone()
    assert alone.agents == ("writer",)
    together = play(environment(), POST, summary=SHORT, detail=LONG)
    assert play(alone, POST, writer=f"{SHORT}\n{SPLIT}\n{LONG}").terms == together.terms
    assert (
        SPLIT in alone.observe(asyncio.run(alone.start(alone.task(POST), 0)))["writer"][0].content
    )


def test_a_single_agent_that_forgets_the_mark_has_written_one_part():
    assert play(environment().alone(), POST, writer=f"{SHORT}\n\n{LONG}").rewards == {"writer": 0.0}


def test_the_two_kinds_are_held_to_their_own_rubric():
    assert (
        play(environment(kind="arxiv"), ABSTRACT, background=SHORT, method=LONG).rewards["method"]
        == 0.0
    )


def test_the_single_agent_of_an_abstract_reads_both_wishes():
    alone = environment(kind="arxiv").alone()
    asked = alone.observe(asyncio.run(alone.start(alone.task(ABSTRACT), 0)))["writer"][0].content
    assert "background and motivation" in asked
    assert "method and implications" in asked
    assert "Somebody else" not in asked


def test_what_a_model_thought_is_not_what_it_said():
    thoughtful = play(environment(), POST, summary=f"<think>\n</think>\n{SHORT}", detail=LONG)
    assert thoughtful.terms == play(environment(), POST, summary=SHORT, detail=LONG).terms


def test_a_vote_compares_words_and_not_their_layout():
    env = environment()
    task = env.task(POST)
    assert env.answer(task, {"summary": "A  cat", "detail": "ran\n"}) == env.answer(
        task, {"summary": "a cat", "detail": "Ran"}
    )
    assert env.answer(task, {"summary": "a", "detail": "cat"}) != env.answer(
        task, {"summary": "a c", "detail": "at"}
    )
    assert env.answer(task, {"summary": "a cat", "detail": " "}) is None


def test_rows_about_the_same_text_are_the_same_task_and_others_are_not():
    env = environment()
    assert env.task(POST) == env.task({"prompt": POST["prompt"]})
    assert env.task(POST).id != env.task({"prompt": "x"}).id


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"promt": "x"},
            "tldr … no field 'prompt' … 'promt' … promt",
        ),
        ({"prompt": " "}, "' ' … 'prompt' … a string … not empty"),
        ({"prompt": None}, "None … 'prompt'"),
    ],
)
def test_a_row_without_its_text_is_refused(row, message):
    with pytest.raises(ConfigError, match=facts(message)):
        environment().task(row)
