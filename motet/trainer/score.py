"""score: what models other than the players say of a step's completions. Nothing is computed that no algorithm asks for."""

from collections.abc import Sequence

from motet.core import Episode, SampleId, Scorer, ScoreRequest, Scores, Team, walk
from motet.settings import Algorithm


async def score(scorer: Scorer, episodes: Sequence[Episode], algorithm: Algorithm, team: Team) -> Scores:
    """Reference log-probabilities of every completion that may be trained, asked for in one call."""
    if not algorithm.needs_reference:
        return Scores()
    wanted: dict[SampleId, ScoreRequest] = {}
    for episode in episodes:
        for path, round_ in walk(episode.root) if episode.root is not None else ():
            for agent, completions in round_.samples.items():
                for index, completion in enumerate(completions):
                    if completion.tokens is not None and completion.policy not in team.frozen:
                        wanted[SampleId(episode.id, path, agent, index)] = ScoreRequest(
                            completion.policy, round_.prompt_tokens[agent], completion.tokens, completion.temperature
                        )
    logprobs = await scorer.logprobs(list(wanted.values()))
    return Scores(reference=dict(zip(wanted, logprobs, strict=True)))
