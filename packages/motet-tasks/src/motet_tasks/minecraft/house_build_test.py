import asyncio

import pytest
from pydantic import ValidationError

from motet.core import Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError, EnvironmentFault
from motet_tasks.minecraft.house_build import HouseBuild, Spiders
from tests.fixtures.messages import facts

ROW = {
    "task_id": "hut",
    "inventory": {"S": "stone", "G": "glass", "A": "air"},
    "target_spec": {"layers": {"0": ["SSS"], "1": ["GAS"]}},
}
MODES = (
    "score_feedback",
    "position_feedback",
    "perfect_feedback",
    "position_modification",
    "rect_modification",
    "resource_schedule",
)
SPIDERS = {"count": 3, "attack": [1, 3]}


def environment(turns=1, **options):
    return HouseBuild(HouseBuild.Options(**options), turns=turns)


def play(game, *turns, task=None):
    """Play the replies of builder1 and builder2. Return the last prompts and the transitions."""

    async def run():
        state, played = await game.start(task or game.task(ROW), 0), []
        for texts in turns:
            replies = {agent: Reply(text) for agent, text in zip(game.agents, texts, strict=True)}
            played.append(await game.step(state, replies, 0))
            state = played[-1].state
        prompts = {agent: prompt[0].content for agent, prompt in game.observe(state).items()}
        return prompts, played

    return asyncio.run(run())


def solved(game, task):
    return game.solve(asyncio.run(game.start(task, 0)), 0)


def test_both_agents_get_the_share_of_right_cells_less_a_tenth_of_the_damage():
    game = environment(health=20, spiders={"count": 2, "attack": [4, 4]})
    # 4 stones: each may place 2 + 1; right: 3 stones and the air, of 6 cells; damage 8 of 20
    _, (done,) = play(game, ("/fill 0 0 0 2 0 0 stone", "nothing"))
    levels = 4 / 6 - 0.1 * 0.4
    assert done.rewards == pytest.approx(dict.fromkeys(game.agents, levels))
    assert dict(done.terms) == {
        "cells_right": pytest.approx(4 / 6),
        "damage": pytest.approx(0.4),
        "iou": pytest.approx(3 / 5),
        "success": 0.0,
        "rejected": 1.0,
        "levels": pytest.approx(levels),
    }
    _, (saved,) = play(game, ("/fill 0 0 0 2 0 0 stone", "/kill"))
    assert saved.rewards["builder1"] == pytest.approx(4 / 6)


def test_an_agent_may_not_place_more_than_its_share_of_a_block():
    line = "/fill 0 0 0 2 0 0 stone\n/fill 2 1 0 2 1 0 stone"
    assert play(environment(), (line, ""))[1][0].terms["rejected"] == 1.0
    assert play(environment(limited_resources=False), (line, ""))[1][0].terms["rejected"] == 0.0


def test_a_palette_replaces_the_blocks_of_the_house():
    game = environment(palettes=[["stone"], ["glass"]])
    _, (done,) = play(game, ("/fill 0 1 0 0 1 0 glass", "/fill 0 0 0 0 0 0 stone"))
    assert done.terms["rejected"] == 2.0


@pytest.mark.parametrize("options", [{"builders": 1}, {}, {"limited_resources": False}])
def test_the_reference_earns_one_on_every_generated_house(options):
    game = environment(health=5, spiders=SPIDERS, **options)
    for task in game.tasks("eval") + game.tasks("train"):
        solution = solved(game, task)
        assert set(solution) == set(game.agents)
        _, (done,) = play(game, tuple(solution.values()), task=task)
        assert done.rewards == dict.fromkeys(game.agents, 1.0)
        assert (done.terms["success"], done.terms["rejected"]) == (1.0, 0.0)


@pytest.mark.parametrize("options", [{"palettes": [["stone"], ["stone"]]}, {"max_commands": 2}])
def test_without_a_possible_division_the_reference_is_a_fault(options):
    game = environment(**options)
    with pytest.raises(EnvironmentFault, match="resources, palettes and max_commands"):
        solved(game, game.task(ROW))


