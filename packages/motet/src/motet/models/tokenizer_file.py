"""Check a tokenizer.json from an untrusted source: it must not take endless time for a string."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from motet.errors import ConfigError
from motet.models.folder_json import check_count, read_object

VOCABULARY = 256 << 20
"""Most bytes of a vocabulary; the largest in use have 40 MB."""
MOST_GROWTH = 10_000


def check_tokenizer(path: Path) -> None:
    """Raise ConfigError for a tokenizer that would take endless time for every string.

    This process could not interrupt it.
    """
    said = read_object(path, VOCABULARY)
    check_count(path, "added_tokens", said.get("added_tokens") or ())
    if _growth(said.get("normalizer")) > MOST_GROWTH:
        # The added tokens are normalized when the file is read.
        raise ConfigError(
            f"{path}: normalizer: makes texts more than {MOST_GROWTH:,} times longer; expected at "
            "most this factor"
        )
    if _has_key(said.get("decoder"), "Regex"):
        raise ConfigError(f"{path}: decoder: got a pattern, expected a decoder of plain strings")


def _growth(normalizer: Any) -> float:
    """Return by what factor these steps may lengthen a string.

    A result above MOST_GROWTH may be too small. We read the steps from last to first and keep, for
    each character, how long the final string may be that comes from it. So a step multiplies the
    result of another step only if it reads the characters that the other one writes. A regular
    expression may read all characters.
    """
    lengths: dict[str, float] = {}
    least = 1.0  # for every character

    def final(text: str) -> float:
        return sum(max(least, lengths.get(character, least)) for character in text)

    for step in reversed(list(_steps(normalizer))):
        pattern, content = step.get("pattern"), step.get("content")
        if not isinstance(content, str) or (made := final(content)) == 0:
            continue
        if made > MOST_GROWTH:
            return made
        plain = pattern.get("String") if isinstance(pattern, dict) else pattern
        if isinstance(plain, str) and plain:
            times = max(1.0, made / final(plain))
            lengths |= {character: times * final(character) for character in set(plain)}
        else:
            least = max(least, made)
    return max([least, *lengths.values()])


def _steps(normalizer: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps in the order in which they are applied."""
    if isinstance(normalizer, dict):
        yield normalizer
        normalizer = normalizer.get("normalizers")
    for one in normalizer if isinstance(normalizer, list) else ():
        yield from _steps(one)


def _has_key(value: Any, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(_has_key(item, key) for item in value.values())
    return isinstance(value, list) and any(_has_key(item, key) for item in value)
