"""Pair the samples of the acting agents into joint actions."""

from collections.abc import Iterable, Mapping
from itertools import product

from motet.errors import ConfigError


def joint_actions(counts: Mapping[str, int], pairing: str) -> tuple[dict[str, int], ...]:
    """Return the joint actions of one Round, each as agent -> index of its sample.

    aligned: the g-th samples of all agents form joint action g; J = G. crossed: all combinations,
    where the index of the last agent changes fastest; J = Π of the counts.

    Args:
        counts: number of samples of each acting agent.

    Raises: ConfigError if the pairing is unknown, or if it is aligned and the counts differ.
    """
    picks: Iterable[tuple[int, ...]]
    if pairing == "crossed":
        picks = product(*(range(count) for count in counts.values()))
    elif pairing == "aligned":
        if len(set(counts.values())) > 1:
            raise ConfigError(
                f"aligned pairing got {_listed(counts)} samples; expected the same number for "
                "each agent: use pairing: crossed"
            )
        picks = zip(*(range(count) for count in counts.values()), strict=True)
    else:
        raise ConfigError(
            f"got pairing {pairing!r}; expected aligned or crossed: set rollout.pairing to one of "
            "them"
        )
    return tuple(dict(zip(counts, pick, strict=True)) for pick in picks)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{agent} {count}" for agent, count in counts.items())
