"""What all games of two players share: seats, illegal moves, and opponents that are no model.

`ann` and `bob` are the players of the team. Who of them moves first alternates from task to task,
so each of them learns both seats. With `opponent: random` or `optimal` the environment moves for
`bob`, who then never acts.
"""

import random
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from motet.core import Demonstration, Environment, Message, Prompt, Reply, Task, Transition
from motet.core.seeding import derive
from motet.environments.splits import part_of
from motet.settings import Settings

ANN, BOB = AGENTS = ("ann", "bob")
TASKS: Mapping[str, int] = {"train": 1200, "eval": 240}
"""Split -> its number of tasks. They are all alike, up to the deal and the first player."""
_NEGATIONS = {"not", "no", "never", "neither", "nor", "cannot"}

GamePosition = TypeVar("GamePosition")


class GameRules(Protocol[GamePosition]):
    """A game of two seats, 0 and 1, that take turns in a position. Seat 0 moves first."""

    text: str
    """The rules in plain words, which prompts begin with."""
    stake: float
    """The most that a player can lose, which an illegal move costs."""

    @property
    def deals(self) -> Sequence[GamePosition]:
        """The first positions, equally likely."""
        ...

    def seat(self, position: GamePosition) -> int:
        """Return who moves."""
        ...

    def moves(self, position: GamePosition) -> Sequence[str]:
        """Return the legal moves."""
        ...

    def after(self, position: GamePosition, move: str, said: str) -> GamePosition:
        """Return the next position. `said` is the text in which the move was made."""
        ...

    def won(self, position: GamePosition) -> float | None:
        """Return what seat 0 has won, which seat 1 has lost. None: the game goes on."""
        ...

    def known(self, position: GamePosition) -> str:
        """Return a name of what the player who moves knows: the information set."""
        ...

    def told(self, position: GamePosition) -> str:
        """Return what the player who moves reads."""
        ...

    def read(self, position: GamePosition, text: str) -> str | None:
        """Return the move of a text at a position. None: there is none, or it could be several."""
        ...

    def optimal(self, position: GamePosition) -> Mapping[str, float]:
        """Return the probability of each move of a player who cannot be exploited."""
        ...


def meant(text: str, meaning: Mapping[str, str]) -> str | None:
    """Return the only meaning that the words of a text have. None if it has none or several, or if
    a negation could turn it into its opposite.

    Args:
        meaning: word -> what it means.
    """
    said = re.findall(r"[a-z]+", text.lower().replace("’", "'").replace("n't", " not"))
    found = {meaning[word] for word in said if word in meaning}
    return found.pop() if len(found) == 1 and not _NEGATIONS.intersection(said) else None


@dataclass(frozen=True)
class Match(Generic[GamePosition]):
    """The state: a position, and who sits where."""

    position: GamePosition
    players: tuple[str, str]
    """The agent of each seat."""


