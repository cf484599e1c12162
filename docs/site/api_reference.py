"""The reference of the Python API: every public name of the packages that Python programs import.

A package says in `__all__` what is public. mkdocstrings writes the signature and the docstring of
each name when the site is built.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

PACKAGES: Mapping[str, str] = {
    "motet": "Train, evaluate and look at teams; write environments, rewards and algorithms.",
    "motet_compare": "Compare runs: over seeds, with baselines, with each other, with records.",
    "motet_serve": "Ask a trained team, serve it, export it.",
    "motet_verifier": "Make, train and serve a model that scores answers.",
    "codejudge": "The sandbox. It knows nothing of Motet.",
    "motet.loop": "The verbs of a training loop by hand.",
}
"""Package -> what it is for."""


UNPACKAGED = "motet.user_code."
"""A folder without `__init__.py`, whose modules mkdocstrings reads by their own names:
zensical.toml has it among its paths."""
SOURCES = {package.partition(".")[0] for package in PACKAGES}


def public_names() -> Mapping[str, list[str]]:
    """Return package -> its public names."""
    return {package: sorted(import_module(package).__all__) for package in PACKAGES}


def home_of(package: str, name: str) -> str:
    """Return the dotted path where a public name is defined: what mkdocstrings reads."""
    if package == "motet" and name == "Config":
        return "motet.config.schema.RunConfig"
    found: Any = getattr(import_module(package), name)
    module = getattr(found, "__module__", "")
    if getattr(found, "__qualname__", "") == name and module.partition(".")[0] in SOURCES:
        return f"{module.removeprefix(UNPACKAGED)}.{name}"
    return f"{package}.{name}"  # an alias of a type


def api_reference() -> str:
    """Return one entry per public name, as Markdown for mkdocstrings."""
    parts = []
    for package, names in public_names().items():
        parts.append(f"## {package}\n\n{PACKAGES[package]}")
        parts += [_entry(package, name) for name in names]
    return "\n\n".join(parts)


def _entry(package: str, name: str) -> str:
    """Return what mkdocstrings makes an entry of, with the public name as its heading."""
    return (
        f"::: {home_of(package, name)}\n"
        f"    options:\n"
        f"      heading: {package}.{name}\n"
        f"      toc_label: {package}.{name}"
    )
