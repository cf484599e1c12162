import random

import pytest

from motet.core import End, Episode, Outcome, Round
from motet.evaluation.influence import Change, Pair, influence
from motet.evaluation.playthrough import by_turn, playthroughs
from tests.fixtures.finished_games import BROKEN, TASK, WON, broken, outcome, round_


def debate(turn: int, *outcomes: Outcome) -> Round:
    return Round(turn, {"a": "?", "b": "?"}, {"a": (1,), "b": (1,)}, {}, outcomes)


def said(
    right: str,
    next: Round | None = None,
    end: End = "limit",
    rewards: tuple[float, float] = (0.0, 0.0),
) -> Outcome:
    """An outcome. `right` names the agents that are right: "", "a", "b" or "ab". The majority is
    right only for "ab"."""
    terms = {
        "right/a": float("a" in right),
        "right/b": float("b" in right),
        "majority": float(right == "ab"),
    }
    picks = {"a": 0, "b": 0}
    return Outcome(picks, dict(zip("ab", rewards, strict=True)), terms, next, None if next else end)


def path(*rights: str, turn: int = 0) -> Outcome:
    return said(
        rights[0], debate(turn + 1, path(*rights[1:], turn=turn + 1)) if rights[1:] else None
    )


def games(*outcomes: Outcome) -> Episode:
    """The games of one task."""
    return Episode("e", TASK, debate(0, *outcomes))


def change(
    improved: float = 0.0,
    declined: float = 0.0,
    kept_right: float = 0.0,
    kept_wrong: float = 0.0,
    *,
    of: tuple[float | None, float | None],
    counts: tuple[int, int, int],
) -> Change:
    """A Change. `of` is (corrected, spoiled).

    `counts` is (wrong_to_right, right_to_wrong, persuasions).
    """
    return Change(improved, declined, kept_right, kept_wrong, *of, *counts)


def test_one_game_of_three_turns_is_told_as_it_went() -> None:
    """b is right and a follows; then b changes to a wrong answer."""
    found = influence([games(path("b", "ab", "a"))])
    assert found is not None
    assert [turn.right for turn in found.turns] == [
        {"a": 0.0, "b": 1.0},
        {"a": 1.0, "b": 1.0},
        {"a": 1.0, "b": 0.0},
    ]
    assert [(turn.mean, turn.majority) for turn in found.turns] == [
        (0.5, 0.0),
        (1.0, 1.0),
        (0.5, 0.0),
    ]
    first, second = found.steps
    assert first.agents["a"] == change(improved=1.0, of=(1.0, None), counts=(1, 0, 1))
    assert first.agents["b"] == change(kept_right=1.0, of=(None, 0.0), counts=(0, 0, 0))
    assert first.team == change(improved=0.5, kept_right=0.5, of=(1.0, 0.0), counts=(1, 0, 1))
    assert second.team == change(declined=0.5, kept_right=0.5, of=(None, 0.5), counts=(0, 1, 0))
    # of four answers, three were right before: one improved, one declined, two stayed right
    assert found.overall == change(
        0.25, 0.25, 0.5, of=(1.0, pytest.approx(1 / 3)), counts=(1, 1, 1)
    )
    assert found.pairs == [Pair("a", "b", None, 0, 0.0, 1), Pair("b", "a", 1.0, 1, None, 0)]


def test_in_a_tree_every_branch_has_its_share_and_what_broke_has_none() -> None:
    """Two first moves of weight 1/2 each: below a's right one, two valid moves of 1/4; below the
    other, one of 1/2."""
    convincing = said("a", debate(1, said("ab"), said(""), broken(2)))
    found = influence([games(convincing, said("", debate(1, said("a"))))])
    assert found is not None
    assert [turn.right for turn in found.turns] == [{"a": 0.5, "b": 0.0}, {"a": 0.75, "b": 0.25}]
    assert [turn.majority for turn in found.turns] == [0.0, 0.25]
    (step,) = found.steps
    assert step.agents["a"] == change(0.5, 0.25, 0.25, of=(1.0, 0.5), counts=(1, 1, 0))
    assert step.agents["b"] == change(0.25, kept_wrong=0.75, of=(0.25, None), counts=(1, 0, 1))
    assert (
        step.team
        == found.overall
        == change(0.375, 0.125, 0.125, 0.375, of=(0.5, 0.5), counts=(2, 1, 1))
    )
    assert found.pairs == [Pair("a", "b", 0.5, 2, None, 0), Pair("b", "a", None, 0, 0.5, 2)]


