"""Your own AEC environment of PettingZoo, in which agents act in turns:
https://pettingzoo.farama.org/api/aec/.

If its observations are texts and its action spaces are `gymnasium.spaces.Text`, the option `game`
is enough. For another one, subclass `PettingZoo` and define `make`, `prompt` and `action`.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.errors import ConfigError, EnvironmentFault, MotetError
from motet.user_code.plugins import load_object
from motet_foreign.boundary import inside, needed
from motet_foreign.copies import can_be_copied
from motet_foreign.seeds import SeededTasks, luck
from motet_foreign.success import success_of

PACKAGE = "pettingzoo"


@dataclass(frozen=True)
class AecTurn:
    """The state: a game, whose turn it is, what that agent reads, and what all earned so far."""

    game: Any = field(compare=False, repr=False)
    agent: str
    prompt: Prompt
    earned: Mapping[str, float]


class PettingZoo(Environment[AecTurn]):
    """An AEC environment. Its success is the mean return of the agents, from 0 to 1.

    A step plays a copy of the game if it can be copied, so trees work.
    """

    agents: Sequence[str] = ()

    class Options(SeededTasks):
        """Options of an environment of PettingZoo."""

        game: str = ""
        """`package.module:NAME` of a class or function that makes it. A subclass that defines
        `make` needs none."""
        copies: bool = True
        """Whether a step plays a copy of the game, so that trees work. Games that cannot be copied
        are played without."""

    def __init__(self, options: Options) -> None:
        needed(PACKAGE)
        self.options = options
        try:
            trial = self._begun(0)
            with inside(PACKAGE):
                self.agents = tuple(trial.possible_agents)
            self._check_actions(trial)
            self.branches = options.copies and can_be_copied(trial)
            with inside(PACKAGE):
                trial.close()
        except MotetError as error:
            raise ConfigError(f"{type(self).__name__} does not start: {error}") from error

    # ------------------------------------------------------------ what a subclass may define

    def make(self) -> Any:
        """Return a new AEC environment, which `reset` has not started."""
        if not self.options.game:
            raise ConfigError(
                "environment.game is empty; expected package.module:NAME of an AEC environment, or "
                "a subclass that defines make"
            )
        return load_object(self.options.game)()

    def prompt(self, agent: str, observation: Any, game: Any) -> Prompt:
        """Return what the agent reads: a text, or a list of messages."""
        if not isinstance(observation, str):
            raise EnvironmentFault(
                f"{agent} observes a {type(observation).__name__}; expected a text: subclass "
                "PettingZoo and define prompt(agent, observation, game)"
            )
        return (Message("user", observation),)

    def action(self, agent: str, text: str, game: Any) -> Any:
        """Return the action that a reply means.

        By default it is the reply without the characters that the Text space of the agent does not
        have, cut to the longest text that it allows.
        """
        space = game.action_space(agent)
        return "".join(one for one in text if one in space.character_set)[: space.max_length]

    # ------------------------------------------------------------ the game

    def tasks(self, split: str) -> list[Task]:
        """Return the seeds of `train` or `eval`."""
        return self.options.of_split(self.options.game or type(self).__name__, split)

    async def start(self, task: Task, seed: int) -> AecTurn:
        game = self._begun(task.fields["seed"])
        if not game.agents:
            raise EnvironmentFault(f"{PACKAGE}: the game is over before anybody has acted")
        return self._turn(game, dict.fromkeys(self.agents, 0.0))

    def observe(self, state: AecTurn) -> Mapping[str, Prompt]:
        return {state.agent: state.prompt}

    async def step(self, state: AecTurn, replies: Mapping[str, Reply], seed: int) -> Transition:
        with inside(PACKAGE), luck(seed):
            game = copy.deepcopy(state.game) if self.branches else state.game
            game.step(self.action(state.agent, replies[state.agent].text, game))
            rewards = {agent: float(game.rewards.get(agent, 0.0)) for agent in self.agents}
            _remove_the_dead(game)
        earned = {agent: state.earned[agent] + rewards[agent] for agent in self.agents}
        if game.agents:
            return Transition(self._turn(game, earned), rewards, False)
        return Transition(state, rewards, True, success=success_of(earned.values()))

    async def close(self, state: AecTurn) -> None:
        with inside(PACKAGE):
            state.game.close()

    def _begun(self, seed: int) -> Any:
        with inside(PACKAGE), luck(seed):
            game = self.make()
            game.reset(seed=seed)
            _remove_the_dead(game)
        return game

    def _turn(self, game: Any, earned: Mapping[str, float]) -> AecTurn:
        with inside(PACKAGE):
            agent = game.agent_selection
            prompt = self.prompt(agent, game.observe(agent), game)
        return AecTurn(game, agent, prompt, earned)

    def _check_actions(self, game: Any) -> None:
        """Raises: ConfigError if replies cannot be read as actions."""
        if type(self).action is not PettingZoo.action:
            return
        from gymnasium.spaces import Text

        for agent in self.agents:
            with inside(PACKAGE):
                space = game.action_space(agent)
            if not isinstance(space, Text):
                raise ConfigError(
                    f"the actions of {agent} are {space}; expected a Text space: subclass "
                    "PettingZoo and define action(agent, text, game)"
                )


def _remove_the_dead(game: Any) -> None:
    """Make the empty steps of agents whose game is over, as the order of AEC asks for them."""
    while game.agents and (
        game.terminations[game.agent_selection] or game.truncations[game.agent_selection]
    ):
        gone, before = game.agent_selection, len(game.agents)
        game.step(None)
        if len(game.agents) >= before:
            raise EnvironmentFault(
                f"{PACKAGE}: step(None) did not remove {gone}, whose game is over; expected that "
                "step calls self._was_dead_step(action) for such an agent"
            )
