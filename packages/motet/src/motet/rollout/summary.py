"""Figures of episodes: expected values over the valid outcomes of a tree. Faults are left out.

The valid outcomes of a Round share its weight equally. The weight of all open outcomes passes to
those that were expanded. So a pruned outcome counts with its own reward, and the expanded outcomes
represent it in later turns. The weights of a turn add up to the share of the games that reached it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import correlation

from motet.core import Completion, Episode, Fault, Outcome, Round, walk


def outcome_weights(round_: Round) -> tuple[float, ...]:
    """Return the weight of each outcome's own reward: 1 / (valid outcomes), 0 for a fault."""
    valid = sum(outcome.fault is None for outcome in round_.outcomes)
    return tuple(0.0 if outcome.fault is not None else 1.0 / valid for outcome in round_.outcomes)


def onward_weights(round_: Round) -> tuple[float, ...]:
    """Return the weight of each outcome's subtree.

    The expanded outcomes share the weight of all open outcomes equally.
    """
    went_on = sum(outcome.next is not None for outcome in round_.outcomes)
    open_ = went_on + sum(outcome.end == "pruned" for outcome in round_.outcomes)
    shares = zip(outcome_weights(round_), round_.outcomes, strict=True)
    return tuple(
        share * open_ / went_on if outcome.next is not None else 0.0 for share, outcome in shares
    )


@dataclass(frozen=True)
class Move:
    """One valid outcome of a tree."""

    turn: int
    weight: float
    """The share of the games that took this move. Over all moves of a turn the weights add up to
    the share of games that reached the turn."""
    before: Outcome | None
    """The outcome before this one. None at the first turn."""
    outcome: Outcome


def moves(round_: Round, weight: float = 1.0, before: Outcome | None = None) -> Iterator[Move]:
    """Yield every valid outcome of a tree, parents before children."""
    for share, onward, outcome in zip(
        outcome_weights(round_), onward_weights(round_), round_.outcomes, strict=True
    ):
        if outcome.fault is None:
            yield Move(round_.turn, weight * share, before, outcome)
        if outcome.next is not None:
            yield from moves(outcome.next, weight * onward, outcome)


@dataclass(frozen=True)
class EndpointUse:
    """What a policy behind an endpoint answered, and the tokens that its server counted."""

    answers: int
    prompt_tokens: int | None
    """Over the answers whose tokens the server counted. None if there is none."""
    completion_tokens: int | None
    """The same of what it wrote."""
    uncounted: int
    """Answers whose tokens the server did not count. They are in no sum."""


def endpoint_use(said: Iterable[Completion]) -> dict[str, EndpointUse]:
    """Return policy -> its use, for the policies behind endpoints."""
    return joined_use(
        *(
            {
                one.policy: EndpointUse(
                    answers=1,
                    prompt_tokens=one.usage.prompt_tokens,
                    completion_tokens=one.usage.completion_tokens,
                    uncounted=int(one.usage.prompt_tokens is None),
                )
            }
            for one in said
            if one.usage is not None
        )
    )


def joined_use(*uses: Mapping[str, EndpointUse]) -> dict[str, EndpointUse]:
    """Return policy -> the sum of its uses, by name."""
    by_policy: dict[str, list[EndpointUse]] = {}
    for use in uses:
        for policy, one in use.items():
            by_policy.setdefault(policy, []).append(one)
    return {policy: _sum(by_policy[policy]) for policy in sorted(by_policy)}


def _sum(uses: Sequence[EndpointUse]) -> EndpointUse:
    read = [one.prompt_tokens for one in uses if one.prompt_tokens is not None]
    written = [one.completion_tokens for one in uses if one.completion_tokens is not None]
    return EndpointUse(
        answers=sum(one.answers for one in uses),
        prompt_tokens=sum(read) if read else None,
        completion_tokens=sum(written) if written else None,
        uncounted=sum(one.uncounted for one in uses),
    )


@dataclass(frozen=True)
class EpisodeStats:
    """The figures of one episode.

    Figures without any valid outcome are None, or absent from `terms`.
    """

    reward: float | None
    """Undiscounted sum over turns of the mean over agents."""
    agent_rewards: Mapping[str, float]
    """Undiscounted sum over turns for each agent."""
    final_reward: float | None
    """The mean over agents at the last turn only."""
    success: float | None
    """Mean success where the game ended. If any end reports success, an end that does not (such as
    the turn limit) counts as 0."""
    terms: Mapping[str, float]
    """Mean of each term over the outcomes that report it."""
    turns: float | None
    """Mean number of turns played."""
    tokens: int
    """Tokens generated, including the greedy path; 0 for policies behind endpoints."""
    faults: tuple[Fault, ...]
    """The faults of the episode and of its outcomes."""
    endpoints: Mapping[str, EndpointUse]
    """Policy behind an endpoint -> its use, including the greedy path."""


