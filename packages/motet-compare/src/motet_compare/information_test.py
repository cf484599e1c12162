"""Bits that messages share with answers, by hand; and messages of other tasks share none."""

import random
from itertools import pairwise
from math import log

import numpy as np
import pytest

from motet.core import Completion, Outcome, Round, Task
from motet.evaluation.playthrough import Playthrough
from motet_compare.information import mutual_information, shared_bits


def bits(*pairs):
    return mutual_information(*map(np.array, zip(*pairs, strict=True)))


def test_equal_messages_and_answers_share_their_entropy():
    # 1 bit of two equally frequent ones, of 8 games: the bias is (2 − 2 − 2 + 1) / (16 ln 2).
    assert bits(*[(0, 0), (1, 1)] * 4) == pytest.approx(1.0 + 1 / (16 * log(2)))


def test_one_answer_to_all_messages_shares_nothing():
    assert bits((0, 0), (1, 0), (2, 0), (0, 0)) == pytest.approx(0.0)


def test_independent_ones_share_nothing_but_what_is_taken_away():
    # All four pairs twice: the plug-in value is 0, and the bias (4 − 2 − 2 + 1) / (16 ln 2).
    every = [(0, 0), (0, 1), (1, 0), (1, 1)] * 2
    assert bits(*every) == pytest.approx(-1 / (16 * log(2)))


def test_a_table_by_hand():
    # p(0,0) = 3/6, p(0,1) = 1/6, p(1,1) = 2/6.
    plug_in = (
        1 / 2 * np.log2((1 / 2) / (4 / 6 * 3 / 6))
        + 1 / 6 * np.log2((1 / 6) / (4 / 6 * 3 / 6))
        + 1 / 3 * np.log2((1 / 3) / (2 / 6 * 3 / 6))
    )
    found = bits((0, 0), (0, 0), (0, 0), (0, 1), (1, 1), (1, 1))
    assert found == pytest.approx(plug_in)  # 3 pairs, 2 messages and 2 answers: no bias


def said(agent, text):
    return Round(
        0, {agent: "?"}, {agent: (0,)}, {agent: (Completion("p", text, "stop"),)}, ()
    ), Outcome({agent: 0}, {agent: 0.0}, end="done")


def game(*turns):
    """A game in which these (agent, text) follow each other."""
    return Playthrough(Task("t", {}), tuple(said(agent, text) for agent, text in turns))


def told(message, answer):
    return game(("a", message), ("b", answer))


WORDS = ("north", "south", "west")


def games_of(count, answer, seed, per_task=1):
    """`answer(message, that of the next task)` to a random message, for so many tasks."""
    draw = random.Random(seed)
    spoken = [draw.choice(WORDS) for _ in range(count + 1)]
    return [
        [told(message, answer(message, other))] * per_task for message, other in pairwise(spoken)
    ]


def test_a_reader_that_does_what_it_is_told_shares_all_bits():
    (found,) = shared_bits(games_of(60, lambda own, other: f" {own}!", 3), "a", 0, seed=1)
    assert (found.sender, found.turn, found.reader, found.answered) == ("a", 1, "b", 2)
    assert (found.games, found.messages, found.answers) == (60, 3, 3)
    assert found.bits == pytest.approx(log(3) / log(2), abs=0.05)
    assert found.bits > found.by_chance[1]


@pytest.mark.parametrize("per_task", [1, 3])
def test_messages_of_another_problem_carry_nothing(per_task):
    """The reader answers the message of the next task: what it was told has no part in it. 5 of
    100 intervals may miss; that more than 6 of 40 do has a probability of 0.3 %."""
    missed = 0
    for seed in range(40):
        games = games_of(60, lambda own, other: other, seed, per_task)
        (found,) = shared_bits(games, "a", 0, seed)
        missed += not found.by_chance[0] <= found.bits <= found.by_chance[1]
    assert missed <= 6


def test_most_of_what_chance_shares_is_taken_away():
    """It is (3 − 1)² / (2 · 40 ln 2) = 0.072 bits to the first order. The interval by chance has
    the rest in it."""
    draw = np.random.default_rng(0)
    found = [
        mutual_information(draw.integers(3, size=40), draw.integers(3, size=40))
        for _ in range(2000)
    ]
    assert abs(np.mean(found)) < 0.072 / 4


def test_many_different_answers_are_not_measured():
    games = [[told("a", f"{number}")] for number in range(20)]
    assert len(shared_bits(games, "a", 0, seed=0)) == 1  # one message: 20 pairs, 20 games
    games += [[told("b", "0")]]
    assert shared_bits(games, "a", 0, seed=0) == []


def test_each_reader_answers_once_at_the_first_turn_after_the_message():
    turns = [("a", "x"), ("b", "1"), ("a", "y"), ("c", "2"), ("b", "3")]
    found = shared_bits([[game(*turns)], [game(*turns)]], "a", 0, seed=0)
    assert [(one.reader, one.answered) for one in found] == [("b", 2), ("c", 4)]
    later = shared_bits([[game(*turns)], [game(*turns)]], "a", 2, seed=0)
    assert [(one.reader, one.answered) for one in later] == [("b", 5), ("c", 4)]
    assert shared_bits([[game(*turns)], [game(*turns)]], "b", 4, seed=0) == []