def test_an_opening_that_goes_on_stands_for_those_that_were_pruned() -> None:
    found = influence([games(said("b", end="pruned"), said("", debate(1, said("a"), said(""))))])
    assert found is not None
    assert found.turns[0].right == {"a": 0.0, "b": 0.5}
    assert found.steps[0].agents["a"] == change(
        improved=0.5, kept_wrong=0.5, of=(0.5, None), counts=(1, 0, 0)
    )
    assert [pair.persuadable for pair in found.pairs] == [
        0,
        0,
    ]  # no later move follows the pruned outcome


def test_games_that_are_over_are_in_no_later_turn() -> None:
    """One task ends at once; of the two games of the other task, one does."""
    found = influence([games(path("ab")), games(path("ab"), path("", "a"))])
    assert found is not None
    assert [turn.right for turn in found.turns] == [{"a": 0.75, "b": 0.75}, {"a": 1.0, "b": 0.0}]
    assert found.steps[0].team == change(
        improved=0.5, kept_wrong=0.5, of=(0.5, None), counts=(1, 0, 0)
    )
    only_one_turn = influence([games(path("a"))])
    assert only_one_turn is not None
    assert (only_one_turn.steps, only_one_turn.overall, only_one_turn.pairs) == ([], None, [])


def test_tasks_count_alike_however_many_games_were_played_of_them() -> None:
    """In the one game of a task, b sees a right answer and follows; of three games of another task,
    b sees one in a single game and does not follow."""
    found = influence([games(path("a", "ab")), games(path("a", "a"), path("", ""), path("", ""))])
    assert found is not None
    assert found.turns[0].right["a"] == pytest.approx((1 + 1 / 3) / 2)
    assert found.pairs[0] == Pair("a", "b", pytest.approx(1 / (1 + 1 / 3)), 2, None, 0)


def test_an_agent_that_improves_unheard_is_nobodys_persuasion() -> None:
    found = influence([games(path("", "ab"))])
    assert found is not None
    assert found.overall == change(improved=1.0, of=(1.0, None), counts=(2, 0, 0))
    assert [(pair.persuaded, pair.misled) for pair in found.pairs] == [(None, None)] * 2


def test_rewards_are_told_by_turn_and_agent() -> None:
    paid = said("a", debate(1, said("ab", rewards=(2.0, 3.0))), rewards=(1.0, 0.5))
    found = influence([games(paid, broken(1)), games(said("b", rewards=(0.0, 1.0)))])
    assert found is not None
    assert [turn.rewards for turn in found.turns] == [{"a": 0.5, "b": 0.75}, {"a": 2.0, "b": 3.0}]


def test_outside_debates_there_is_nothing_to_tell() -> None:
    one_agent_only = outcome(0, 0.0, **{"right/a": 1.0})
    assert influence([]) is None
    assert influence([Episode("e", TASK, None, fault=BROKEN)]) is None
    assert influence([Episode("e", TASK, WON.turns[0][0])]) is None
    assert influence([Episode("e", TASK, round_(0, ["x"], one_agent_only))]) is None


def test_on_straight_paths_the_figures_add_up_and_are_those_of_by_turn() -> None:
    draw = random.Random(0)
    episodes = [
        games(*(path(*draw.choices(["", "a", "b", "ab"], k=3)) for _ in range(1 + k % 3)))
        for k in range(20)
    ]
    found = influence(episodes)
    assert found is not None
    told = by_turn([playthroughs(episode) for episode in episodes])
    for turn, found_turn in zip(told, found.turns, strict=True):
        assert {
            f"right/{agent}": share for agent, share in found_turn.right.items()
        } == pytest.approx(
            {name: value for name, value in turn.terms.items() if name != "majority"}
        )
        assert found_turn.majority == pytest.approx(turn.terms["majority"])
    for before, step, after in zip(found.turns[:-1], found.steps, found.turns[1:], strict=True):
        for agent, one in step.agents.items():
            assert one.improved + one.declined + one.kept_right + one.kept_wrong == pytest.approx(
                1.0
            )
            assert before.right[agent] == pytest.approx(one.kept_right + one.declined)
            assert after.right[agent] == pytest.approx(one.kept_right + one.improved)
