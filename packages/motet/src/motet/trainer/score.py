"""Score the completions of a step with reference policies and critics.

Only what the algorithm needs is computed.
"""

from collections.abc import Iterator, Sequence

from motet.core import (
    Completion,
    Episode,
    Path,
    Round,
    SampleId,
    Scorer,
    ScoreRequest,
    Scores,
    Team,
    ValueEstimate,
    ValueId,
    ValueRequest,
    walk,
)
from motet.credit.views import joint_observation, own_observation
from motet.settings import Algorithm, CriticCredit


async def score(
    scorer: Scorer, episodes: Sequence[Episode], algorithm: Algorithm, team: Team
) -> Scores:
    """Return reference log-probabilities and values, each computed in one call.

    The log-probabilities cover every completion that can be trained; the values cover every
    observation that a critic values.
    """
    return Scores(
        reference=await _reference(scorer, episodes, team) if algorithm.needs_reference else {},
        values=await _values(scorer, episodes, algorithm.critic, team)
        if algorithm.critic is not None
        else {},
    )


async def _reference(
    scorer: Scorer, episodes: Sequence[Episode], team: Team
) -> dict[SampleId, tuple[float, ...]]:
    wanted = {
        id: ScoreRequest(
            team.teacher_of(id.agent, len(id.path)) or completion.policy,
            round_.prompt_tokens[id.agent],
            completion.tokens,
            completion.temperature,
            completion.forced,
            completion.restriction,
        )
        for id, round_, completion in completions_of(episodes)
        if completion.tokens is not None and completion.policy not in team.frozen
    }
    return dict(zip(wanted, await scorer.logprobs(list(wanted.values())), strict=True))


async def _values(
    scorer: Scorer, episodes: Sequence[Episode], rule: CriticCredit, team: Team
) -> dict[ValueId, ValueEstimate]:
    wanted: dict[ValueId, ValueRequest] = {}
    first_rounds = _first_rounds(episodes) if rule.view == "first" else {}
    for id, round_, completion in completions_of(episodes):
        if id.agent not in team.critics:
            continue
        critic = team.critics[id.agent]
        if rule.scope == "token":
            if completion.tokens is not None:
                reading = ValueId(id.episode, id.path, id.agent, id.index)
                read = first_rounds[id] if rule.view == "first" else round_
                wanted[reading] = ValueRequest(
                    critic,
                    prompt_tokens=read.prompt_tokens[id.agent],
                    completion=completion.tokens,
                )
        elif rule.view == "own":
            wanted[ValueId(id.episode, id.path, id.agent)] = ValueRequest(
                critic, own_observation(round_, id.agent)
            )
        elif (together := ValueId(id.episode, id.path, None)) not in wanted:
            wanted[together] = ValueRequest(critic, joint_observation(round_))
    return dict(zip(wanted, await scorer.values(list(wanted.values())), strict=True))


def completions_of(episodes: Sequence[Episode]) -> Iterator[tuple[SampleId, Round, Completion]]:
    """Yield all completions, each with its id and the Round that it belongs to."""
    for episode in episodes:
        for path, round_ in walk(episode.root) if episode.root is not None else ():
            for agent, completions in round_.samples.items():
                for index, completion in enumerate(completions):
                    yield SampleId(episode.id, path, agent, index), round_, completion


def _first_rounds(episodes: Sequence[Episode]) -> dict[SampleId, Round]:
    """Return, for every completion, the first Round on its path in which its agent acted."""
    seen: dict[tuple[str, Path, str], Round] = {}
    found: dict[SampleId, Round] = {}
    for id, round_, _ in completions_of(episodes):
        above = (id.path[:depth] for depth in range(len(id.path)))
        earlier = [
            seen[id.episode, path, id.agent]
            for path in above
            if (id.episode, path, id.agent) in seen
        ]
        seen[id.episode, id.path, id.agent] = round_
        found[id] = earlier[0] if earlier else round_
    return found
