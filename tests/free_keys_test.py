"""docs/reliability.md lists the keys that may differ when a run is resumed, as they are."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

from motet.api.resuming import FREE
from motet.config.schema import RunConfig
from motet.config.sections import OneVerifier
from motet.settings import Settings
from motet_published.comparator import ComparatorOptions

PAGE = (Path(__file__).parent.parent / "docs" / "reliability.md").read_text()
SERVICES = ("expert", "verifier", "comparator.endpoint")


def records(annotation: Any) -> Iterator[tuple[type[Settings], str]]:
    """Yield the records in an annotation, each with the part of a key that leads to it: that of a
    list has a number, and that of a mapping a name."""
    if annotation == "OneVerifier":  # an ensemble holds verifiers, and names their type
        annotation = OneVerifier
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation, ""
    inner = {"tuple": "0.", "dict": "name."}.get(getattr(annotation, "__name__", ""), "")
    for part in get_args(annotation):
        for record, within in records(part):
            yield record, inner + within


def keys(record: type[Settings], at: str = "", inside: tuple[type, ...] = ()) -> Iterator[str]:
    """Yield the dotted key of every value of a record."""
    for name, field in record.model_fields.items():
        found = [one for one in records(field.annotation) if (*inside, record).count(one[0]) < 1]
        if not found:
            yield at + name
        for deeper, within in found:
            yield from keys(deeper, f"{at}{name}.{within}", (*inside, record))


def listed(key: str) -> bool:
    """Return whether the table of the page has a key."""
    table = re.search(r"^\| keys \| \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    for row in table[1].splitlines():
        cell, remark = (part.strip() for part in row[1:-1].split("|"))
        but = re.findall(r"but not `(\S+)`", remark)
        of = re.findall(r"`(\S+?)`", remark.lower()) if remark.startswith("of ") else [""]
        fits = any(fnmatch(key, pattern) for pattern in re.findall(r"`(\S+?)`", cell))
        if fits and not any(fnmatch(key, one) for one in but) and key.startswith(tuple(of)):
            return True
    return False


def test_the_page_lists_the_keys_that_may_differ_when_a_run_is_resumed():
    known = {*keys(RunConfig), *(f"comparator.{key}" for key in keys(ComparatorOptions))}
    assert {
        "threads", "rollout.call_threads", "verifier.ensemble.0.base_url", "train.steps",
        "cluster.samplers.engine", "verifier.agents.name.retries", "comparator.endpoint.retries",
    } <= known  # fmt: skip
    free = {key for key in known if FREE.fullmatch(key)}
    assert {key for key in known if listed(key)} == free
    assert len(known) > len(free) > 40


def test_each_service_of_the_page_has_free_keys():
    for service in SERVICES:
        assert f"`{service}`" in PAGE
        assert FREE.fullmatch(f"{service}.retries")