@dataclass(frozen=True)
class Summary:
    """The figures of many episodes.

    Means are taken over the episodes that have the figure; counts are summed.
    """

    episodes: int
    faults: int
    causes: Mapping[str, int]
    """`where/cause` -> number of faults."""
    reward: float | None
    agent_rewards: Mapping[str, float]
    final_reward: float | None
    success: float | None
    terms: Mapping[str, float]
    turns: float | None
    tokens: int
    gold_correlation: float | None
    """Pearson correlation between the reward of an agent at a turn and whether the agent is right
    by the gold answer, over all agents and turns of games that report both. None if either is
    constant. It falls when a reward is being gamed."""
    completion_length: float | None
    """Mean number of tokens per completion."""
    truncated: float | None
    """The share of completions that were cut off at `max_new_tokens` or at the end of the
    context."""
    duplicates: float | None
    """Of an agent's completions of one prompt, without the first: the share that repeats an earlier
    one exactly."""
    endpoints: Mapping[str, EndpointUse] | None = field(default=None, kw_only=True)
    """Policy behind an endpoint -> its use. None if no such policy played."""


def episode_stats(episode: Episode) -> EpisodeStats:
    """Return the figures of one episode. Of its greedy path and of what was played without some
    agents, only tokens and faults count."""
    trees = [tree for tree in (episode.root, episode.greedy) if tree is not None]
    rounds = [round_ for tree in trees for round_ in every_round(tree)]
    tried = [outcome for round_ in rounds for outcome in (*round_.outcomes, *round_.without)]
    faults = [episode.fault, *(outcome.fault for outcome in tried)]
    completions = [c for round_ in rounds for samples in round_.samples.values() for c in samples]
    played = (
        [(move.weight, move.outcome) for move in moves(episode.root)]
        if episode.root is not None
        else []
    )
    ended = [(weight, outcome) for weight, outcome in played if outcome.end not in (None, "pruned")]
    names = sorted({name for _, outcome in played for name in outcome.terms})
    return EpisodeStats(
        reward=sum(weight * _mean(outcome) for weight, outcome in played) if played else None,
        agent_rewards={
            a: sum(w * outcome.rewards[a] for w, outcome in played) for a in played[0][1].rewards
        }
        if played
        else {},
        final_reward=sum(weight * _mean(outcome) for weight, outcome in ended) if played else None,
        success=_success(ended),
        terms={name: value for name in names if (value := _term_mean(played, name)) is not None},
        turns=sum(weight for weight, _ in played) if played else None,
        tokens=sum(len(completion.tokens or ()) for completion in completions),
        faults=tuple(fault for fault in faults if fault is not None),
        endpoints=endpoint_use(completions),
    )


def every_round(root: Round) -> Iterator[Round]:
    """Yield every Round of a tree, those below joint actions without some agents included."""
    for _, round_ in walk(root):
        yield round_
        for outcome in round_.without:
            if outcome.next is not None:
                yield from every_round(outcome.next)


def summarise(episodes: Sequence[Episode]) -> Summary:
    """Return the figures of a training step or an evaluation."""
    stats = [episode_stats(episode) for episode in episodes]

    def mean(figure: Callable[[EpisodeStats], float | None]) -> float | None:
        return _plain_mean(value for one in stats if (value := figure(one)) is not None)

    agents = next((tuple(one.agent_rewards) for one in stats if one.agent_rewards), ())
    any_success = any(one.success is not None for one in stats)
    names = sorted({name for one in stats for name in one.terms})
    causes = Counter(f"{fault.where}/{fault.cause}" for one in stats for fault in one.faults)
    return Summary(
        episodes=len(stats),
        faults=causes.total(),
        causes=dict(sorted(causes.items())),
        reward=mean(lambda one: one.reward),
        agent_rewards={
            a: value
            for a in agents
            if (value := _plain_mean(s.agent_rewards[a] for s in stats if s.agent_rewards))
            is not None
        },
        final_reward=mean(lambda one: one.final_reward),
        success=_plain_mean(one.success or 0.0 for one in stats if one.reward is not None)
        if any_success
        else None,
        terms={
            n: value
            for n in names
            if (value := _plain_mean(s.terms[n] for s in stats if n in s.terms)) is not None
        },
        turns=mean(lambda one: one.turns),
        tokens=sum(one.tokens for one in stats),
        gold_correlation=_gold_correlation(episodes),
        endpoints=joined_use(*(one.endpoints for one in stats)) or None,
        **_answers(episodes),
    )


@dataclass(frozen=True)
class EnvironmentFigures:
    """The figures of one environment of a mixture, as in a `Summary`."""

    episodes: int
    success: float | None
    reward: float | None


