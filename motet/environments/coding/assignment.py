"""Who writes which methods of a class: shares that are fair, or the published ones."""

from collections.abc import Collection, Mapping, Sequence

from motet.rewards.classes import Shares
from motet.rewards.skeleton import Skeleton

SLACK = 1.2
"""How much of an even share an agent may write so that methods that call each other stay together."""


def fair(skeleton: Skeleton, agents: Sequence[str], calls: Mapping[str, Collection[str]]) -> Shares:
    """Shares of about the same size; as far as that allows, methods that call each other, as `calls` says, go to one agent.

    The size of a method is that of its stub: whoever asks for more explains more. The largest goes first, to the agent that it
    has most to do with among those with room for it, else to the one with least to write. So nobody has more than `SLACK` even
    shares, or an even share and one method. Everybody writes something, but where there are fewer methods than agents: then the
    last ones have no share.
    """
    sizes = _sizes(skeleton)
    room = SLACK * sum(sizes.values()) / len(agents)
    given: dict[str, list[str]] = {agent: [] for agent in agents}

    def load(agent: str) -> int:
        return sum(sizes[name] for name in given[agent])

    def ties(agent: str, name: str) -> int:
        return sum((other in _called(name, calls)) + (name in _called(other, calls)) for other in given[agent])

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
    """The published split: methods with one parameter, such as `self` alone, to the first agent, all others to the second."""
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
    """Both halves of a property have one name, and one author."""
    return key.partition(".")[0]


def _called(name: str, calls: Mapping[str, Collection[str]]) -> Collection[str]:
    return calls[name] if name in calls else ()


def _in_order(skeleton: Skeleton, given: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    """The methods of each agent that has any, in the order of the skeleton."""
    shares = {agent: tuple(key for key in skeleton.keys if _name(key) in names) for agent, names in given.items()}
    return {agent: keys for agent, keys in shares.items() if keys}
