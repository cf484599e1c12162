import pytest

from motet.errors import ConfigError
from motet_view.index import GameIndex
from motet_view.queries import (
    MOST_OF_A_PAGE,
    GameFilter,
    choices,
    games_of_task,
    list_games,
    neighbours,
)
from tests.fixtures.recorded_runs import make_run


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> GameIndex:
    found = GameIndex(make_run(tmp_path_factory.mktemp("runs")))
    found.update()
    return found


def _found(index: GameIndex, **wanted) -> list[tuple[int, str]]:
    with index.reading() as database:
        page = list_games(database, GameFilter(**{"count": 200, "order": "oldest", **wanted}))
    assert page["total"] == len(page["games"])
    return [(one["step"], one["task"]) for one in page["games"]]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 16),
        ({"kind": "train"}, 12),
        ({"kind": "evaluate"}, 4),
        ({"first_step": 3}, 8),
        ({"kind": "train", "first_step": 2, "last_step": 3}, 6),
        ({"success": True}, 1),  # held 1 after the last step
        ({"success": False}, 15),
        ({"fault": "any"}, 1),
        ({"fault": "none"}, 15),
        ({"fault": "reward/Timeout"}, 1),
        ({"fault": "reward/%"}, 0),
        ({"fault": "reward"}, 0),
        ({"cut": True}, 4),
        ({"cut": False}, 12),
        ({"task": "sum 1"}, 4),
        ({"text": "zebra"}, 4),
        ({"text": "zeb"}, 4),
        ({"text": "zeb "}, 0),  # a whole word
        ({"text": "ZEBRA bob"}, 4),
        ({"text": "zebra", "agent": "ann"}, 4),
        ({"text": "ann bob"}, 16),  # each word by another agent
        ({"text": "held ann"}, 4),  # in the task, and by an agent
        ({"text": "ann bob", "agent": "ann"}, 0),
        ({"text": "ann", "agent": "bob"}, 0),
        ({"text": 'lion" OR "tiger'}, 0),  # no operators: a game has all the words
        ({"text": "NOT zebra"}, 0),
        ({"text": "***"}, 0),
        ({"text": "   "}, 16),
        ({"text": "held"}, 4),  # the task
        ({"lowest": 1.0, "kind": "evaluate"}, 1),
        ({"highest": 0.4, "agent": "ann", "kind": "train"}, 4),
        ({"agent": "nobody"}, 0),
    ],
)
def test_a_filter_keeps_the_games_that_match(index: GameIndex, wanted: dict, count: int) -> None:
    assert len(_found(index, **wanted)) == count


def test_orders(index: GameIndex) -> None:
    assert _found(index, order="newest")[0][0] == 4
    assert _found(index, order="oldest")[0] == (0, "held 1")
    assert _found(index, order="best")[0] == (4, "sum 1")
    assert _found(index, order="worst")[0] == (0, "held 1")
    with pytest.raises(ConfigError, match="got the order 'x'; expected one of newest"):
        _found(index, order="x")


def test_pages_are_parts_of_the_whole_and_have_a_largest_size(index: GameIndex) -> None:
    with index.reading() as database:
        pages = [list_games(database, GameFilter(start=at, count=6)) for at in (0, 6, 12)]
        whole = list_games(database, GameFilter(count=10 * MOST_OF_A_PAGE))
    assert [len(page["games"]) for page in pages] == [6, 6, 4]
    assert [one for page in pages for one in page["games"]] == whole["games"]


def test_filters_offer_what_there_is(index: GameIndex) -> None:
    with index.reading() as database:
        found = choices(database)
    assert found["agents"] == ["ann", "bob"]
    assert found["causes"] == ["reward/Timeout"]
    assert found["kinds"] == [
        {"kind": "train", "first": 1, "last": 4, "games": 12},
        {"kind": "evaluate", "first": 0, "last": 4, "games": 4},
    ]


def test_a_task_is_followed_through_the_steps(index: GameIndex) -> None:
    with index.reading() as database:
        assert [one["step"] for one in games_of_task(database, "sum 2")] == [1, 2, 3, 4]
        assert [one["step"] for one in games_of_task(database, "sum 2", most=2)] == [1, 3]


def test_neighbours_end_at_both_ends(index: GameIndex) -> None:
    with index.reading() as database:
        ids = [row[0] for row in database.execute("SELECT id FROM games ORDER BY id")]
        assert neighbours(database, ids[0]) == {"previous": None, "next": ids[1]}
        assert neighbours(database, ids[-1]) == {"previous": ids[-2], "next": None}