def by_environment(episodes: Sequence[Episode]) -> dict[str, EnvironmentFigures]:
    """Return environment -> the figures of its episodes. Empty if they are not of a mixture."""
    names = dict.fromkeys(one.task.environment for one in episodes if one.task.environment)
    found = {}
    for name in names:
        own = summarise([one for one in episodes if one.task.environment == name])
        found[name] = EnvironmentFigures(own.episodes, own.success, own.reward)
    return found


@dataclass(frozen=True)
class ToolCounts:
    """How often an agent called its tools."""

    calls: int
    """Those that cannot be read included. All samples count once."""
    errors: int
    """Calls that cannot be read, and results that are errors."""


def tool_use(episodes: Sequence[Episode]) -> dict[str, ToolCounts]:
    """Return agent -> counts of its calls, for each agent whose prompts offer tools."""
    calls: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    roots = (episode.root for episode in episodes if episode.root is not None)
    for round_ in (found for root in roots for _, found in walk(root)):
        for agent, prompt in round_.prompts.items():
            if isinstance(prompt, str) or not any(message.tools for message in prompt):
                continue
            said = round_.samples[agent]
            unread = sum(bool(one.unread) for one in said)
            calls[agent] += unread + sum(len(one.calls) for one in said)
            # The results behind the agent's last message are new in this Round.
            read = takewhile(lambda message: message.role != "assistant", reversed(prompt))
            errors[agent] += unread + sum(message.failed for message in read)
    return {agent: ToolCounts(calls[agent], errors[agent]) for agent in calls}


def _answers(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """Return the figures of completions. All count equally; greedy paths are left out."""
    rounds = [
        round_
        for episode in episodes
        if episode.root is not None
        for _, round_ in walk(episode.root)
    ]
    groups = [samples for round_ in rounds for samples in round_.samples.values()]
    every = [completion for samples in groups for completion in samples]
    repeated = [float(len(samples) - len({one.text for one in samples})) for samples in groups]
    again = sum(len(samples) - 1 for samples in groups if samples)
    return {
        "completion_length": _plain_mean(
            len(one.tokens) for one in every if one.tokens is not None
        ),
        "truncated": _plain_mean(one.stop == "length" for one in every),
        "duplicates": sum(repeated) / again if again else None,
    }


def _gold_correlation(episodes: Sequence[Episode]) -> float | None:
    paid, gold = [], []
    for episode in episodes:
        for move in moves(episode.root) if episode.root is not None else ():
            right = move.outcome.right
            for agent, reward in move.outcome.rewards.items():
                if agent in right:
                    paid.append(reward)
                    gold.append(right[agent])
    if len(set(paid)) < 2 or len(set(gold)) < 2:
        return None
    return correlation(paid, gold)


def never_ended(episodes: Sequence[Episode]) -> bool:
    """Return whether every game was cut off by the turn limit and none reports `success` there.

    False if nothing was played.
    """
    last = [
        move.outcome
        for episode in episodes
        if episode.root is not None
        for move in moves(episode.root)
        if move.outcome.end not in (None, "pruned")
    ]
    return bool(last) and all(
        outcome.end == "limit" and outcome.success is None for outcome in last
    )


def never_asked(episodes: Sequence[Episode]) -> list[str]:
    """Return the agents that are paid and never acted, if the turn limit cut off every game."""
    played = [episode.root for episode in episodes if episode.root is not None]
    outcomes = [move.outcome for root in played for move in moves(root)]
    ends = {outcome.end for outcome in outcomes} - {None, "pruned"}
    if ends != {"limit"}:
        return []
    paid = {agent: None for outcome in outcomes for agent in outcome.rewards}
    acted = {agent for root in played for _, round_ in walk(root) for agent in round_.samples}
    return [agent for agent in paid if agent not in acted]


def fault_share(episodes: Sequence[Episode]) -> float:
    """Return the share of joint actions that failed; all episodes count equally.

    An episode without a tree counts as 1.
    """
    shares = []
    for episode in episodes:
        outcomes = (
            [o for _, round_ in walk(episode.root) for o in round_.outcomes]
            if episode.root is not None
            else []
        )
        shares.append(
            sum(o.fault is not None for o in outcomes) / len(outcomes) if outcomes else 1.0
        )
    return sum(shares) / len(shares) if shares else 0.0


def _success(ended: Sequence[tuple[float, Outcome]]) -> float | None:
    if all(outcome.success is None for _, outcome in ended):
        return None
    total = sum(weight for weight, _ in ended)
    return sum(weight * (outcome.success or 0.0) for weight, outcome in ended) / total


def _mean(outcome: Outcome) -> float:
    return sum(outcome.rewards.values()) / len(outcome.rewards)


def _term_mean(outcomes: Sequence[tuple[float, Outcome]], name: str) -> float | None:
    having = [
        (weight, outcome.terms[name]) for weight, outcome in outcomes if name in outcome.terms
    ]
    total = sum(weight for weight, _ in having)
    return sum(weight * value for weight, value in having) / total if having else None


def _plain_mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None
