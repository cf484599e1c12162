"""Values of a run's files in the form that the page expects.

A run may be a stranger's, or be written by another version, so a figure may be anything. What has
another form is left out: the page then shows a dash, and every other run as before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_LARGEST = 1e300
MOST = 2000
"""Longest list of a run's file that is shown."""


def number(value: Any) -> int | float | None:
    """Return a finite number, or None for everything else."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return value if plain and abs(value) < _LARGEST else None  # NaN is not smaller


def integer(value: Any) -> int | None:
    """Return a whole number that SQLite can store, or None for everything else."""
    found = number(value)
    return found if isinstance(found, int) and abs(found) < 1 << 62 else None


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list."""
    found = value[:MOST] if isinstance(value, list) else []
    return [one for one in found if isinstance(one, Mapping)]


def texts(value: Any) -> list[str]:
    return [one for one in value[:MOST] if isinstance(one, str)] if isinstance(value, list) else []


def numbers(value: Any, names: Sequence[str]) -> dict[str, int | float | None]:
    """Return the named figures of an object."""
    return {name: number(mapping(value).get(name)) for name in names}


def ends(value: Any) -> dict[str, list[int | float | None]]:
    """Return the ends of the intervals of success and reward.

    One without a width says nothing, such as the bootstrap of 0 of 4 in older records. It is left
    out.
    """
    found = mapping(value)
    return {
        name: [number(one) for one in found[name]]
        for name in ("success", "reward")
        if isinstance(found.get(name), list)
        and len(found[name]) == 2
        and found[name][0] != found[name][1]
    }


def estimate(value: Any) -> dict[str, int | float | None] | None:
    """Return a mean with the ends of its interval."""
    return numbers(value, ("mean", "low", "high")) if isinstance(value, Mapping) else None


def alarms(value: Any) -> list[dict[str, Any]]:
    return [
        {
            "step": integer(one.get("step")) or 0,
            "metric": text(one.get("metric")) or None,
            "value": number(one.get("value")),
            "bound": text(one.get("bound")) or None,
        }
        for one in rows(value)
    ]


def conventions(value: Any) -> dict[str, dict[str, int | float]]:
    """Return agent -> label -> share."""
    return {
        str(agent): {
            str(label): share
            for label, said in mapping(labels).items()
            if (share := number(said)) is not None
        }
        for agent, labels in mapping(value).items()
    }


def influence(value: Any) -> dict[str, Any] | None:
    """Return who was right at each turn and who persuaded whom. None if it is not that."""
    found = mapping(value)
    turns = [
        {
            "right": {str(agent): number(one) for agent, one in mapping(turn["right"]).items()},
            "mean": number(turn.get("mean")),
            "majority": number(turn.get("majority")),
        }
        for turn in rows(found.get("turns"))
        if isinstance(turn.get("right"), Mapping)
    ]
    if not turns:
        return None
    shares = ("persuaded", "persuadable", "misled", "misleadable")
    pairs = [
        {"speaker": text(one.get("speaker")), "listener": text(one.get("listener"))}
        | numbers(one, shares)
        for one in rows(found.get("pairs"))
    ]
    overall = found.get("overall")
    kinds = ("improved", "declined", "kept_right", "kept_wrong")
    shown = numbers(overall, kinds) if isinstance(overall, Mapping) else None
    return {"turns": turns, "pairs": pairs, "overall": shown}
