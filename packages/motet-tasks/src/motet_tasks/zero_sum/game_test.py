import asyncio
from dataclasses import replace

import pytest

from motet.core import Reply, Task
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.zero_sum.bluff import Bluff
from motet_tasks.zero_sum.game import ANN, BOB, meant
from motet_tasks.zero_sum.kuhn_poker import KuhnPoker
from motet_tasks.zero_sum.tic_tac_toe import TicTacToe

GAMES = (TicTacToe, KuhnPoker, Bluff)
OPPONENTS = ("self", "random", "optimal")
FIRST = Task("one", {"deal": 0, "first": ANN})
SECOND = Task("two", {"deal": 0, "first": BOB})


def game(kind, **options):
    return kind(kind.Options(**options))


def played(environment, task, *texts, seed=0):
    """Return the last transition of a game in which whoever moves says the next text."""

    async def run():
        state = await environment.start(task, seed)
        for text in texts:
            (mover,) = environment.observe(state)
            said = await environment.step(state, {mover: Reply(text)}, seed)
            state = said.state
        return said

    return asyncio.run(run())


def at_random(environment, task, seed):
    """Return the last transition of a game of random legal moves."""

    async def run():
        state, turn = await environment.start(task, seed), 0
        while True:
            (mover,) = environment.observe(state)
            moves = environment.rules.moves(state.position)
            move = moves[(seed * 7 + turn * 3) % len(moves)]
            said = await environment.step(state, {mover: Reply(move)}, seed)
            if said.done:
                return said
            state, turn = said.state, turn + 1

    return asyncio.run(run())


@pytest.mark.parametrize("kind", GAMES)
@pytest.mark.parametrize("opponent", OPPONENTS)
def test_it_keeps_the_rules_of_environments(kind, opponent):
    check_environment(game(kind, opponent=opponent))


@pytest.mark.parametrize("kind", GAMES)
@pytest.mark.parametrize("opponent", OPPONENTS)
def test_rewards_add_up_to_zero_and_success_is_the_share_of_the_stake(kind, opponent):
    environment = game(kind, opponent=opponent)
    for number, task in enumerate(environment.tasks("eval")[:24]):
        said = at_random(environment, task, number)
        ann = said.rewards[ANN]
        assert said.rewards == {ANN: ann, BOB: -ann}
        assert said.success == (ann + environment.rules.stake) / (2 * environment.rules.stake)
        assert said.metrics["won"] + said.metrics["drawn"] + said.metrics["lost"] == 1.0
        assert said.metrics["first"] == (ann if task.fields["first"] == ANN else -ann)


@pytest.mark.parametrize("kind", GAMES)
def test_who_moves_without_a_legal_move_loses_the_stake(kind):
    environment = game(kind)
    stake = environment.rules.stake
    for task, mover in ((FIRST, ANN), (SECOND, BOB)):
        said = played(environment, task, "I have no idea.")
        assert said.done
        assert said.rewards[mover] == -stake
        assert said.metrics[f"illegal/{mover}"] == 1.0
        assert sum(said.metrics[f"illegal/{agent}"] for agent in (ANN, BOB)) == 1.0


@pytest.mark.parametrize("kind", GAMES)
def test_each_deal_is_played_equally_often_from_each_seat(kind):
    environment = game(kind)
    for split, count in (("train", 1200), ("eval", 240)):
        tasks = environment.tasks(split)
        kinds = {(task.fields["deal"], task.fields["first"]) for task in tasks}
        deals = len(environment.rules.deals)
        assert (len(tasks), len(kinds)) == (count, 2 * deals)
        for deal, first in kinds:
            alike = [task for task in tasks if task.fields == {"deal": deal, "first": first}]
            assert len(alike) == count // (2 * deals)
    with pytest.raises(ConfigError, match="train, eval"):
        environment.tasks("test")


def test_an_opponent_of_the_environment_moves_for_bob_and_depends_on_the_seed_alone():
    environment = game(TicTacToe, opponent="random")

    def begun(seed):
        return asyncio.run(environment.start(SECOND, seed))

    assert begun(1) == begun(1)
    assert len({begun(seed).position for seed in range(60)}) == 9
    assert all(list(environment.observe(begun(seed))) == [ANN] for seed in range(5))
    assert asyncio.run(environment.start(FIRST, 0)).position == " " * 9


def test_the_rules_are_in_the_prompt_unless_they_are_switched_off():
    for shown in (True, False):
        environment = game(KuhnPoker, show_rules=shown)
        state = asyncio.run(environment.start(FIRST, 0))
        ((message,),) = environment.observe(state).values()
        assert message.content.endswith("You hold the jack. Pass or bet?")
        assert message.content.startswith("You play a poker") == shown


def test_demonstrations_are_legal_moves_of_both_players_at_every_turn():
    environment = game(KuhnPoker)
    shown = [
        environment.demonstrate(task, seed) for seed, task in enumerate(environment.tasks("train"))
    ]
    assert {(one.agent, one.turn) for one in shown} == {
        (a, t) for a in (ANN, BOB) for t in range(3)
    }
    assert {one.text for one in shown} == {"pass", "bet"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bet", "bet"),
        ("I CALL!", "bet"),
        ("[fold]", "pass"),
        ("bet, or rather call", "bet"),
        ("bet or pass", None),
        ("I will not bet", None),
        ("I don’t call", None),
        ("better", None),
        ("", None),
    ],
)
def test_a_text_means_a_move_if_it_says_one_only(text, found):
    assert meant(text, {"bet": "bet", "call": "bet", "pass": "pass", "fold": "pass"}) == found


def test_the_listener_reads_the_words_of_the_speaker():
    environment = game(Bluff)
    state = replace(asyncio.run(environment.start(FIRST, 0)))
    said = asyncio.run(environment.step(state, {ANN: Reply("On my honour, it is high. ")}, 0))
    ((message,),) = environment.observe(said.state).values()
    assert message.content.endswith('"On my honour, it is high.". Do you believe or doubt it?')
    assert list(environment.observe(said.state)) == [BOB]
