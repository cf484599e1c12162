import asyncio

import pytest

from codejudge import Limits, Sandbox
from motet.core import Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.planning.plan_path import PlanPath
from motet_tasks.planning.sokoban import Sokoban
from motet_tasks.planning.sudoku import Sudoku
from tests.fixtures.messages import facts

GAMES = (PlanPath, Sudoku, Sokoban)
MAZE = "S.G\n.#."
ALL_RIGHT = 1.0 + 0.99 + 1.5
"""What both moves to the goal of MAZE are paid (maze_test.py)."""
ONE_RIGHT = 1.0
NOWHERE = -0.10 + 0.02


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(cpu_seconds=1)) as sandbox:
        yield sandbox


def build(kind, tool="answer", sandbox=None, turns=5, **options):
    return kind(kind.Options(tool=tool, **options), sandbox=sandbox, turns=turns)


def played(game, text, *turns):
    """Return the transitions of some turns, each of the texts of all agents."""
    state, made = asyncio.run(game.start(game.chat_task(text), 0)), []
    for texts in turns:
        replies = {agent: Reply(said) for agent, said in zip(game.agents, texts, strict=True)}
        made.append(asyncio.run(game.step(state, replies, 0)))
        state = made[-1].state
    return made


def shown(game, state):
    return {agent: prompt[0].content for agent, prompt in game.observe(state).items()}


@pytest.mark.parametrize("kind", GAMES)
@pytest.mark.parametrize("tool", ["answer", "none"])
def test_it_keeps_the_rules_of_environments(kind, tool):
    game = build(kind, tool, train_tasks=10, eval_tasks=3)
    check_environment(game, game.tasks("train")[:1])


@pytest.mark.parametrize("kind", GAMES)
def test_puzzles_are_the_same_again_and_no_puzzle_is_held_out_and_trained_on(kind):
    game = build(kind, train_tasks=60, eval_tasks=20)
    splits = {name: game.tasks(name) for name in ("train", "eval")}
    assert splits["train"] == build(kind, train_tasks=60, eval_tasks=20).tasks("train")
    assert splits["train"] != build(kind, train_tasks=60, eval_tasks=20, seed=1).tasks("train")
    rows = [tuple(task.fields["rows"]) for tasks in splits.values() for task in tasks]
    assert len(set(rows)) == len(rows) == 80
    assert splits["eval"] == build(kind, train_tasks=5, eval_tasks=20).tasks("eval")
    with pytest.raises(ConfigError, match=facts("'test' … eval, train")):
        game.tasks("test")


def test_a_size_with_too_few_puzzles_is_refused():
    with pytest.raises(ConfigError, match=r"environment\.train_tasks"):
        build(PlanPath, size=2, walls=0.0, train_tasks=50, eval_tasks=1).tasks("train")


def test_the_planner_is_paid_twice_and_the_tool_for_the_team_and_its_own_proposal():
    (done,) = played(build(PlanPath), MAZE, ("#### [R]", "#### [R, R]"))
    assert (done.done, done.success) == (True, 1.0)
    assert done.rewards == pytest.approx({"planner": 2 * ALL_RIGHT, "tool": ALL_RIGHT + ONE_RIGHT})
    (wrong,) = played(build(PlanPath), MAZE, ("#### [R, R]", "#### [U]"))
    assert (wrong.done, wrong.success) == (False, 0.0)
    assert wrong.rewards == pytest.approx({"planner": 2 * NOWHERE, "tool": NOWHERE + ALL_RIGHT})
    assert wrong.metrics["tool_solves"] == 1.0
    assert wrong.state.puzzle.at == (0, 0), "a proposal moves nobody"


@pytest.mark.parametrize("said", ["I do not know", "#### []"])
def test_no_action_costs_the_planner_two(said):
    (idle,) = played(build(PlanPath), MAZE, ("#### [R]", said))
    assert idle.rewards == pytest.approx({"planner": -2.0, "tool": ONE_RIGHT})
    assert idle.metrics["planner_acts"] == 0.0


@pytest.mark.parametrize(
    ("kind", "text", "said", "own"),
    [
        (PlanPath, MAZE, "nothing", -2.0),
        (PlanPath, MAZE, "#### [R, X]", -2.0),
        (PlanPath, MAZE, "#### []", 0.0),
        (Sokoban, "######\n#    #\n#@$. #\n######", "nothing", -2.0),
        (Sokoban, "######\n#    #\n#@$. #\n######", "#### [X]", -0.049),
        (Sudoku, "12.4\n3412\n2143\n4321", "nothing", -1.0),
        (Sudoku, "12.4\n3412\n2143\n4321", "#### []", -1.0),
        (Sudoku, "12.4\n3412\n2143\n4321", "#### [[0, 2, 3]]", 2.88125),
    ],
)
def test_what_a_proposal_earns_its_tool(kind, text, said, own):
    (made,) = played(build(kind), text, (said, "no action"))
    assert made.rewards["tool"] == pytest.approx(own)


