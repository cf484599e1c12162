import asyncio

import pytest

from motet.core import Reply
from motet_tasks.zero_sum.game_test import FIRST, SECOND, game, played
from motet_tasks.zero_sum.tic_tac_toe import RULES, TicTacToe, value


def test_without_errors_it_is_a_draw_and_two_threats_win():
    assert value(" " * 9) == 0.0
    assert value("XX OO    ") == 1.0, "X completes its row"
    assert value("XO  X   O") == 1.0, "X takes 7, which threatens at 3 and 4"


def test_three_in_a_row_win():
    said = played(game(TicTacToe), FIRST, *"14253")
    assert (said.done, said.rewards, said.success) == (True, {"ann": 1.0, "bob": -1.0}, 1.0)
    assert said.metrics == {
        "won": 1.0, "drawn": 0.0, "lost": 0.0, "illegal/ann": 0.0, "illegal/bob": 0.0, "first": 1.0
    }  # fmt: skip
    second = played(game(TicTacToe), SECOND, *"14253")
    assert (second.rewards, second.success) == ({"ann": -1.0, "bob": 1.0}, 0.0)
    assert second.metrics["first"] == 1.0


def test_a_taken_square_loses():
    said = played(game(TicTacToe), FIRST, "5", "5")
    assert said.rewards == {"ann": 1.0, "bob": -1.0}
    assert said.metrics["illegal/bob"] == 1.0
    assert said.metrics["won"] == 1.0


def test_a_full_board_is_a_draw():
    said = played(game(TicTacToe), FIRST, *"123546879")
    assert (said.done, said.rewards["ann"], said.success) == (True, 0.0, 0.5)


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("5", "5"),
        ("Square 5.", "5"),
        ("not 3 but [5]", "5"),
        ("[ 5 ]", "5"),
        ("5 5", "5"),
        ("5 or 6", None),
        ("[5] [6]", None),
        ("55", "55"),
        ("five", None),
        ("", None),
    ],
)
def test_a_move_is_the_only_number_of_a_text(text, move):
    assert RULES.read(RULES.deals[0], text) == move


def test_who_moves_reads_whose_the_squares_are():
    assert RULES.told("X O X    ") == "You: 3\nOther: 1 5\nFree: 2 4 6 7 8 9\nYour square?"
    assert RULES.told("X O      ").startswith("You: 1\nOther: 3\n")
    assert RULES.told(" " * 9).startswith("You: none\nOther: none\nFree: 1 2 3 ")


def test_a_demonstration_completes_three_in_a_row_and_blocks_none():
    environment = game(TicTacToe)
    assert environment.shown("XX OO    ") == ["3"]
    assert environment.shown("XX OO X  ") == ["6"]
    assert environment.shown("XX  O    ") == ["3", "4", "6", "7", "8", "9"]
    task = environment.tasks("train")[0]
    shown = {environment.demonstrate(task, seed).text for seed in range(99)}
    assert shown == set("123456789")


def test_the_optimal_player_never_loses_and_punishes_errors():
    environment = game(TicTacToe, opponent="optimal")
    for seed in range(20):
        for task, squares in ((FIRST, "219"), (SECOND, "298")):
            said = played_while_legal(environment, task, squares, seed)
            assert said.rewards["ann"] <= 0.0
    assert RULES.optimal("XX OO    ") == {"3": 1.0}


def played_while_legal(environment, task, squares, seed):
    """Play the free square of the lowest number, `squares` first, until the game ends."""

    async def run():
        state = await environment.start(task, seed)
        while True:
            free = RULES.moves(state.position)
            move = next((square for square in squares if square in free), free[0])
            said = await environment.step(state, {"ann": Reply(move)}, seed)
            if said.done:
                return said
            state = said.state

    return asyncio.run(run())
