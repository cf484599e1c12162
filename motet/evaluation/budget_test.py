from motet.core import Episode, Task
from motet.evaluation.budget import affordable, best, commonest, groups, tokens_per_group, verbatim
from motet.evaluation.playthrough import playthroughs
from tests.fixtures.finished_games import BROKE, LOST, TASK, WON, game, outcome, round_


def saying(*texts):
    """One game per text; agent a says it, agent b says it twice; three tokens per letter."""
    root = round_(0, texts, *(outcome(pick, 0.0) for pick in range(len(texts))))
    return playthroughs(Episode("e", TASK, root))


def first_letter(task, texts):
    assert task == Task("t", {})
    return texts["a"][:1] or None


def test_the_best_game_succeeds_then_has_the_highest_reward_and_is_the_first_of_equals():
    twin, rich = (
        game((1.0, {"success": 1.0})),
        game((0.9, {"success": 0.0}), (0.9, {"success": 0.0})),
    )
    assert rich.reward > WON.reward
    assert best([LOST, BROKE, rich, WON, twin]) is WON
    assert best([twin, WON]) is twin
    assert best([LOST, rich]) is rich
    assert best([BROKE]) is None
    assert best([]) is None


def test_the_commonest_answer_is_the_first_game_that_gives_it():
    games = saying("x", "ya", "yb", "z")
    assert commonest(games, first_letter) is games[1]
    assert commonest(games, verbatim) is games[0]


def test_ties_go_to_what_was_seen_first():
    games = saying("y", "x", "x", "y")
    assert commonest(games, first_letter) is games[0]


def test_who_answers_nothing_does_not_vote():
    games = saying("", "", "x")
    assert commonest(games, first_letter) is games[2]
    mute = saying("", "")
    assert commonest(mute, first_letter) is mute[0]
    assert commonest([BROKE, games[2]], first_letter) is games[2]
    assert commonest([BROKE], first_letter) is None


def test_verbatim_tells_agents_apart():
    assert (
        verbatim(TASK, {"a": "x", "b": "y"})
        == verbatim(TASK, {"b": "y", "a": "x"})
        != verbatim(TASK, {"a": "y", "b": "x"})
    )


def test_games_answer_in_whole_groups():
    games = saying("v", "w", "x", "y", "z")
    assert [list(group) for group in groups(games, 2)] == [games[:2], games[2:4]]
    assert [list(group) for group in groups(games, 5)] == [games]
    assert groups(games, 6) == []


def test_tasks_count_alike_in_the_tokens_of_an_answer():
    games = [saying("x", "xxx", "x"), saying("x", "x")]
    assert tokens_per_group(games, 1) == ((3 + 9 + 3) / 3 + 3) / 2
    assert tokens_per_group(games, 2) == (12 + 6) / 2
    assert tokens_per_group([[], saying("x")], 1) == 3.0
    assert tokens_per_group([[]], 1) == 0.0


def test_as_many_games_as_the_tokens_allow_but_one_at_least():
    # One game costs 3 and 5 tokens (mean over tasks: 4); the first two cost 6 and 12; all three
    # cost 9 and 15.
    games = [saying("x", "x", "x"), saying("x", "xxx", "x")]
    assert [affordable(games, budget) for budget in (0.0, 4.0, 8.9, 9.0, 11.9, 12.0, 99.0)] == [
        1,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert affordable([[], saying("x", "x")], 6.0) == 2
    assert affordable([[]], 6.0) == 1