def test_a_game_goes_on_where_the_planner_came_to_and_ends_after_its_turns():
    idle = ("#### [R]", "#### [R]")
    first, second = played(build(PlanPath), MAZE, idle, idle)
    assert (first.done, first.success) == (False, 0.0)
    assert (second.done, second.success) == (True, 1.0)
    assert second.state.puzzle.steps == 2
    (last,) = played(build(PlanPath, turns=1), MAZE, idle)
    assert (last.done, last.success) == (True, 0.0)


def test_two_hundred_moves_end_a_sokoban_without_success():
    room = "######\n#    #\n#@$. #\n######"
    (over,) = played(build(Sokoban), room, ("", f"#### {['L'] * 200}"))
    assert (over.done, over.success) == (True, 0.0)
    assert over.rewards["planner"] == pytest.approx(2 * (200 * -0.049 - 5.0))


def test_the_planner_reads_the_proposal_of_the_turn_before_and_the_tool_the_puzzle():
    game = build(PlanPath)
    start = asyncio.run(game.start(game.chat_task(MAZE), 0))
    first = shown(game, start)
    assert all(MAZE in text for text in first.values())
    assert "partner" not in first["planner"]
    (made,) = played(game, MAZE, ("I say\n#### [R, R]", "#### [R]"))
    then = shown(game, made.state)
    assert ".SG" in then["tool"]
    assert "I say" in then["planner"]
    assert "proposes: ['R', 'R']" in then["planner"]
    assert "I say" not in then["tool"]


def test_a_long_text_of_the_partner_is_cut():
    game = build(PlanPath)
    (made,) = played(game, MAZE, ("a" * 50_000, "#### [R]"))
    assert len(shown(game, made.state)["planner"]) < 4000


def test_a_sudoku_shows_the_givens_and_what_was_filled():
    game = build(Sudoku)
    (made,) = played(game, "12..\n3412\n2143\n4321", ("", "#### [[0, 2, 3]]"))
    assert "12..\n3412" in shown(game, made.state)["planner"]
    assert "123.\n3412" in shown(game, made.state)["planner"]


def test_a_tools_program_runs_and_its_output_is_shown_and_paid(sandbox):
    game = build(PlanPath, "code", sandbox)
    program = "First this:\n```python\nway = ['R'] * 2\nprint('found', way)\n```"
    (made,) = played(game, MAZE, (program, "#### [U]"))
    assert made.rewards["tool"] == pytest.approx(NOWHERE + ALL_RIGHT)
    text = shown(game, made.state)["planner"]
    assert "way = ['R'] * 2" in text
    assert "found ['R', 'R']" in text
    for program in ("```python\n1 / 0\n```", "```python\nprint('no way')\n```", "", "def ("):
        (made,) = played(game, MAZE, (program, "#### [U]"))
        assert made.rewards["tool"] == pytest.approx(NOWHERE - 2.0), program
    assert "error" in shown(game, made.state)["planner"]


def test_the_solver_of_the_tool_is_a_program(sandbox):
    game = build(PlanPath, "code", sandbox)
    state = asyncio.run(game.start(game.chat_task(MAZE), 0))
    said = game.solve(state, 0)
    (made,) = played(game, MAZE, (said["tool"], said["planner"]))
    assert made.rewards == pytest.approx(dict.fromkeys(("tool", "planner"), 2 * ALL_RIGHT))


def test_one_agent_alone_is_paid_as_the_planner():
    game = build(PlanPath).alone()
    assert list(game.agents) == ["planner"]
    assert game.tasks("eval") == build(PlanPath).tasks("eval")
    (done,) = played(game, MAZE, ("#### [R, R]",))
    assert done.rewards == pytest.approx({"planner": 2 * ALL_RIGHT})


@pytest.mark.parametrize("kind", GAMES)
def test_a_person_gives_the_team_a_puzzle(kind):
    game = build(kind, train_tasks=1, eval_tasks=1)
    (task,) = game.tasks("eval")
    text = "\n".join(task.fields["rows"])
    assert game.chat_task(text).fields == task.fields
    assert game.chat_answer(task, {"planner": " #### [R] "}) == "#### [R]"
    with pytest.raises(ConfigError, match="expected"):
        game.chat_task("what?")
