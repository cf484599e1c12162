import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from motet.core import Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.planning.hidden_goal import CONVENTIONS, TinyPlanPath, TinySokoban, named

GAME = TinyPlanPath(TinyPlanPath.Options(train_tasks=300, eval_tasks=50))
SOKOBAN = TinySokoban(TinySokoban.Options(train_tasks=30, eval_tasks=10))
MAZE = "S.G/.#./..."


def played(message, moves, game=GAME, text=MAZE):
    """Return both transitions of a game."""
    state = asyncio.run(game.start(game.chat_task(text), 0))
    first = asyncio.run(game.step(state, {"scout": Reply(message)}, 0))
    return first, asyncio.run(game.step(first.state, {"planner": Reply(moves)}, 0))


@pytest.mark.parametrize("game", [GAME, SOKOBAN])
def test_it_keeps_the_rules_of_environments(game):
    check_environment(game, game.tasks("train")[:2])


@pytest.mark.parametrize("game", [GAME, SOKOBAN])
def test_no_puzzle_is_held_out_and_trained_on(game):
    splits = [{task.id for task in game.tasks(name)} for name in ("train", "eval")]
    options = game.options
    assert [len(one) for one in splits] == [options.train_tasks, options.eval_tasks]
    assert not splits[0] & splits[1]
    with pytest.raises(ConfigError, match="train"):
        game.tasks("test")


def test_held_out_puzzles_do_not_depend_on_how_many_are_trained_on():
    few, many = (TinyPlanPath.Options(train_tasks=count, eval_tasks=20) for count in (5, 40))
    assert TinyPlanPath(few).tasks("eval") == TinyPlanPath(many).tasks("eval")


def test_the_scout_sees_the_goal_and_the_planner_where_it_stands():
    state = asyncio.run(GAME.start(GAME.chat_task(MAZE), 0))
    assert GAME.observe(state) == {"scout": "..G\n.#.\n...\ngoal "}
    told = replace(state, message="13")
    assert GAME.observe(told) == {"planner": "S..\n.#.\n...\ngoal 13 from 11 moves "}
    open_game = TinyPlanPath(TinyPlanPath.Options(shown=True))
    assert "S.G" in open_game.observe(told)["planner"]


def test_in_sokoban_only_the_planner_sees_the_box():
    room = "######/#    #/#@$. #/######"
    state = asyncio.run(SOKOBAN.start(SOKOBAN.chat_task(room), 0))
    assert "#  . #" in SOKOBAN.observe(state)["scout"]
    assert "#@$  #" in SOKOBAN.observe(replace(state, message="13"))["planner"]


def test_both_are_paid_for_the_moves_at_the_end():
    first, last = played("13", "RR")
    assert (first.done, set(first.rewards.values())) == (False, {0.0})
    assert (last.done, last.success) == (True, 1.0)
    assert last.rewards == pytest.approx(dict.fromkeys(("scout", "planner"), 1.0 + 0.99 + 1.5))
    _, wrong = played("13", "U")
    assert (wrong.success, wrong.rewards["scout"]) == (0.0, pytest.approx(-0.08))
    _, around = played("13", "DURR")
    assert (around.success, around.rewards["scout"]) == (0.0, pytest.approx(-0.98 + 1.01))
    _, silent = played("13", " ")
    assert silent.rewards["planner"] == -2.0


def test_a_cell_has_a_name_in_every_way_to_count():
    assert [named((0, 2), 4, way) for way in range(4)] == ["13", "42", "31", "24"]
    for way in range(4):
        cells = {named((row, column), 4, way) for row in range(4) for column in range(4)}
        assert len(cells) == 16, "a name means one cell"


def test_demonstrations_mix_agents_and_ways_to_count_the_first_twice_as_often():
    task = GAME.chat_task("S.G./.#../..../....")
    every = TinyPlanPath(TinyPlanPath.Options(conventions=4))
    shown = [every.demonstrate(task, seed) for seed in range(1000)]
    labels = Counter(every.convention(task, one.agent, one.text) for one in shown)
    assert set(labels) == {*CONVENTIONS, "moves"}
    first, *others = (labels[name] for name in CONVENTIONS)
    assert 170 < first < 230
    assert all(75 < count < 125 for count in others)
    assert {one.text for one in shown if one.agent == "planner"} == {"RR"}
    assert GAME.convention(task, "scout", "99") == "other"
    alike = TinyPlanPath(TinyPlanPath.Options(conventions=1))
    assert {alike.demonstrate(task, seed).text for seed in range(40)} == {"13", "RR"}


def test_a_person_gives_the_team_a_puzzle():
    assert GAME.chat_task(MAZE.replace("/", "\n")).id == MAZE
    assert GAME.chat_answer(GAME.chat_task(MAZE), {"scout": "13 ", "planner": "RR"}) == "13 → RR"
    with pytest.raises(ConfigError, match="one S and one G"):
        GAME.chat_task("S.")
