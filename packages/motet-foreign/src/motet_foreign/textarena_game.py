"""Any game of TextArena, by its id: https://github.com/LeonGuertler/TextArena.

The players are the agents `player_0`, `player_1` and so on; the game says whose turn it is. An
agent reads what the game shows it, and its whole reply is its action. All players are rewarded at
the end. A game has one mutable state, so each step plays a copy of it (`copies`).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.errors import ConfigError, EnvironmentFault, MotetError
from motet_foreign.boundary import inside, needed
from motet_foreign.copies import can_be_copied
from motet_foreign.seeds import SeededTasks, luck
from motet_foreign.success import success_of

PACKAGE = "textarena"


@dataclass(frozen=True)
class ArenaTurn:
    """The state: a game, which player acts in it, and what that player reads."""

    game: Any = field(compare=False, repr=False)
    player: int
    text: str


class TextArena(Environment[ArenaTurn]):
    """A game of TextArena. Its success is the mean reward of the players, from 0 to 1."""

    agents: Sequence[str] = ()
    rewards_at_end = True

    class Options(SeededTasks):
        """Options of a game of TextArena."""

        game: str
        """Its id, such as TicTacToe-v0."""
        players: int = Field(2, ge=1, le=15)
        """The number of players."""
        settings: Mapping[str, Any] = Field(default_factory=dict)
        """Arguments of the game, such as {max_turns: 10}."""
        copies: bool = True
        """Whether a step plays a copy of the game, so that trees work. Games that cannot be copied
        are played without."""

    def __init__(self, options: Options) -> None:
        self._package = needed(PACKAGE)
        self.options = options
        self.agents = tuple(f"player_{number}" for number in range(options.players))
        try:
            trial = self._begun(0)
        except MotetError as error:
            raise ConfigError(
                f"environment.game {options.game!r} with {options.players} players does not start: "
                f"{error}; expected a game that starts on this machine, and the number of its "
                "players"
            ) from error
        self.branches = options.copies and can_be_copied(trial)

    def tasks(self, split: str) -> list[Task]:
        """Return the seeds of `train` or `eval`."""
        return self.options.of_split(self.options.game, split)

    async def start(self, task: Task, seed: int) -> ArenaTurn:
        return self._position(self._begun(task.fields["seed"]))

    def observe(self, state: ArenaTurn) -> Mapping[str, Prompt]:
        return {self.agents[state.player]: (Message("user", state.text),)}

    async def step(self, state: ArenaTurn, replies: Mapping[str, Reply], seed: int) -> Transition:
        (reply,) = replies.values()
        with inside(PACKAGE), luck(seed):
            game = copy.deepcopy(state.game) if self.branches else state.game
            done, _ = game.step(reply.text)
            rewards, infos = game.close() if done else ({}, {})
        if not done:
            return Transition(self._position(game), dict.fromkeys(self.agents, 0.0), False)
        players = range(len(self.agents))
        if rewards is None or set(rewards) != set(players):
            raise EnvironmentFault(
                f"{PACKAGE} ended {self.options.game} with the rewards {rewards!r}; expected one "
                f"for each of {len(players)} players"
            )
        invalid = {
            f"{self.agents[player]}_invalid": float(infos[player]["invalid_move"])
            for player in players
        }
        return Transition(
            state,
            {self.agents[player]: rewards[player] for player in players},
            True,
            invalid,
            success=success_of(rewards.values()),
        )

    def _begun(self, seed: int) -> Any:
        with inside(PACKAGE), luck(seed):
            game = self._package.make(self.options.game, **self.options.settings)
            game.reset(num_players=self.options.players, seed=seed)
        return game

    def _position(self, game: Any) -> ArenaTurn:
        """Ask the game once: what it has shown, it does not show again."""
        with inside(PACKAGE):
            player, seen = game.get_observation()
        text = seen if isinstance(seen, str) else "\n".join(message for _, message, _ in seen)
        return ArenaTurn(game, player, text.strip())
