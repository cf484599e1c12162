"""Games of TextArena itself, played by hand."""

import asyncio
import random
import threading
from importlib.util import find_spec

import pytest

import motet
from motet.core import Reply, Team
from motet.errors import ConfigError, EnvironmentFault
from motet.rollout.play import check_plan
from motet.settings import Decode, Plan
from motet_foreign.textarena_game import TextArena

pytestmark = pytest.mark.skipif(find_spec("textarena") is None, reason="textarena is not installed")
NIM = {"game": "Nim-v0", "settings": {"piles": [1, 2]}}


def made(**options):
    return TextArena(TextArena.Options(**(NIM | options)))


def begun(game):
    return asyncio.run(game.start(game.tasks("train")[0], 0))


def moved(game, state, text, seed=0):
    (agent,) = game.observe(state)
    return asyncio.run(game.step(state, {agent: Reply(text)}, seed))


def acting(game, state):
    ((agent, prompt),) = game.observe(state).items()
    return agent, prompt[0].content


def test_players_act_in_turns_and_read_what_the_other_one_did():
    game = made()
    first = begun(game)
    assert acting(game, first)[0] == "player_0"
    second = moved(game, first, "[1 1]")
    assert (second.rewards, second.done) == ({"player_0": 0.0, "player_1": 0.0}, False)
    agent, read = acting(game, second.state)
    assert agent == "player_1"
    assert "[Player 0] [1 1]" in read


def test_whoever_takes_the_last_object_wins_and_the_other_loses():
    game = made()
    state = begun(game)
    for text in ("[1 1]", "[0 1]"):
        state = moved(game, state, text).state
    last = moved(game, state, "[1 1]")
    assert (last.done, last.rewards, last.success) == (True, {"player_0": 1, "player_1": -1}, 0.0)
    assert last.metrics == {"player_0_invalid": 0.0, "player_1_invalid": 0.0}


def test_two_invalid_moves_lose_and_are_counted():
    game = made()
    last = moved(game, moved(game, begun(game), "hello").state, "hello again")
    assert last.rewards == {"player_0": -1, "player_1": 1}
    assert last.metrics == {"player_0_invalid": 1.0, "player_1_invalid": 0.0}


def test_a_state_can_be_stepped_twice():
    game = made()
    state = begun(game)
    one, other = moved(game, state, "[0 1]"), moved(game, state, "[1 2]")
    assert "[Player 0] [0 1]" in acting(game, one.state)[1]
    assert "[Player 0] [0 1]" not in acting(game, other.state)[1]


def test_a_game_of_one_player_draws_from_its_own_seed_alone():
    game = made(game="GuessTheNumber-v0", players=1, settings={})
    tasks = game.tasks("train")

    def found(task):
        random.seed()
        state = asyncio.run(game.start(task, 0))
        for guess in range(1, 21):
            after = moved(game, state, f"[{guess}]")
            if after.done:
                return guess, after.rewards["player_0"]
            state = after.state
        return None

    results = [found(task) for task in tasks[:8]]
    assert results == [found(task) for task in tasks[:8]]
    assert len(set(results)) > 1


def test_it_keeps_the_rules_of_environments():
    assert motet.check_environment(made())


PAIR = Team(
    {"player_0": ("p",), "player_1": ("p",)}, dict.fromkeys(["player_0", "player_1"], Decode())
)


def test_without_copies_a_tree_is_refused():
    check_plan(Plan(samples=(2, 2)), made(), PAIR)
    straight = made(copies=False)
    check_plan(Plan(samples=(2, 1)), straight, PAIR)
    with pytest.raises(ConfigError, match=r"TextArena has branches = False: use samples \[2, 1\]"):
        check_plan(Plan(samples=(2, 2)), straight, PAIR)


def test_a_game_that_cannot_be_copied_is_played_without_copies(monkeypatch):
    kind = type(begun(made()).game.env)
    before = kind.reset

    def reset(self, *given, **named):
        self.lock = threading.Lock()
        return before(self, *given, **named)

    monkeypatch.setattr(kind, "reset", reset)
    game = made()
    assert not game.branches
    assert acting(game, moved(game, begun(game), "[1 1]").state)[0] == "player_1"


def test_an_error_of_the_game_is_a_fault_that_names_textarena(monkeypatch):
    game = made()
    state = begun(game)

    def step(self, action):
        raise IndexError("no such pile")

    monkeypatch.setattr(type(state.game.env), "step", step)
    with pytest.raises(EnvironmentFault, match="textarena raised IndexError: no such pile") as told:
        moved(game, state, "[1 1]")
    assert told.value.cause == "textarena.IndexError"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"game": "Nix-v0"}, "environment.game 'Nix-v0' with 2 players does not start: textarena"),
        ({"players": 3}, "environment.game 'Nim-v0' with 3 players does not start: textarena"),
        ({"settings": {"stones": 3}}, "does not start: textarena raised TypeError"),
    ],
)
def test_a_game_that_does_not_start_is_refused_when_it_is_made(options, said):
    with pytest.raises(ConfigError, match=said):
        made(**options)
