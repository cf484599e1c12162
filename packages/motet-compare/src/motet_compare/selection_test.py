from motet.core import Task
from motet_compare.selection import best_game, majority_game, verbatim
from tests.fixtures.finished_games import BROKE, LOST, TASK, WON, game, saying


def first_letter(task, texts):
    assert task == Task("t", {})
    return texts["a"][:1] or None


def test_the_best_game_succeeds_then_has_the_highest_reward_and_is_the_first_of_equals():
    twin, rich = (
        game((1.0, {"success": 1.0})),
        game((0.9, {"success": 0.0}), (0.9, {"success": 0.0})),
    )
    assert rich.reward > WON.reward
    assert best_game([LOST, BROKE, rich, WON, twin]) is WON
    assert best_game([twin, WON]) is twin
    assert best_game([LOST, rich]) is rich
    assert best_game([BROKE]) is None
    assert best_game([]) is None


def test_the_commonest_answer_is_the_first_game_that_gives_it():
    games = saying("x", "ya", "yb", "z")
    assert majority_game(games, first_letter) is games[1]
    assert majority_game(games, verbatim) is games[0]


def test_ties_go_to_what_was_seen_first():
    games = saying("y", "x", "x", "y")
    assert majority_game(games, first_letter) is games[0]


def test_a_game_without_an_answer_does_not_vote():
    games = saying("", "", "x")
    assert majority_game(games, first_letter) is games[2]
    mute = saying("", "")
    assert majority_game(mute, first_letter) is mute[0]
    assert majority_game([BROKE, games[2]], first_letter) is games[2]
    assert majority_game([BROKE], first_letter) is None


def test_verbatim_tells_agents_apart():
    assert (
        verbatim(TASK, {"a": "x", "b": "y"})
        == verbatim(TASK, {"b": "y", "a": "x"})
        != verbatim(TASK, {"a": "y", "b": "x"})
    )
