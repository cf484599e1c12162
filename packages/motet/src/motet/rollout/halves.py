"""Two teams answer one Round: the team the first half of its samples, the comparator the second."""

from collections.abc import Sequence
from dataclasses import replace

from motet.core import Fault, Sampled, SampleRequest, Team


def halves(request: SampleRequest, team: Team) -> list[SampleRequest]:
    """Return the requests for one agent's samples: one, or one to each of the two teams."""
    agent = request.id[3]
    if agent not in team.comparator:
        return [request]
    half = len(request.keys) // 2
    other = replace(
        request,
        id=(*request.id, "comparator"),
        policy=team.comparator[agent],
        keys=request.keys[half:],
    )
    return [replace(request, keys=request.keys[:half]), other]


def joined(
    requests: Sequence[SampleRequest], answers: Sequence[Sampled | Fault]
) -> dict[str, Sampled]:
    """Return agent -> its prompt and all its samples, in the order of the requests.

    The prompt's tokens are those of the agent's own policy. Faults are left out.
    """
    found: dict[str, Sampled] = {}
    for request, answer in zip(requests, answers, strict=True):
        agent = request.id[3]
        if isinstance(answer, Fault):
            continue
        first = found[agent] if agent in found else replace(answer, completions=())
        found[agent] = replace(first, completions=first.completions + answer.completions)
    return found
