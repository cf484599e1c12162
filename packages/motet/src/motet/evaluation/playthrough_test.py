import pytest

from motet.core import Episode, Outcome, Round
from motet.evaluation.playthrough import (
    TurnSummary,
    by_turn,
    mean_of,
    playthroughs,
    rewards,
    successes,
)
from tests.fixtures.finished_games import (
    BROKE,
    BROKEN,
    LOST,
    TASK,
    WON,
    broken,
    game,
    outcome,
    round_,
    said,
)
from tests.fixtures.messages import facts


def test_an_episode_comes_apart_into_its_games():
    second = round_(1, ["four"], outcome(0, 2.0, success=1.0))
    root = round_(
        0, ["x", "yy", "z"], outcome(0, 1.0, second), broken(1), outcome(2, 5.0, success=0.0)
    )
    long, fault, short = playthroughs(Episode("e", TASK, root))
    assert (long.reward, long.success, long.tokens) == (3.0, 1.0, 1 + 2 + 4 + 8)
    assert long.last_words == {"a": "four", "b": "fourfour"}
    assert (fault.fault, fault.tokens) == (BROKEN, 2 + 4)
    with pytest.raises(ValueError, match=facts("task t … failed … turn 0")):
        fault.reward  # noqa: B018
    assert (short.reward, short.success, short.tokens) == (5.0, 0.0, 1 + 2)
    assert short.last_words == {"a": "z", "b": "zz"}


def test_an_agent_that_is_silent_at_the_end_keeps_its_last_word():
    alone = Round(
        1,
        {"a": "?"},
        {"a": (1,)},
        {"a": (said("end"),)},
        (Outcome({"a": 0}, {"a": 0.0, "b": 0.0}, end="done"),),
    )
    (one,) = playthroughs(Episode("e", TASK, round_(0, ["x"], outcome(0, 0.0, alone))))
    assert one.last_words == {"a": "end", "b": "xx"}


def test_what_was_said_by_a_turn_is_that_of_the_turn_or_of_the_end_of_the_game():
    last = Round(
        1,
        {"a": "?"},
        {"a": (1,)},
        {"a": (said("end"),)},
        (Outcome({"a": 0}, {"a": 0.0, "b": 0.0}, end="done"),),
    )
    root = round_(0, ["x", "y"], outcome(0, 0.0, last), outcome(1, 0.0))
    long, short = playthroughs(Episode("e", TASK, root))
    assert [long.words_by(turn) for turn in (0, 1)] == [
        {"a": "x", "b": "xx"},
        {"a": "end", "b": "xx"},
    ]
    assert [short.words_by(turn) for turn in (0, 1)] == [{"a": "y", "b": "yy"}] * 2
    assert [long.tokens_by(turn) for turn in (0, 1)] == [1 + 2, 1 + 2 + 3]
    assert [short.tokens_by(turn) for turn in (0, 1)] == [1 + 2] * 2


def test_an_episode_that_broke_as_a_whole_has_no_games_and_a_tree_is_refused():
    assert playthroughs(Episode("e", TASK, None, fault=BROKEN)) == []
    tree = round_(
        0, ["x"], outcome(0, 0.0, round_(1, ["x", "y"], outcome(0, 0.0), outcome(1, 0.0)))
    )
    with pytest.raises(ValueError):
        playthroughs(Episode("e", TASK, tree))


def test_a_task_is_worth_the_mean_of_the_games_that_held():
    mute = game((7.0, {}))
    games = [[WON, LOST, BROKE], [BROKE], [], [mute, WON]]
    assert rewards(games) == [0.5, None, None, 4.0]
    assert successes(games) == [0.5, None, None, 0.5]
    assert successes([[mute], [BROKE]]) == [None, None]
    assert mean_of(successes(games)) == 0.5
    assert mean_of([None]) is None


def test_a_game_that_was_over_counts_in_later_turns_with_what_it_ended_with():
    solved_late = game((0.25, {"success": 0.0}), (1.0, {"success": 1.0}))
    # Two tasks: one has two games that end at turn one and turn two, the other one game of one
    # turn.
    first, second = by_turn([[WON, solved_late], [LOST, BROKE]])
    assert first == TurnSummary(
        played=1.0, reward=(0.625 + 0.0) / 2, success=(0.5 + 0.0) / 2, terms={"success": 0.25}
    )
    assert second == TurnSummary(
        played=(0.5 + 0.0) / 2, reward=1.0, success=(1.0 + 0.0) / 2, terms={"success": 1.0}
    )


def test_a_turn_at_which_nobody_says_success_has_none():
    talk = game((0.0, {}), (1.0, {"success": 1.0}))
    assert [turn.success for turn in by_turn([[talk]])] == [None, 1.0]
    assert by_turn([[BROKE], []]) == []


def test_a_term_of_a_turn_is_averaged_over_the_games_that_came_to_it_and_have_it():
    games = [
        [game((0.0, {"a": 1.0})), game((0.0, {"a": 0.0, "b": 3.0}), (0.0, {"a": 5.0})), BROKE],
        [game((0.0, {}))],
    ]
    assert [turn.terms for turn in by_turn([*games, [game((0.0, {"a": 0.0}))]])] == [
        {"a": (0.5 + 0.0) / 2, "b": 3.0},
        {"a": 5.0},
    ]
