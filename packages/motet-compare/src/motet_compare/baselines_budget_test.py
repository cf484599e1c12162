from motet_compare.baselines import affordable, groups, tokens_per_group
from tests.fixtures.finished_games import saying


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