def test_attacks_are_drawn_once_as_published():
    # random.Random(7).randint(1, 3), three times
    assert Spiders(count=3, attack=(1, 3), seed=7).attacks == [2, 1, 2]
    assert Spiders(count=2, attack=(2, 2)).attacks == [2, 2]
    assert Spiders().attacks == []


def test_an_agent_reads_layers_area_blocks_resources_and_threat():
    prompts, _ = play(environment(health=5, spiders={"count": 2, "attack": [3, 3]}))
    for text in (
        "y = 0: (0, 0, 0, 2, 0, 0 stone)\n",
        "y = 1: (0, 1, 0, 0, 1, 0 glass), (2, 1, 0, 2, 1, 0 stone)\n",
        "from (0, 0, 0) to (2, 1, 0)",
        "- stone\n- glass\n- air",
        "and any amount of air:\n- stone: 3\n- glass: 1",
        "2 spiders are near. The team has 5 health; their attacks are [3, 3], 6 in all.",
    ):
        assert text in prompts["builder1"]
    calm, _ = play(environment(limited_resources=False, show_air=True))
    assert "(1, 1, 0, 1, 1, 0 air)" in calm["builder1"]
    assert "spiders" not in calm["builder1"]
    assert "at most this many" not in calm["builder1"]


def test_raw_prompts_are_the_layers_and_the_agents_name():
    game = environment(prompts="raw")
    state = asyncio.run(game.start(game.task(ROW), 0))
    assert game.observe(state)["builder2"] == (
        "y = 0: (0, 0, 0, 2, 0, 0 stone)\n"
        "y = 1: (0, 1, 0, 0, 1, 0 glass), (2, 1, 0, 2, 1, 0 stone)\nbuilder2\n"
    )


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_each_agent_the_task_and_its_feedback(mode):
    game = environment(turns=2, feedback={"mode": mode})
    first, _ = play(game)
    later, (one,) = play(game, ("", ""))
    assert not one.done
    for agent in game.agents:
        assert later[agent].startswith(first[agent])
        assert later[agent].endswith("one per line and nothing else.")


def test_an_episode_ends_with_a_perfect_build_or_with_the_last_turn():
    game = environment(turns=3)
    right = tuple(solved(game, game.task(ROW)).values())
    assert [one.done for one in play(game, ("", ""), right)[1]] == [False, True]
    assert [one.done for one in play(game, *[("", "")] * 3)[1]] == [False, False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"palettes": [["stone"]]}, "got 1 palettes for 2 builders"),
        (
            {"feedback": {"mode": "resource_schedule"}, "limited_resources": False},
            "resource_schedule without limited_resources",
        ),
        ({"spiders": {"count": 1, "attack": [3, 1]}}, "0 <= least <= most"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        HouseBuild.Options(**options)


def test_generated_tasks_are_different_in_train_and_eval():
    train, held_out = ([t.id for t in environment().tasks(s)] for s in ("train", "eval"))
    assert (len(set(train)), len(set(held_out)), set(train) & set(held_out)) == (48, 12, set())
    with pytest.raises(ConfigError, match=facts("'test' … train, eval")):
        environment().tasks("test")


def test_the_drawing_has_a_panel_per_layer_of_target_and_result():
    game = environment()
    texts = {"builder1": "/fill 0 0 0 1 0 0 stone", "builder2": "/fill 1 1 0 1 1 0 glass"}
    assert game.drawing(game.task(ROW), texts).panels == [
        {"target y = 0": [["stone"] * 3], "target y = 1": [["glass", "", "stone"]]},
        {"result y = 0": [["stone", "stone", ""]], "result y = 1": [["", "glass", ""]]},
    ]


@pytest.mark.parametrize("mode", MODES)
def test_house_build_keeps_every_rule_of_an_environment(mode):
    game = environment(turns=2, health=5, spiders=SPIDERS, feedback={"mode": mode})
    assert "success" in str(check_environment(game))
