import pytest

from motet_tasks.zero_sum.bluff import EQUILIBRIUM, PAYS, RULES, VALUE, Bluff, Claim
from motet_tasks.zero_sum.exploitability import best_answer, exploitability, mean_reward
from motet_tasks.zero_sum.game_test import FIRST, SECOND, game, played

HONEST = {"holds high": {"high": 1.0}, "holds low": {"low": 1.0}}
TRUSTING = {"hears high": {"believe": 1.0}, "hears low": {"believe": 1.0}}


@pytest.mark.parametrize(("card", "claim", "answer"), PAYS)
def test_the_speaker_wins_what_the_table_says(card, claim, answer):
    deal = {"high": 0, "low": 1}[card]
    for task, speaker, listener in ((FIRST, "ann", "bob"), (SECOND, "bob", "ann")):
        dealt = type(task)(task.id, {**task.fields, "deal": deal})
        said = played(game(Bluff), dealt, f"I have a {claim} card.", f"I {answer} you.")
        wins = PAYS[card, claim, answer]
        assert said.rewards == {speaker: wins, listener: -wins}


@pytest.mark.parametrize(
    ("claim", "text", "move"),
    [
        ("", "I hold the high card, believe me.", "high"),
        ("", "It is low, do not doubt it.", None),
        ("", "high or low", None),
        ("high", "I doubt that it is high.", "doubt"),
        ("high", "I believe the card is high.", "believe"),
        ("high", "It is high.", None),
        ("low", "Believe or doubt?", None),
    ],
)
def test_the_words_of_the_other_players_moves_are_only_words(claim, text, move):
    assert RULES.read(Claim("high", claim), text) == move


def test_in_equilibrium_the_speaker_wins_a_third_of_a_chip():
    assert mean_reward(RULES, EQUILIBRIUM) == pytest.approx(VALUE)
    assert exploitability(RULES, EQUILIBRIUM) == pytest.approx(0.0, abs=1e-12)


def test_by_hand_a_trusting_listener_loses_a_chip_and_an_honest_speaker_wins_none():
    """A liar wins 1 from who believes it. From an honest speaker the listener loses 1 with high
    cards and wins 1 with low ones, if it believes."""
    policy = HONEST | TRUSTING
    assert best_answer(RULES, policy, 0) == 1.0
    assert best_answer(RULES, policy, 1) == 0.0
    assert exploitability(RULES, policy) == 0.5
