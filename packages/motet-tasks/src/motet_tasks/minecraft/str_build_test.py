import asyncio
import collections

import pytest
from pydantic import ValidationError

from motet.core import Reply, Task
from motet.environments.check import check_environment
from motet.errors import ConfigError, EnvironmentFault
from motet_tasks.minecraft.pictures import SCHEMES
from motet_tasks.minecraft.str_build import StrBuild
from tests.fixtures.messages import facts

TASK = Task("t", {"rows": ["##.", ".##"], "z": 0})
PALETTES = [["stone", "dirt"], ["sand", "glass"]]


def environment(turns=1, **options):
    return StrBuild(StrBuild.Options(**{"palettes": PALETTES, **options}), turns=turns)


def play(game, *turns, task=TASK):
    """Play the replies of builder1 and builder2. Return the last state's prompts (as text) and the
    transitions."""

    async def run():
        state, played = await game.start(task, 0), []
        for texts in turns:
            replies = {agent: Reply(text) for agent, text in zip(game.agents, texts, strict=True)}
            played.append(await game.step(state, replies, 0))
            state = played[-1].state
        return {agent: said(prompt) for agent, prompt in game.observe(state).items()}, played

    return asyncio.run(run())


def said(prompt):
    return prompt if isinstance(prompt, str) else "\n---\n".join(one.content for one in prompt)


def test_both_agents_get_the_published_score_of_what_they_built_together():
    # builder1: two stones of four cells, and one at the background (0, 0)
    one = "/setblock 0 1 0 stone\n/setblock 1 1 0 stone\n/setblock 0 0 0 dirt"
    two = "/setblock 1 1 0 glass\n/setblock 9 9 9 glass"
    _, (done,) = play(environment(), (one, two))
    # covered 2 of 4, extra 1 of 2, no equal pair of 2 pairs, builder2's palette lacks sand
    levels = 2 * 0.5 - 1.5 * 0.5 - 0.25
    assert done.rewards == pytest.approx({"builder1": levels, "builder2": levels})
    assert done.done
    terms = dict(done.terms)
    assert terms.pop("iou") == pytest.approx(2 / 5)
    assert terms == {
        "coverage": 0.5,
        "extra": 0.5,
        "adjacent": 0.0,
        "incomplete_palettes": 1,
        "success": 0.0,
        "rejected": 1.0,
        "levels": pytest.approx(levels),
    }


def test_no_agent_may_place_the_other_ones_blocks():
    _, (done,) = play(environment(), ("/setblock 0 1 0 glass", "/setblock 0 1 0 stone"))
    assert (done.terms["coverage"], done.terms["rejected"]) == (0.0, 2.0)


@pytest.mark.parametrize("builders", [1, 2])
def test_the_reference_earns_two_on_every_generated_word(builders):
    game = StrBuild(StrBuild.Options(builders=builders))
    for task in game.tasks("eval") + game.tasks("train"):
        solution = game.solve(game._begin(task), 0)
        _, (done,) = play(game, tuple(solution.values()), task=task)
        assert done.rewards == dict.fromkeys(game.agents, 2.0)
        assert done.terms["success"] == 1.0


def test_without_a_perfect_division_the_reference_is_a_fault():
    game = environment(palettes=[["oak_planks"], ["birch_planks"]])
    with pytest.raises(
        EnvironmentFault, match=r"no known division of ##\./\.## has the best score"
    ):
        game.solve(game._begin(TASK), 0)
    game = environment(max_commands=2)
    with pytest.raises(EnvironmentFault, match="max_commands"):
        game.solve(game._begin(TASK), 0)


def test_commands_are_shared_out_and_builder1_gets_the_rest():
    game = environment(max_commands=3)
    line = "/setblock 0 0 0 air\n"
    assert play(game, (line * 3, line * 3))[1][0].terms["rejected"] == 1 + 2
    assert game.alone().options.most_commands == {"builder1": 3}


def test_an_episode_ends_with_a_perfect_build_or_with_the_last_turn():
    game = environment(turns=3)
    solution = tuple(game.solve(game._begin(TASK), 0).values())
    assert [one.done for one in play(game, ("", ""), solution)[1]] == [False, True]
    assert [one.done for one in play(game, *[("", "")] * 3)[1]] == [False, False, True]
    going = environment(turns=3, stop_when_solved=False)
    assert [one.done for one in play(going, solution, solution)[1]] == [False, False]


def test_every_turn_starts_with_an_empty_world():
    game = environment(turns=2)
    _, (_, second) = play(game, ("/setblock 0 1 0 stone", ""), ("", ""))
    assert second.terms["coverage"] == 0.0


def test_the_reward_is_scaled_and_shifted():
    game = environment(reward={"scale": 2.0, "shift": -4.0})
    solution = tuple(game.solve(game._begin(TASK), 0).values())
    assert play(game, solution)[1][0].rewards == {"builder1": 0.0, "builder2": 0.0}


# ------------------------------------------------------------ prompts


def test_an_agent_reads_the_target_and_its_own_blocks_only():
    prompts, _ = play(environment())
    assert "##.\n.##" in prompts["builder1"]
    assert "from (0, 0, 0) to (2, 1, 0)" in prompts["builder1"]
    assert "- stone\n- dirt" in prompts["builder1"]
    assert "glass" not in prompts["builder1"]
    assert "replace its blocks" in prompts["builder2"]
    assert "replace its blocks" not in prompts["builder1"]
    assert "team of two" not in play(environment().alone())[0]["builder1"]


