"""Which samples of the acting agents are played together."""

from collections.abc import Iterable, Mapping
from itertools import product

from motet.errors import ConfigError


def joint_actions(counts: Mapping[str, int], pairing: str) -> tuple[dict[str, int], ...]:
    """The joint actions of one Round, each as agent -> index of its sample.

    aligned: the g-th samples of all agents make joint action g; J = G. crossed: every combination, the last agent's index running
    fastest; J = Π of the counts.

    Args: counts, how many samples each acting agent has.
    Raises: ConfigError for an unknown pairing, and for aligned counts that differ.
    """
    picks: Iterable[tuple[int, ...]]
    if pairing == "crossed":
        picks = product(*(range(count) for count in counts.values()))
    elif pairing == "aligned":
        if len(set(counts.values())) > 1:
            raise ConfigError(
                f"aligned pairing got {_listed(counts)} samples; expected equally many: use pairing: crossed"
            )
        picks = zip(*(range(count) for count in counts.values()), strict=True)
    else:
        raise ConfigError(f"got pairing {pairing!r}; expected aligned or crossed: set rollout.pairing to one of them")
    return tuple(dict(zip(counts, pick, strict=True)) for pick in picks)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{agent} {count}" for agent, count in counts.items())
