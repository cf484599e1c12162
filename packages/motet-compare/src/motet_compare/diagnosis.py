"""A diagnosis of a team: which agent contributes what, which messages matter, who rides free.

Every figure is a difference between games of the same tasks with the same seeds, with an interval
over tasks. docs/credit.md explains each.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal, TypeAlias

from motet.core import Completion, Environment, Episode, ScoreRequest, Task, Team, walk
from motet.core.coalitions import joining_orders
from motet.errors import ConfigError
from motet.evaluation.evaluate import Evaluation
from motet.evaluation.influence import Influence, influence
from motet.evaluation.intervals import Estimate, estimate, game_count, paired_difference
from motet.evaluation.playthrough import Games, rewards, successes, valid_games
from motet_compare.contributions import (
    STAND_INS,
    Contributions,
    Silenced,
    StandIn,
    Values,
    contributions,
    teams_of,
)
from motet_compare.cross_play import zero_sum
from motet_compare.fidelity import Fidelity
from motet_compare.information import SharedBits, shared_bits
from motet_compare.messages import MessageShuffle, said_first, shifted

Replaced: TypeAlias = Literal["blank", "shuffled", "resampled"]
MOST_SCORED = 512
"""Completions of each agent that other agents' policies score."""


@dataclass(frozen=True)
class MessageEffect:
    """What a message is worth to those who read it."""

    sender: str
    turn: int
    """The turn in which it is sent, from 1."""
    replaced: Replaced
    """blank: they read nothing. shuffled: that of another task. resampled: another one of the same
    task."""
    lost: Estimate | None
    """By how much success, or reward, is lower then."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found about a team."""

    measure: Literal["success", "reward"]
    """What contributions and messages are measured in: success, if the team has any."""
    games: int
    """Games of the team that did not fail; the others play as many."""
    contributions: Sequence[Contributions]
    """Beside each kind of stand-in."""
    unearned: Mapping[str, float | None]
    """Agent -> the share of its own reward that it still gets if it says nothing. None if it earns
    nothing."""
    messages: Sequence[MessageEffect]
    """Those of each agent and turn that another agent may read at a later turn."""
    without_messages: str
    """Why no message was replaced, if none was."""
    information: Sequence[SharedBits]
    """How many bits each of these messages shares with the next answer of each other agent, where
    different messages and answers are few."""
    distances: Mapping[str, Mapping[str, Estimate]]
    """Agent -> other agent -> mean of log π_agent − log π_other over the agent's completions, in
    nats per completion. 0: the other would answer in the same way."""
    fidelity: Fidelity | None = None
    """How well the advantages of the run's algorithm fit what completions change."""
    without_fidelity: str = ""
    """Why it was not measured: what the advantages need besides rewards."""
    influence: Influence | None = None
    """Of a debate: who persuades whom."""
    idle: Sequence[str] = ()
    """The agents of which no contribution shows, beside their start and beside mute ones."""
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Who played -> `where/cause` -> number of faults, whose games are left out. The figures are
    then of the other games."""


PlayTeam: TypeAlias = Callable[..., Any]
"""`await play(environment, team, name, tag=..., samples=...)` -> an Evaluation of the same tasks.
`name` is for people who wait."""


async def diagnosed(
    environment: Environment[Any],
    team: Team,
    play: PlayTeam,
    seated: Mapping[StandIn, Callable[[frozenset[str]], Team]],
    logprobs: Callable[[Sequence[ScoreRequest]], Any],
    comparable: Callable[[str, str], bool],
    fidelity: Callable[[Team], Any],
    without_fidelity: str,
    seed: int,
) -> Diagnosis:
    """Play a team, and the teams that it is compared with.

    Args:
        play: plays the tasks with an environment and a team.
        seated: kind of stand-in -> a function from the agents that are as they are to the team.
        logprobs: an async function that scores completions under the policy that a request names.
        comparable: whether two policies have one vocabulary.
        fidelity: an async function that returns the fidelity of the run's credit for a team.
        without_fidelity: why it is not called; empty if it is.

    Raises: ConfigError if one agent wins what the other loses.
    """
    agents = tuple(team.agents)
    left_out: dict[str, Mapping[str, int]] = {}

    async def played(game: Environment[Any], who: Team, name: str, **more: Any) -> Evaluation:
        found: Evaluation = await play(game, who, name, **more)
        if found.summary.causes:
            left_out[name] = found.summary.causes
        return found

    real = await played(environment, team, "the team")
    if zero_sum(real.episodes):
        raise ConfigError(
            f"{agents[0]} wins what {agents[1]} loses: what one of them contributes is what the "
            "other one lacks; expected a team that earns together. motet crossplay rates players"
        )
    measure: Literal["success", "reward"] = "success" if real.summary.success else "reward"

    def values(found: Evaluation) -> Values:
        return successes(found.games) if measure == "success" else rewards(found.games)

    orders = joining_orders(agents, seed)
    parts: list[Contributions] = []
    unearned: dict[str, float | None] = {}
    for stand_in, of in seated.items():
        known: dict[frozenset[str], Values] = {frozenset(agents): values(real)}
        for kept in teams_of(orders):
            if kept in known:
                continue
            mute = frozenset(agents) - kept
            game = Silenced(environment, mute) if stand_in == "silent" else environment
            name = f"{' and '.join(sorted(kept))}, the others" if kept else "all"
            found = await played(game, of(kept), f"{name} {STAND_INS[stand_in]}")
            known[kept] = values(found)
            if stand_in == "silent" and len(mute) == 1:
                (agent,) = mute
                unearned[agent] = _share(found.games, real.games, agent)
        parts.append(contributions(stand_in, orders, known, seed))
    messages, why, unread = await _messages(environment, team, played, real, values, seed)
    return Diagnosis(
        measure,
        game_count(real.games),
        parts,
        {agent: unearned[agent] for agent in agents if agent in unearned},
        messages,
        why,
        _information(real.games, read_later(real.episodes), unread, seed),
        await _distances(real.episodes, team, logprobs, comparable, seed),
        None if without_fidelity else await fidelity(team),
        without_fidelity,
        influence(real.episodes),
        [
            agent
            for agent in agents
            if all(
                _shows_nothing(one.agents[agent].shapley)
                for one in parts
                if one.stand_in != "other"
            )
        ],
        left_out,
    )


def _shows_nothing(found: Estimate | None) -> bool:
    """Whether a contribution was measured and may be nothing."""
    return found is not None and found.low <= 0.0


def _share(without: Games, real: Games, agent: str) -> float | None:
    """Return the reward of an agent that says nothing, divided by its reward as it is."""
    own, instead = (fmean(found) if (found := _earned(one, agent)) else None
                    for one in (real, without))  # fmt: skip
    return None if own is None or instead is None or own <= 0 else instead / own


def _earned(games: Games, agent: str) -> list[float]:
    return [
        sum(outcome.rewards[agent] for _, outcome in game.turns)
        for played in games
        for game in valid_games(played)
    ]


# ----------------------------------------------------------------------------------------- messages


async def _messages(
    environment: Environment[Any],
    team: Team,
    play: PlayTeam,
    real: Evaluation,
    values: Callable[[Evaluation], Values],
    seed: int,
) -> tuple[list[MessageEffect], str, dict[tuple[str, int], Games]]:
    """Replace the messages of each agent and turn. Return the effects, or why there are none; and
    the games in which a message of another task was read."""
    sent = read_later(real.episodes)
    if not sent:
        return [], "no agent acts after another one has spoken", {}
    if not environment.branches:
        return [], "the environment has branches = False, so a game cannot go on in two ways", {}
    other: Evaluation = await play(environment, team, "messages to put in", tag="other", samples=1)
    found: list[MessageEffect] = []
    shuffled: dict[tuple[str, int], Games] = {}
    for sender, turn in sent:
        real_said, other_said = (
            {
                episode.task.id: said
                for episode in one.episodes
                if (said := _said(episode, turn)) is not None and sender in said
            }
            for one in (real, other)
        )
        donors: dict[Replaced, Any] = {"blank": None, "resampled": other_said}
        environments = {one.task.id: one.task.environment for one in real.episodes}
        counts = Counter(environments[task] for task in real_said)
        if min(counts.values(), default=0) > 1:
            donors["shuffled"] = shifted(real_said, environments)
        for how, given in donors.items():
            game = MessageShuffle(environment, turn, given, sender)
            name = f"message of {sender} at turn {turn + 1} {how}"
            played: Evaluation = await play(game, team, name)
            lost = paired_difference(values(real), values(played), seed)
            found.append(MessageEffect(sender, turn + 1, how, lost))
            if how == "shuffled":
                shuffled[sender, turn] = played.games
    return found, "", shuffled


def _information(
    games: Games,
    sent: Sequence[tuple[str, int]],
    shuffled: Mapping[tuple[str, int], Games],
    seed: int,
) -> list[SharedBits]:
    """Return the bits of each message and reader; `shuffled`: the games in which others read that
    of another task."""
    found: list[SharedBits] = []
    for sender, turn in sent:
        unread = {
            (one.reader, one.answered): one.bits
            for one in shared_bits(shuffled.get((sender, turn), ()), sender, turn, seed)
        }
        found += [
            replace(one, unread=unread.get((one.reader, one.answered)))
            for one in shared_bits(games, sender, turn, seed)
        ]
    return found


def read_later(episodes: Sequence[Episode]) -> list[tuple[str, int]]:
    """Return (agent, turn from 0) of each message after which another agent acts."""
    found: dict[tuple[str, int], None] = {}
    for episode in episodes:
        acting = _acting(episode)
        for turn, agents in enumerate(acting):
            for sender in agents:
                if any(set(later) - {sender} for later in acting[turn + 1 :]):
                    found[sender, turn] = None
    return sorted(found, key=lambda pair: pair[1])


def _acting(episode: Episode) -> list[tuple[str, ...]]:
    """Return who acts at each turn of the longest path."""
    found: list[tuple[str, ...]] = []
    for _, round_ in walk(episode.root) if episode.root is not None else ():
        if round_.turn == len(found):
            found.append(tuple(round_.prompts))
    return found


def _said(episode: Episode, turn: int) -> Mapping[str, Any] | None:
    return said_first(episode, turn) if turn < len(_first_path(episode)) else None


def _first_path(episode: Episode) -> list[Any]:
    found, round_ = [], episode.root
    while round_ is not None:
        found.append(round_)
        round_ = round_.outcomes[0].next if round_.outcomes else None
    return found


# ---------------------------------------------------------------------------------------- distances


async def _distances(
    episodes: Sequence[Episode],
    team: Team,
    logprobs: Callable[[Sequence[ScoreRequest]], Any],
    comparable: Callable[[str, str], bool],
    seed: int,
) -> dict[str, dict[str, Estimate]]:
    """Return how improbable the answers of each agent are for the policy of each other one."""
    found: dict[str, dict[str, Estimate]] = {}
    for agent in team.agents:
        said = _completions(episodes, agent)[:MOST_SCORED]
        for other in team.agents:
            pairs = [
                (task, turn, prompt, one)
                for task, turn, prompt, one in said
                if comparable(team.policy_of(agent, turn), team.policy_of(other, turn))
            ]
            if other == agent or not pairs:
                continue
            asked = [
                ScoreRequest(
                    team.policy_of(other, turn),
                    prompt,
                    one.tokens or (),
                    team.decode[agent].temperature,
                    one.forced,
                )
                for _, turn, prompt, one in pairs
            ]
            by_task: dict[str, list[float]] = {}
            for (task, _, _, one), scored in zip(pairs, await logprobs(asked), strict=True):
                by_task.setdefault(task.id, []).append(sum(one.logprobs or ()) - sum(scored))
            mean = estimate([fmean(each) for each in by_task.values()], seed)
            if mean is not None:
                found.setdefault(agent, {})[other] = mean
    return found


def _completions(
    episodes: Sequence[Episode], agent: str
) -> list[tuple[Task, int, tuple[int, ...], Completion]]:
    """Return the completions of an agent that have tokens and no restricted form."""
    return [
        (episode.task, round_.turn, tuple(round_.prompt_tokens[agent]), one)
        for episode in episodes
        if episode.root is not None
        for _, round_ in walk(episode.root)
        for one in round_.samples.get(agent, ())
        if one.tokens and one.logprobs and one.restriction is None
    ]
