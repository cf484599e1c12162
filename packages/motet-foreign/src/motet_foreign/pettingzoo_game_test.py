"""A game of PettingZoo with texts, and one whose agents leave at different times."""

import asyncio

import pytest

import motet
from motet.core import Reply
from motet.errors import ConfigError, EnvironmentFault
from motet.user_code.objects import keep
from motet_foreign.pettingzoo_game import PettingZoo

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
from gymnasium.spaces import Discrete, Text
from pettingzoo import AECEnv
from pettingzoo.utils import AgentSelector


class Countdown(AECEnv):
    """Agents say digits in turns. Who says 0 gets 1 point and leaves; other digits cost 0.25."""

    metadata = {"name": "countdown"}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self._order = AgentSelector(self.agents)
        self.agent_selection = self._order.next()
        self.said = []

    def observe(self, agent):
        return f"{agent} heard {' '.join(self.said)}"

    def action_space(self, agent):
        return Text(2, charset="0123456789")

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            if self.agents:
                self._order.reinit(self.agents)
                self.agent_selection = self._order.next()
            return
        self.said.append(action)
        self._clear_rewards()
        self.rewards[agent] = 1.0 if action == "0" else -0.25
        self.terminations[agent] = action == "0"
        self._accumulate_rewards()
        if action != "0":
            self.agent_selection = self._order.next()


class Game(PettingZoo):
    def make(self):
        return Countdown()


def played(game, *texts):
    """Play the texts one after the other; return who acted, and all Transitions."""

    async def all_of_them():
        state, acted, found = await game.start(game.tasks("train")[0], 0), [], []
        for text in texts:
            ((agent, _),) = game.observe(state).items()
            acted.append(agent)
            found.append(await game.step(state, {agent: Reply(text)}, 0))
            state = found[-1].state
        await game.close(state)
        return acted, found

    return asyncio.run(all_of_them())


def test_agents_that_are_out_are_passed_over_and_each_step_pays_its_own_reward():
    acted, found = played(Game(Game.Options()), "7", "0", "0", "0")
    assert acted == ["a", "b", "a", "c"]
    assert [step.rewards for step in found] == [
        {"a": -0.25, "b": 0.0, "c": 0.0},
        {"a": 0.0, "b": 1.0, "c": 0.0},
        {"a": 1.0, "b": 0.0, "c": 0.0},
        {"a": 0.0, "b": 0.0, "c": 1.0},
    ]
    assert [step.done for step in found] == [False, False, False, True]
    assert found[-1].success == pytest.approx((0.75 + 1.0 + 1.0) / 3)


def test_a_reply_becomes_a_text_of_the_space():
    _, found = played(Game(Game.Options()), "it is 1, 2 or 3", "0")
    assert found[0].state.prompt[0].content == "b heard 12"


def test_a_state_can_be_stepped_twice():
    game = Game(Game.Options())
    assert game.branches

    async def both():
        state = await game.start(game.tasks("train")[0], 0)
        return [(await game.step(state, {"a": Reply(text)}, 0)).state for text in ("1", "2")]

    assert [state.prompt[0].content for state in asyncio.run(both())] == ["b heard 1", "b heard 2"]


def test_the_class_of_a_game_with_texts_is_enough():
    game = PettingZoo(PettingZoo.Options(game=keep(Countdown)))
    assert game.agents == ("a", "b", "c")


def test_actions_and_observations_that_are_no_texts_need_functions():
    class Numbers(Countdown):
        def action_space(self, agent):
            return Discrete(3)

        def observe(self, agent):
            return 3

    class Unread(PettingZoo):
        def make(self):
            return Numbers()

    with pytest.raises(ConfigError, match=r"actions of a are Discrete\(3\); expected a Text space"):
        Unread(Unread.Options())

    class Unseen(Unread):
        def action(self, agent, text, game):
            return text

    with pytest.raises(EnvironmentFault, match="a observes a int; expected a text: subclass"):
        played(Unseen(Unseen.Options()))

    class Whole(Unseen):
        def prompt(self, agent, observation, game):
            return f"{agent}: {observation}"

    assert played(Whole(Whole.Options()), "0")[0] == ["a"]


def test_an_error_of_the_game_is_a_fault_that_names_pettingzoo():
    class Broken(Game):
        def action(self, agent, text, game):
            return int(text)

    with pytest.raises(EnvironmentFault, match="pettingzoo raised ValueError: invalid lit") as told:
        played(Broken(Broken.Options()), "none")
    assert told.value.cause == "pettingzoo.ValueError"


def test_a_game_that_is_not_named_is_refused():
    with pytest.raises(ConfigError, match=r"PettingZoo does not start: environment\.game is empty"):
        PettingZoo(PettingZoo.Options())


def test_it_keeps_the_rules_of_environments():
    class Short(Countdown):
        def step(self, action):
            super().step(action)
            if len(self.said) == 4:
                self.terminations = dict.fromkeys(self.agents, True)

    class Bounded(PettingZoo):
        def make(self):
            return Short()

    assert motet.check_environment(Bounded(Bounded.Options()))


class Lingering(Countdown):
    """Its agents stay after their game is over."""

    def step(self, action):
        if action is not None:
            super().step(action)


def test_an_agent_that_is_never_removed_ends_the_game_with_a_fault():
    with pytest.raises(EnvironmentFault, match=r"did not remove a, .*self\._was_dead_step"):
        played(PettingZoo(PettingZoo.Options(game=keep(Lingering))), "0", "0", "0")


def test_a_game_that_does_not_name_its_agents_is_refused():
    class Nameless(AECEnv):
        metadata = {"name": "nameless"}  # noqa: RUF012

        def reset(self, seed=None, options=None):
            self.agents, self.agent_selection = ["a"], "a"
            self.terminations = self.truncations = {"a": False}
            self._cumulative_rewards = {"a": 0.0}

        def observe(self, agent):
            return "?"

    with pytest.raises(ConfigError, match=r"does not start: pettingzoo .*possible_agents"):
        PettingZoo(PettingZoo.Options(game=keep(Nameless)))
