"""The exploitability of the team of a run, from the exact probabilities of its answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import motet
from motet.api.objects import Objects
from motet.api.setup import ConfigLike
from motet.core import class_name
from motet.errors import ConfigError
from motet_tasks.zero_sum.exploitability import (
    exploitability,
    information_sets,
    mean_reward,
    positions,
)
from motet_tasks.zero_sum.game import ANN, BOB, GameRules, ZeroSumGame

Seats = tuple[str, str]
"""The agent of each seat."""


@dataclass(frozen=True)
class ExploitedTeam:
    """How much can be won from a team, in units of the rewards."""

    exploitability: Mapping[str, float]
    """Agent -> the exploitability of its policy in both seats. Agents with one policy have the
    same."""
    first: float
    """What the player who moves first wins on average if ann and bob play, over both seatings."""
    policy: Mapping[str, Mapping[str, Mapping[str, float]]]
    """Agent -> information set -> move -> its probability. What is missing to 1 is illegal."""


def exploit(
    target: ConfigLike, overrides: Sequence[str] = (), **objects: Unpack[Objects]
) -> ExploitedTeam:
    """Compute exactly how much a perfect opponent wins from the team of a run, a checkpoint or a
    config.

    Args:
        objects: replace what the config names, as in `train`.

    Raises: ConfigError if it plays no game of hidden cards (kuhn_poker, bluff), or if decode.format
    does not list its answers.

    docs/self_play.md explains the figures.
    """
    with motet.load_team(target, overrides, **objects) as team:
        game = team.environment
        if not isinstance(game, ZeroSumGame) or not game.few_positions:
            raise ConfigError(
                f"exploitability is computed for games of few positions; got {class_name(game)}, "
                "expected kuhn_poker or bluff"
            )
        policy = {agent: _policy(team, game, agent) for agent in team.agents}
    seatings = ((ANN, BOB), (BOB, ANN))
    return ExploitedTeam(
        {agent: exploitability(game.rules, own) for agent, own in policy.items()},
        sum(mean_reward(game.rules, _seated(game, policy, seats)) for seats in seatings) / 2,
        policy,
    )


def _seated(
    game: ZeroSumGame[Any], policy: Mapping[str, Mapping[str, Mapping[str, float]]], seats: Seats
) -> dict[str, Mapping[str, float]]:
    """Return the policy of the game if the agents sit in these seats."""
    of_seat = information_sets(game.rules)
    return {
        known: policy[agent][known]
        for agent, choices in zip(seats, of_seat, strict=True)
        for known in choices
    }


def _policy(
    team: motet.LoadedTeam, game: ZeroSumGame[Any], agent: str
) -> dict[str, Mapping[str, float]]:
    found: dict[str, Mapping[str, float]] = {}
    for turn, position in positions(game.rules):
        known = game.rules.known(position)
        if known not in found:
            answers = team.probabilities(agent, game.prompt(position), turn=turn)
            found[known] = _moves(answers, game.rules, position)
    return found


def _moves(
    answers: Mapping[str, float], rules: GameRules[Any], position: Any
) -> Mapping[str, float]:
    """Return the probabilities of the legal moves, from those of the answers.

    Raises: ConfigError if two answers mean one move: the other player might tell them apart.
    """
    legal = rules.moves(position)
    found: dict[str, float] = {}
    for text, chance in answers.items():
        move = rules.read(position, text)
        if move in found:
            raise ConfigError(
                f"decode.format has several answers that mean {move}; expected one for each move"
            )
        if move is not None and move in legal:
            found[move] = chance
    return found
