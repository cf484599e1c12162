"""Baselines for a trained team: a team without training, played by the usual protocols.

All protocols play the same tasks with the same seed. Costs are per answer to a task. A protocol
that chooses among samples pays for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from motet.core import Environment, Episode, PlaysAlone, Sampler, Task, Team, Votes, class_name
from motet.errors import ConfigError, EnvironmentFault
from motet.evaluation.evaluate import Evaluation, evaluate
from motet.evaluation.intervals import (
    CONFIDENCE,
    RESAMPLES,
    Estimate,
    estimate,
    game_count,
    paired_difference,
    rate_difference,
    success_of,
)
from motet.evaluation.playthrough import Games, Playthrough, rewards, successes
from motet.settings import Plan
from motet_compare.protocols import Discussion, Pipeline, lengthened
from motet_compare.selection import AnswerFunction, best_game, majority_game, verbatim

UNTRAINED, SINGLE = "untrained team", "single agent"
NAIVE, PIPELINE, DISCUSSION = "naive concatenation", "sequential pipeline", "one-round discussion"
BEST, MAJORITY = "best of n", "majority of n"
ONE_AGENT = "the team is one agent"
MethodResult = TypeVar("MethodResult")


@dataclass(frozen=True)
class Lineup:
    """A team and the game that it plays."""

    who: str
    environment: Environment[Any]
    team: Team
    plan: Plan


@dataclass(frozen=True)
class EvalContext:
    """What all protocols share: the tasks, the seed, and the weights."""

    tasks: Sequence[Task]
    sampler: Sampler
    seed: int
    tag: str
    samples: int
    """Games per task, unless the protocol needs another number."""
    counter: Callable[[str, int], Callable[[Episode], None]]
    """(name, total) -> a function that is called after each of `total` episodes."""

    async def play(self, protocol: str, lineup: Lineup, samples: int | None = None) -> Evaluation:
        return await evaluate(
            lineup.environment,
            self.tasks,
            self.sampler,
            lineup.team,
            lineup.plan,
            seed=self.seed,
            tag=self.tag,
            samples=self.samples if samples is None else samples,
            on_episode=self.counter(protocol, len(self.tasks)),
        )


@dataclass(frozen=True)
class BaselineResult:
    """The result of a protocol: the games that answer each task, and the cost of one answer."""

    protocol: str
    games: Games
    played: Evaluation
    """All games played for the protocol."""
    n: int
    """The number of samples that each answer was chosen from."""
    tokens_per_task: float
    seconds_per_task: float
    note: str = ""


def result(protocol: str, played: Evaluation, note: str = "") -> BaselineResult:
    """Return the result of a protocol whose every game is an answer."""
    return BaselineResult(
        protocol,
        played.games,
        played,
        1,
        tokens_per_group(played.games, 1),
        _seconds_per_game(played),
        note,
    )


def _seconds_per_game(played: Evaluation) -> float:
    assert played.seconds is not None
    return played.seconds / max(sum(map(len, played.games)), 1)


async def play_baselines(
    context: EvalContext, whole: Lineup, soloist: str, budget: float | None
) -> tuple[list[BaselineResult], dict[str, str]]:
    """Play every protocol that the game supports. Also return, for the others, the reason why not.

    Args:
        soloist: the agent whose policy plays alone.
        budget: tokens per task for the protocols that choose among samples. None: as many as the
            untrained team used.

    Raises: ConfigError if `alone()` returns no game for one agent; EnvironmentFault if `alone` or
    `answer` raises.
    """
    untrained = await context.play(UNTRAINED, whole)
    results, left_out = [result(UNTRAINED, untrained)], {}

    def enter(protocol: str, found: BaselineResult | str) -> None:
        if isinstance(found, str):
            left_out[protocol] = found
        else:
            results.append(found)

    solo = _solo(whole, soloist)
    source, drawn = whole, untrained
    if isinstance(solo, str):
        enter(SINGLE, solo)
    else:
        source, drawn = solo, await context.play(SINGLE, solo)
        enter(SINGLE, result(SINGLE, drawn, f"played by the policy of {soloist}"))
    enter(NAIVE, await _naive(context, whole, untrained))
    enter(PIPELINE, await _talk(context, PIPELINE, Pipeline, whole, untrained))
    enter(DISCUSSION, await _talk(context, DISCUSSION, Discussion, whole, untrained))
    allowed = results[0].tokens_per_task if budget is None else budget
    for protocol, found in (await _chosen(context, source, drawn, allowed)).items():
        enter(protocol, found)
    return results, left_out


# ------------------------------------------------------------ one game per answer


def _solo(whole: Lineup, soloist: str) -> Lineup | str:
    """Return a lineup with one agent that replaces the whole team, or the reason why there is none.

    The agent uses the policy of `soloist`, but not the system message of its role. It may generate
    as many tokens as the whole team. The team's stop rule does not apply, because the game of one
    agent may have other rewards.
    """
    team = whole.team
    if len(team.agents) == 1:
        return ONE_AGENT
    if not isinstance(whole.environment, PlaysAlone):
        return f"{class_name(whole.environment)} has no alone(), the game for one agent"
    environment = _asked(whole.environment, whole.environment.alone)
    if len(environment.agents) != 1:
        raise ConfigError(
            f"alone() gives a game for {', '.join(environment.agents)}; expected one agent"
        )
    (agent,) = environment.agents
    longest = sum(decode.max_new_tokens for decode in team.decode.values())
    decode = team.decode[soloist].model_copy(update={"max_new_tokens": longest})
    plan = whole.plan.model_copy(update={"stop_at_reward": None})
    return Lineup(
        "the single agent", environment, Team({agent: team.agents[soloist]}, {agent: decode}), plan
    )


async def _naive(
    context: EvalContext, whole: Lineup, untrained: Evaluation
) -> BaselineResult | str:
    """Play one turn in which all agents act at the same time and see no other reply."""
    if len(whole.team.agents) == 1:
        return ONE_AGENT
    first = [game.turns[0][0] for games in untrained.games for game in games]
    if any(set(round_.prompts) != set(whole.team.agents) for round_ in first):
        return "not every agent acts in the first turn"
    if len(whole.plan.samples) == 1:
        return result(NAIVE, untrained, "the untrained team itself: the game has one turn")
    short = Lineup(
        whole.who, whole.environment, whole.team, whole.plan.model_copy(update={"samples": (1,)})
    )
    played = await context.play(NAIVE, short)
    if played.summary.success is None and untrained.summary.success is not None:
        return "this game reports no success after one turn"
    return result(NAIVE, played)


async def _talk(
    context: EvalContext,
    protocol: str,
    kind: type[Pipeline] | type[Discussion],
    whole: Lineup,
    untrained: Evaluation,
) -> BaselineResult | str:
    if len(whole.team.agents) == 1:
        return ONE_AGENT
    rounds = [round_ for games in untrained.games for game in games for round_, _ in game.turns]
    if rounds and all(len(round_.prompts) == 1 for round_ in rounds):
        return "only one agent acts in each turn, so agents cannot read each other"
    talking = kind(whole.environment, whole.plan)
    plan, team = lengthened(whole.plan, whole.team, talking.rounds_per_turn)
    return result(protocol, await context.play(protocol, Lineup(whole.who, talking, team, plan)))


# ------------------------------------------------------------ best and majority of n


async def _chosen(
    context: EvalContext, source: Lineup, drawn: Evaluation, budget: float
) -> dict[str, BaselineResult | str]:
    """Choose among samples of `source`, by both methods, as many as `budget` tokens per task allow.

    `drawn` already contains the first samples.
    """
    each = tokens_per_group(drawn.games, 1)
    if not each:
        why = "no generated tokens were counted (answers of an API have no tokens)"
        return dict.fromkeys((BEST, MAJORITY), why)
    wanted = max(1, int(budget / each))
    played = (
        drawn
        if wanted <= context.samples
        else await context.play(f"{wanted} samples", source, wanted)
    )
    n = affordable(played.games, budget)
    answer = _answer_of(source.environment)
    oracle = (
        f"the best sample of {source.who}, by success and then by reward: an oracle, so an upper "
        "bound"
    )
    vote = f"the most common {'text' if answer is verbatim else 'answer'} of {source.who}"
    if n == 1:
        oracle = vote = f"{source.who} itself, because the token budget allows one sample"
    return {
        BEST: _pick(BEST, played, n, best_game, oracle),
        MAJORITY: _pick(MAJORITY, played, n, lambda games: majority_game(games, answer), vote),
    }


def _pick(
    protocol: str,
    played: Evaluation,
    n: int,
    pick: Callable[[Sequence[Playthrough]], Playthrough | None],
    note: str,
) -> BaselineResult:
    """Choose one game of every `n` as the answer. The cost is that of all n games."""
    chosen = [[pick(group) for group in groups(games, n)] for games in played.games]
    answers = [[game for game in picked if game is not None] for picked in chosen]
    cost = tokens_per_group(played.games, n)
    return BaselineResult(protocol, answers, played, n, cost, n * _seconds_per_game(played), note)


def _answer_of(environment: Environment[Any]) -> AnswerFunction:
    if not isinstance(environment, Votes):
        return verbatim
    votes = environment.answer

    def answer(task: Task, texts: Mapping[str, str]) -> Any:
        given = _asked(environment, votes, task, texts)
        try:
            hash(given)
        except TypeError:
            raise EnvironmentFault(
                f"{class_name(environment)}.answer returned {type(given).__name__}, which has no "
                "hash; expected a string, number or tuple, because equal answers are counted"
            ) from None
        return given

    return answer


def _asked(
    environment: Environment[Any], method: Callable[..., MethodResult], *arguments: Any
) -> MethodResult:
    """Call a method of the environment. Raises: EnvironmentFault if the method raises."""
    try:
        return method(*arguments)
    except Exception as error:
        raise EnvironmentFault(
            f"{class_name(environment)}.{method.__name__} raised {type(error).__name__}: {error}"
        ) from error


# ------------------------------------------------------------ how many games a budget allows


def groups(games: Sequence[Playthrough], n: int) -> list[Sequence[Playthrough]]:
    """Split games into complete groups of `n`. Each group answers the task once."""
    return [games[start : start + n] for start in range(0, len(games) - n + 1, n)]


def tokens_per_group(games: Games, n: int) -> float:
    """Return the tokens generated for one answer out of `n` games.

    This is the mean over groups, then over the tasks that were played; 0 if none was.
    """
    means = []
    for played in games:
        costs = [sum(game.tokens for game in group) for group in groups(played, n)]
        means += [sum(costs) / len(costs)] if costs else []
    return sum(means) / len(means) if means else 0.0


def affordable(games: Games, tokens: float) -> int:
    """Return the largest number of played games that `tokens` per task allow; at least 1."""
    most = min((len(played) for played in games if played), default=1)
    return next((n for n in range(most, 1, -1) if tokens_per_group(games, n) <= tokens), 1)


# ------------------------------------------------------------ as a table


@dataclass(frozen=True)
class BaselineRow:
    """The results of one protocol.

    Metrics are means over tasks with confidence intervals. None if the environment does not report
    the metric, or if all tasks failed.
    """

    protocol: str
    success: Estimate | None
    reward: Estimate | None
    lead: Mapping[str, Estimate | None]
    """For `success` and `reward`: the lead of the first row over this one, compared task by task.
    Empty in the first row."""
    n: int
    """Number of samples from which each answer was chosen."""
    tokens_per_task: float
    """Tokens generated for one answer by all agents in all turns, including drafts and rejected
    samples."""
    tasks: int
    """Number of tasks that count. The other tasks failed."""
    faults: int
    causes: Mapping[str, int]
    """`where/cause` -> number of faults."""
    note: str
    time: Mapping[str, float]
    """`seconds_per_task`: wall-clock time for one answer when all tasks are played concurrently."""


@dataclass(frozen=True)
class BaselineTable:
    """The comparison table. Everything except `BaselineRow.time` is determined by the config and
    its seed."""

    tasks: int
    samples: int
    """Games per task in each row that does not choose among n samples."""
    confidence: float
    resamples: int
    rows: list[BaselineRow]
    left_out: dict[str, str]
    """Protocol -> why it is missing from the table."""


def baseline_table(
    results: Sequence[BaselineResult],
    left_out: dict[str, str],
    *,
    tasks: int,
    samples: int,
    seed: int,
) -> BaselineTable:
    """Return one row per result. The first one is compared with each of the others."""
    rows = [_row(one, results[0] if place else None, seed) for place, one in enumerate(results)]
    return BaselineTable(tasks, samples, CONFIDENCE, RESAMPLES, rows, left_out)


def _row(one: BaselineResult, first: BaselineResult | None, seed: int) -> BaselineRow:
    count, reward_of = game_count(one.games), rewards(one.games)
    lead: dict[str, Estimate | None] = {}
    if first is not None:
        fewer = min(game_count(first.games), count)
        theirs, own = successes(first.games), successes(one.games)
        lead["success"] = rate_difference(theirs, own, fewer, seed)
        lead["reward"] = paired_difference(rewards(first.games), reward_of, seed)
    return BaselineRow(
        protocol=one.protocol,
        success=success_of(one.games, seed),
        reward=estimate(reward_of, seed),
        lead=lead,
        n=one.n,
        tokens_per_task=one.tokens_per_task,
        tasks=sum(value is not None for value in reward_of),
        faults=one.played.summary.faults,
        causes=one.played.summary.causes,
        note=one.note,
        time={"seconds_per_task": one.seconds_per_task},
    )
