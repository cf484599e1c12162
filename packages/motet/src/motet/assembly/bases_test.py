"""The corpus of an embedded tokenizer: it plays the user's game as carefully as a run does."""

import asyncio
import time

import pytest

import motet
from motet.assembly import bases
from motet.assembly.task_setup import open_task_setup
from motet.core import Demonstration, Environment, Task, Transition
from motet.errors import ConfigError, EnvironmentFault
from tests.fixtures.messages import facts


class Game(Environment):
    """One turn with live states, which count."""

    agents = ("a", "b")
    starts = opened = closed = 0

    def tasks(self, split):
        return [Task(f"{split} {number}", {"number": number}) for number in range(3)]

    def start(self, task, seed):
        type(self).starts += 1
        self.before_start()
        type(self).opened += 1
        return task.fields["number"], seed

    def before_start(self):
        pass

    def observe(self, state):
        return {"a": f"number {state[0]}", "b": f"seed {state[1]}"}

    async def step(self, state, replies, seed):
        return Transition(state, {"a": 0.0, "b": 0.0}, True, success=0.0)

    def close(self, state):
        type(self).closed += 1


def corpus(kind, monkeypatch, **rollout):
    monkeypatch.setattr("motet.user_code.retries._FIRST_WAIT_SECONDS", 0.0)
    config = motet.read_config(
        {
            "name": "corpus",
            "models": {"tiny": {"embedded": {"hidden_size": 16, "layers": 1}}},
            "policies": {"p": {"model": "tiny"}},
            "team": {"a": {"policy": "p", "system": "Be brief."}, "b": "p"},
            "algorithm": {"name": "marloo"},
            "rollout": {"samples": [2], **rollout},
            "train": {"steps": 1},
        },
        environment=kind,
    )
    with open_task_setup(config, train=True) as setup:
        return asyncio.run(bases._corpus(setup, "tiny"))


def test_the_corpus_is_what_the_game_shows_first_and_every_state_is_closed(monkeypatch):
    class Counted(Game):
        pass

    found = corpus(Counted, monkeypatch)
    assert found == [(one, "") for number in range(3) for one in (f"number {number}", "seed 0")]
    assert (Counted.opened, Counted.closed) == (3, 3)


def test_a_bug_of_observe_is_named_with_its_line_and_the_state_is_closed(monkeypatch):
    class Buggy(Game):
        def observe(self, state):
            return {"a": state.missing}

    with pytest.raises(ConfigError, match=r"task train 0: AttributeError: .*bases_test\.py:\d+ in"):
        corpus(Buggy, monkeypatch)
    assert (Buggy.opened, Buggy.closed) == (1, 1)


def test_a_start_that_loses_its_connection_is_asked_again_and_then_named(monkeypatch):
    class Lost(Game):
        lost = 2

        def before_start(self):
            if self.starts <= self.lost:
                raise ConnectionError("the game server is down")

    assert len(corpus(Lost, monkeypatch)) == 6

    class Gone(Lost):
        lost, starts = 9, 0

    with pytest.raises(
        ConfigError, match=facts("ConnectionError: the game server is down … bases_test.py")
    ):
        corpus(Gone, monkeypatch)
    assert Gone.starts == 3


def test_a_start_that_never_ends_has_the_time_of_a_game(monkeypatch):
    class Slow(Game):
        def before_start(self):
            time.sleep(60)

    with pytest.raises(EnvironmentFault, match=facts("start … within 0.2 s")):
        corpus(Slow, monkeypatch, timeout_seconds=0.2)


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (lambda task: Demonstration("a", task.missing, "1"), r"AttributeError: .*\.py:\d+ in"),
        (lambda task: "1", "demonstrate.* gave '1'; expected a motet.Demonstration"),
    ],
)
def test_what_is_wrong_in_a_demonstration_is_named(shown, message, monkeypatch):
    class Shown(Game):
        def demonstrate(self, task, seed):
            return shown(task)

    with pytest.raises(ConfigError, match=message):
        corpus(Shown, monkeypatch)
