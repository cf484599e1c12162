"""The keys of algorithms in earlier versions: flat ones, before `credit`, `loss` and `kl` were
sections, and the user's own credit function as `credit` at the top of a config.

Configs and recorded runs have them. `lifted` and `with_own_credit` are the one place that reads
them.
"""

from collections.abc import Mapping
from typing import Any

from motet.settings.base import Settings

SECTIONS = ("credit", "loss", "kl")
"""The keys of an algorithm whose value is one of several kinds."""
FLAT_KEYS: Mapping[str, tuple[str, ...]] = {
    **{key: ("credit", key) for key in ("baseline", "scale", "group_by", "average_decay")},
    **{key: ("credit", key) for key in ("scope", "gae_lambda", "whiten", "clip_value")},
    "critic_view": ("credit", "view"),
    "preference": ("credit",),
    "policy_loss": ("loss", "kind"),
    **{key: ("loss", key) for key in ("clip_low", "clip_high", "clip_dual")},
    "kl_in": ("kl", "kind"),
    **{f"kl_{key}": ("kl", key) for key in ("coefficient", "estimator", "target", "horizon")},
}
"""The flat key, and where it is now. The keys of `preference` are keys of `credit`."""
_NO_KL: Mapping[str, Any] = {"coefficient": 0, "estimator": "k2", "target": None, "horizon": 10000}
"""What beside `kl_in: none` says nothing."""


def lifted(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an algorithm with the flat ones in their sections.

    `said` may be only a layer of a config, so it gets a `kind` only if a flat key decides it.

    Raises: ValueError if a flat key and its section contradict each other.
    """
    found = {key: value for key, value in said.items() if key not in FLAT_KEYS}
    flat: dict[str, Any] = {}
    for key, value in said.items():
        if key not in FLAT_KEYS or key == "preference":
            continue
        section, name = FLAT_KEYS[key]
        flat.setdefault(section, {})[name] = value
    if "preference" in said or "credit" in flat:
        flat["credit"] = _credit(said, flat.get("credit", {}))
    if "kl" in flat:
        flat["kl"] = _kl(flat["kl"])
    for section, value in flat.items():
        found[section] = _joined(section, found[section], value) if section in found else value
    return found


def with_own_credit(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer of a config whose `credit` is `algorithm.credit.function`.

    Raises: ValueError if `credit` is no name of a function, or if both are there and differ.
    """
    others = {key: value for key, value in data.items() if key != "credit"}
    function, algorithm = data["credit"], data.get("algorithm", {})
    if isinstance(function, Mapping):
        raise ValueError("got a section, expected algorithm.credit: move its keys there")
    if not isinstance(function, str | None):
        raise ValueError(f"got {function!r}, expected the name of a function")
    if not isinstance(algorithm, Mapping):
        return others  # which is refused
    own = {"function": function}
    credit = _joined("credit", algorithm["credit"], own) if "credit" in algorithm else own
    return {**others, "algorithm": {**algorithm, "credit": credit}}


def _credit(said: Mapping[str, Any], keys: dict[str, Any]) -> Any:
    preference, view = said.get("preference"), said.get("critic_view")
    if isinstance(preference, Settings):
        preference = preference.model_dump(exclude_unset=True)
    if isinstance(preference, Mapping):
        return {**keys, **preference, "kind": "pairs"}
    if preference is not None:
        return preference  # which is refused, because it has no keys
    if view is not None:
        return {**keys, "kind": "critic"}
    if said.get("baseline") not in (None, "none") or {"preference", "critic_view"} <= said.keys():
        return {**keys, "kind": "group"}
    # Whether there are pairs below is not known; if so, null contradicts them.
    return {**keys, "beta": None} if "preference" in said else keys


def _kl(keys: Mapping[str, Any]) -> dict[str, Any] | None:
    off = keys.get("kind") in (None, "none") if "kind" in keys else keys.get("coefficient") == 0
    silent = all(keys[key] == value for key, value in _NO_KL.items() if key in keys)
    return None if off and silent else dict(keys)


def _joined(section: str, nested: Any, flat: Any) -> Any:
    if isinstance(nested, Settings):
        nested = nested.model_dump(exclude_unset=True)
    if not isinstance(nested, Mapping) or not isinstance(flat, Mapping):
        raise ValueError(f"got {section} and a flat key of it, expected {section} alone")
    twice = [key for key in flat if key in nested and nested[key] != flat[key]]
    if twice:
        raise ValueError(f"got {section}.{twice[0]} twice, expected {section} alone")
    return {**nested, **flat}


def laid_on(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an algorithm with those of `over`, both lifted.

    A section of another kind takes the place of the one below.
    """
    merged = {
        key: {**under[key], **over[key]}
        for key in SECTIONS
        if isinstance(under.get(key), Mapping)
        and isinstance(over.get(key), Mapping)
        and not is_other(under[key], over[key], "kind")
    }
    return {**under, **over, **merged}


def is_other(under: Any, over: Any, key: str) -> bool:
    """Return whether `over` chooses another part by `key` than `under`."""
    chosen = [one.get(key) if isinstance(one, Mapping) else None for one in (under, over)]
    return None not in chosen and chosen[0] != chosen[1]
