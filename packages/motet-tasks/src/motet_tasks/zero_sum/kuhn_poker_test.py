import pytest

from motet_tasks.zero_sum.exploitability import exploitability, information_sets, mean_reward
from motet_tasks.zero_sum.game_test import FIRST, SECOND, game, played
from motet_tasks.zero_sum.kuhn_poker import EQUILIBRIUM, RULES, VALUE, Hand, KuhnPoker


def betting(chance):
    """Return the policy that bets with the same probability everywhere."""
    return {known: {"pass": 1 - chance, "bet": chance} for known in EQUILIBRIUM}


@pytest.mark.parametrize(
    ("moves", "ann"),
    [
        (("pass", "pass"), -1.0),
        (("pass", "bet", "pass"), -1.0),
        (("pass", "bet", "bet"), -2.0),
        (("bet", "pass"), 1.0),
        (("bet", "bet"), -2.0),
    ],
)
def test_the_jack_of_the_first_loses_to_the_queen_unless_the_second_folds(moves, ann):
    said = played(game(KuhnPoker), FIRST, *moves)
    assert (said.done, said.rewards) == (True, {"ann": ann, "bob": -ann})
    assert said.success == (ann + 2) / 4
    assert played(game(KuhnPoker), SECOND, *moves).rewards["bob"] == ann


def test_each_player_reads_its_own_card_and_the_moves():
    hand = Hand(("queen", "king"), ("pass", "bet"))
    assert RULES.told(hand) == "You hold the queen. You pass. They bet. Pass or bet?"
    assert RULES.known(hand) == "queen, pass, bet"
    other = Hand(("queen", "king"), ("pass",))
    assert RULES.told(other) == "You hold the king. They pass. Pass or bet?"
    assert RULES.told(Hand(("jack", "king"), ("pass",))) == RULES.told(other)


@pytest.mark.parametrize(
    ("text", "move"), [("Check.", "pass"), ("I call", "bet"), ("raise", None), ("call/fold", None)]
)
def test_check_fold_and_call_are_understood(text, move):
    assert RULES.read(RULES.deals[0], text) == move


def test_there_are_twelve_information_sets():
    first, second = information_sets(RULES)
    assert (len(first), len(second)) == (6, 6)
    assert first.keys() | second.keys() == EQUILIBRIUM.keys()


@pytest.mark.parametrize("bluffs", [0.0, 0.1, 1 / 3])
def test_every_equilibrium_of_kuhn_has_exploitability_0(bluffs):
    own = {"jack": bluffs, "king": 3 * bluffs, "queen, pass, bet": bluffs + 1 / 3}
    policy = EQUILIBRIUM | {known: {"pass": 1 - bet, "bet": bet} for known, bet in own.items()}
    assert exploitability(RULES, policy) == pytest.approx(0.0, abs=1e-12)
    assert mean_reward(RULES, policy) == pytest.approx(VALUE)


def test_by_hand_who_always_passes_loses_a_chip_to_every_bet():
    assert exploitability(RULES, betting(0.0)) == 1.0


def test_by_hand_who_always_bets_is_called_with_a_king_or_queen():
    """Either seat wins 2 with the king, 0 with the queen, and folds the jack: (2 + 0 - 1)/3."""
    assert exploitability(RULES, betting(1.0)) == pytest.approx(1 / 3)


def test_by_hand_who_plays_at_random_loses_eleven_24ths():
    """The first wins 3/2 with the king, 1/2 with the queen and -1/2 with the jack; the second 7/4,
    1/4 and -3/4. So they win 1/2 and 5/12."""
    assert exploitability(RULES, betting(0.5)) == pytest.approx(11 / 24)


def test_what_is_missing_to_one_loses_the_stake():
    """Who never makes a legal move loses two chips. With half of the moves illegal, an opponent
    that passes first wins two chips in half of the games."""
    silent: dict[str, dict[str, float]] = {known: {} for known in EQUILIBRIUM}
    assert exploitability(RULES, silent) == 2.0
    half = {known: {"pass": 0.5} for known in EQUILIBRIUM}
    # Seat 0 bets: 1 or 2. Seat 1 waits: 2, or the other passes, and a bet gets 1 or 2 again.
    assert exploitability(RULES, half) == pytest.approx((1.5 + (0.5 * 2 + 0.5 * 1.5)) / 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"jack": {"pass": 0.7, "bet": 0.7}}, "add up to at most 1"),
        ({"jack": {"raise": 1.0}}, "probabilities of pass, bet"),
        ({"jack": {"bet": -0.1}}, "jack"),
    ],
)
def test_a_policy_that_is_no_distribution_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        exploitability(RULES, EQUILIBRIUM | wrong)
    with pytest.raises(ValueError, match="nothing for 'jack'"):
        exploitability(RULES, {known: own for known, own in EQUILIBRIUM.items() if known != "jack"})
