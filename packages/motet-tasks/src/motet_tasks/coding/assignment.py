"""Assigns the methods of a class to agents: in fair shares, or by the published split."""

from collections.abc import Collection, Mapping, Sequence

from motet_tasks.rewards.classes import Shares
from motet_tasks.rewards.skeleton import Skeleton

SLACK = 1.2
"""Maximum size of a share as a multiple of an even share, to keep related methods together."""


def fair(skeleton: Skeleton, agents: Sequence[str], calls: Mapping[str, Collection[str]]) -> Shares:
    """Divide the methods into shares of similar size.

    As far as the sizes allow, methods that call each other (see `calls`) go to the same agent. The
    size of a method is the length of its stub, because a longer description asks for more code.

    Methods are assigned in descending size. A method goes to the agent with the most related
    methods among those with room for it, or to the agent with the smallest share if no agent has
    room. So a share is at most `SLACK` even shares, or an even share plus one method. Every agent
    gets a method, unless there are fewer methods than agents; then the last agents get none.
    """
    sizes = _sizes(skeleton)
    room = SLACK * sum(sizes.values()) / len(agents)
    given: dict[str, list[str]] = {agent: [] for agent in agents}

    def load(agent: str) -> int:
        return sum(sizes[name] for name in given[agent])

    def ties(agent: str, name: str) -> int:
        return sum(
            (other in _called(name, calls)) + (name in _called(other, calls))
            for other in given[agent]
        )

    largest_first = sorted(sizes, key=lambda name: -sizes[name])
    for place, name in enumerate(largest_first):
        idle = [agent for agent in agents if not given[agent]]
        free = idle if len(idle) >= len(largest_first) - place else agents
        roomy = [agent for agent in free if load(agent) + sizes[name] <= room]
        if roomy:
            chosen = min(roomy, key=lambda agent: (-ties(agent, name), load(agent)))
        else:
            chosen = min(free, key=load)
        given[chosen].append(name)
    return _in_order(skeleton, given)


def by_parameters(skeleton: Skeleton, agents: Sequence[str]) -> Shares:
    """Return the published split: methods with one parameter, such as only `self`, go to the first
    agent, all others to the second."""
    first, second = agents[0], agents[-1]
    given: dict[str, list[str]] = {first: [], second: []}
    for stub in skeleton.stubs:
        given[first if stub.parameters == 1 else second].append(_name(stub.key))
    return _in_order(skeleton, given)


def _sizes(skeleton: Skeleton) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for stub in skeleton.stubs:
        name = _name(stub.key)
        sizes[name] = (sizes[name] if name in sizes else 0) + len(stub.text)
    return sizes


def _name(key: str) -> str:
    """Return the method name of a key. Both halves of a property have the same name, so that one
    agent writes both."""
    return key.partition(".")[0]


def _called(name: str, calls: Mapping[str, Collection[str]]) -> Collection[str]:
    return calls[name] if name in calls else ()


def _in_order(
    skeleton: Skeleton, given: Mapping[str, Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the methods of each agent in skeleton order, without agents that have none."""
    shares = {
        agent: tuple(key for key in skeleton.keys if _name(key) in names)
        for agent, names in given.items()
    }
    return {agent: keys for agent, keys in shares.items() if keys}