class ZeroSumGame(Environment[Match[GamePosition]], Generic[GamePosition]):
    """A game of two players. The rewards of a game come at its end and add up to zero.

    An illegal or unreadable move loses the stake. Success is the reward of `ann` on a scale from 0
    (the stake is lost) to 1 (it is won), so a draw is .5. Terms of the end, all but the last as
    `ann` sees them: won, drawn, lost, illegal/AGENT, and first, the reward of the player who moved
    first.
    """

    agents: Sequence[str] = AGENTS
    branches = True
    rewards_at_end = True
    game: ClassVar[str]
    """The name of the environment, for messages."""
    few_positions: ClassVar[bool] = True
    """Whether the exploitability of a policy can be computed."""

    class Options(Settings):
        """Options of a game of two players."""

        opponent: Literal["self", "random", "optimal"] = "self"
        """Who plays bob. self: the team. random: the environment, which draws a legal move.
        optimal: the environment, which plays without errors."""
        show_rules: bool = True
        """Whether prompts begin with the rules. A model that learns from demonstrations needs
        none."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    @abstractmethod
    def rules(self) -> GameRules[GamePosition]: ...

    def tasks(self, split: str) -> list[Task]:
        """Return games that differ in the deal and in who moves first, each pair equally often."""
        deals = len(self.rules.deals)
        return [
            Task(f"{split} {number}", {"deal": number // 2 % deals, "first": AGENTS[number % 2]})
            for number in range(part_of(self.game, TASKS, split))
        ]

    async def start(self, task: Task, seed: int) -> Match[GamePosition]:
        match, _ = self._answered(self._begin(task), seed)
        return match

    def observe(self, state: Match[GamePosition]) -> Mapping[str, Prompt]:
        mover = state.players[self.rules.seat(state.position)]
        return {mover: self.prompt(state.position)}

    async def step(
        self, state: Match[GamePosition], replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        ((mover, reply),) = replies.items()
        move = self.rules.read(state.position, reply.text)
        if move is None or move not in self.rules.moves(state.position):
            stake = self.rules.stake
            return self._ended(state, -stake if mover == ANN else stake, illegal=mover)
        moved = replace(state, position=self.rules.after(state.position, move, reply.text.strip()))
        answered, won = self._answered(moved, seed)
        if won is None:
            return Transition(answered, dict.fromkeys(AGENTS, 0.0), done=False)
        return self._ended(answered, won if answered.players[0] == ANN else -won)

    def prompt(self, position: GamePosition) -> Prompt:
        """Return the prompt of the player who moves."""
        told = self.rules.told(position)
        shown = f"{self.rules.text}\n\n{told}" if self.options.show_rules else told
        return (Message("user", shown),)

    def _begin(self, task: Task) -> Match[GamePosition]:
        players = AGENTS if task.fields["first"] == ANN else (BOB, ANN)
        return Match(self.rules.deals[task.fields["deal"]], players)

    def _answered(
        self, match: Match[GamePosition], seed: int
    ) -> tuple[Match[GamePosition], float | None]:
        """Return the match after the moves of the environment, and what the first seat has won."""
        rules, draw = self.rules, random.Random(derive(seed, "opponent"))
        while (won := rules.won(match.position)) is None and self._plays(match):
            if self.options.opponent == "random":
                chances = dict.fromkeys(rules.moves(match.position), 1.0)
            else:
                chances = dict(rules.optimal(match.position))
            (move,) = draw.choices(list(chances), list(chances.values()))
            match = replace(match, position=rules.after(match.position, move, move))
        return match, won

    def _plays(self, match: Match[GamePosition]) -> bool:
        """Return whether the environment moves now."""
        mover = match.players[self.rules.seat(match.position)]
        return self.options.opponent != "self" and mover == BOB

    def _ended(
        self, match: Match[GamePosition], ann: float, illegal: str | None = None
    ) -> Transition:
        metrics = {
            "won": float(ann > 0),
            "drawn": float(ann == 0),
            "lost": float(ann < 0),
            **{f"illegal/{agent}": float(agent == illegal) for agent in AGENTS},
            "first": ann if match.players[0] == ANN else -ann,
        }
        success = (ann / self.rules.stake + 1) / 2
        return Transition(match, {ANN: ann, BOB: -ann}, True, metrics, success=success)

    # ------------------------------------------------------------ demonstrations

    def shown(self, position: GamePosition) -> Sequence[str]:
        """Return the moves of which a demonstration shows one, each as likely."""
        return self.rules.moves(position)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return one of the moves that are `shown`, in a position to which random moves lead."""
        draw = random.Random(seed)
        rules, match = self.rules, self._begin(task)
        positions = [match.position]
        while True:
            move = draw.choice(rules.moves(positions[-1]))
            after = rules.after(positions[-1], move, move)
            if rules.won(after) is not None:
                break
            positions.append(after)
        turn = draw.randrange(len(positions))
        position = positions[turn]
        mover = match.players[rules.seat(position)]
        return Demonstration(mover, self.prompt(position), draw.choice(self.shown(position)), turn)