def test_the_target_can_be_hidden():
    prompts, _ = play(environment(show_target=False))
    assert "#" not in prompts["builder1"]
    assert "to (2, 1, 0)" in prompts["builder1"]
    raw, _ = play(environment(show_target=False, prompts="raw"))
    assert raw == {"builder1": "builder1\n", "builder2": "builder2\n"}


def test_raw_prompts_are_the_target_and_the_agents_name():
    prompts, _ = play(environment(prompts="raw"))
    assert prompts == {"builder1": "##.\n.##\nbuilder1\n", "builder2": "##.\n.##\nbuilder2\n"}


def feedback(mode, texts=("", ""), **options):
    game = environment(turns=2, feedback={"mode": mode, **options})
    first, _ = play(game)
    later, _ = play(game, texts)
    return first, later


def test_score_feedback_tells_the_score_before_scaling():
    first, later = feedback("score_feedback", ("/setblock 0 1 0 stone", ""))
    # 2 x 1/4 - 0.25 for each palette
    assert "Your last build scored 0.0000." in later["builder1"]
    assert first["builder1"] in later["builder1"]
    assert "stone\n\nYour last answer" not in later["builder1"]


def test_position_feedback_lists_every_block_of_the_target():
    _, later = feedback("position_feedback")
    listed = "- (0, 1, 0)\n- (1, 1, 0)\n- (1, 0, 0)\n- (2, 0, 0)"
    assert listed in later["builder1"]
    assert listed in later["builder2"]
    assert "Choose about 2 of these positions" in later["builder1"]
    assert "You may give 300 commands" in later["builder1"]


def test_perfect_feedback_lists_the_wrong_cells_of_each_builder_and_extra_blocks_to_the_last():
    # expected: builder1 stone at (1, 1) and (2, 0), builder2 glass at (0, 1) and (1, 0)
    texts = ("/setblock 1 1 0 stone\n/setblock 0 0 0 dirt", "/setblock 0 1 0 sand")
    _, later = feedback("perfect_feedback", texts)
    wrong = "You should have placed another block at:\n"
    assert f"{wrong}- (2, 0, 0)\n\n" in later["builder1"]
    assert f"{wrong}- (0, 1, 0)\n- (1, 0, 0)\n\n" in later["builder2"]
    assert "There should be air at:\n- (0, 0, 0)" in later["builder2"]
    assert "There should be air" not in later["builder1"]


def test_later_prompts_repeat_task_and_answer_only_where_asked():
    texts = ("/setblock 0 1 0 stone", "")
    first, later = feedback("score_feedback", texts, restate_problem=False, restate_answer=True)
    assert first["builder1"] not in later["builder1"]
    assert "Your last answer:\n/setblock 0 1 0 stone" in later["builder1"]


# ------------------------------------------------------------ tasks and options


def test_generated_tasks_are_different_in_train_and_eval():
    for options, counts in ({}, (192, 48)), ({"size": [4, 3]}, (960, 240)):
        game = environment(**options)
        train, held_out = ([task.id for task in game.tasks(split)] for split in ("train", "eval"))
        assert (len(set(train)), len(set(held_out))) == counts
        assert not set(train) & set(held_out)
    with pytest.raises(ConfigError, match=facts("'test' … train, eval")):
        environment().tasks("test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"palettes": [["stone"]]}, "1 palettes … 2 builders"),
        ({"palettes": [["stone"], ["air"]]}, "palette without blocks"),
        ({"palettes": [["stone"], []]}, "palette without blocks"),
        ({"size": [1, 3]}, "width … height … 2 to 16"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValidationError, match=facts(message)):
        StrBuild.Options(**options)


def test_demonstrations_mix_agents_and_ways_to_divide_the_work():
    game = environment(prompts="raw", size=[4, 3])
    task = game.tasks("train")[0]
    shown = [game.demonstrate(task, seed) for seed in range(400)]
    seen = collections.Counter(
        (one.agent, game.convention(task, one.agent, one.text)) for one in shown
    )
    assert set(seen) == {(agent, scheme) for agent in game.agents for scheme in SCHEMES}
    assert min(seen.values()) > 25  # 50 expected, standard deviation 7
    assert game.convention(task, "builder1", "setblock 0 0 0 stone") == "other"


def test_the_drawing_shows_the_target_and_what_was_built():
    texts = {"builder1": "/setblock 0 1 0 stone", "builder2": "/setblock 2 0 0 glass"}
    assert environment().drawing(TASK, texts).panels == [
        {"target": [["target", "target", ""], ["", "target", "target"]]},
        {"result": [["stone", "", ""], ["", "", "glass"]]},
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": [4, 3], "prompts": "raw"},
        {"feedback": {"mode": "position_feedback"}, "history": "own"},
        {"feedback": {"mode": "perfect_feedback"}, "history": "joint", "show_target": False},
    ],
)
def test_str_build_keeps_every_rule_of_an_environment(options):
    assert "success" in str(check_environment(environment(turns=3, **options)))
