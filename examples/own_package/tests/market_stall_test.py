"""The game keeps Motet's rules, and its prices and rewards are those of a reckoning by hand."""

import pytest
from market_stall.game import MarketStall, Trade
from market_stall.rewards import fair_deal

import motet


def test_the_game_keeps_the_rules_of_an_environment():
    motet.check_environment(MarketStall(MarketStall.Options()))


@pytest.mark.parametrize(
    ("offer", "answer", "price"),
    [
        ("4", "yes", 4),
        ("3", "yes", 3),
        ("5", "yes", 5),
        ("4", "no", None),
        ("2", "yes", None),  # below the cost
        ("6", "yes", None),  # more than the buyer has
        ("four", "yes", None),
    ],
)
def test_a_deal_needs_a_yes_and_a_price_between_the_cost_and_the_coins(offer, answer, price):
    assert Trade(5, 3, offer, answer).price == price


@pytest.mark.parametrize(("offer", "reward"), [("1", 0.5), ("2", 0.75), ("3", 1.0), ("5", 0.5)])
def test_a_deal_in_the_middle_earns_most(offer, reward):
    task = motet.Task("trade", {"coins": 5, "cost": 1})
    transition = motet.Transition(Trade(5, 1, offer, "yes"), {}, True)
    assert fair_deal(task, {}, transition).rewards == reward


def test_the_reward_of_an_offer_without_an_answer_is_zero():
    task = motet.Task("trade", {"coins": 5, "cost": 1})
    assert fair_deal(task, {}, motet.Transition(Trade(5, 1, "3"), {}, False)).rewards == 0.0
