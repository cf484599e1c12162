"""The folder of a verifier: the names of its files, its card, and a check before it is loaded."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from motet.errors import ConfigError
from motet.models.folder import inside
from motet.safety.reading import ROWS, WEIGHTS, read_json
from motet.settings import Settings
from motet.user_code.plugins import look_at
from motet_verifier.server_settings import Reads

CARD, HEAD, ADAPTER = "verifier.json", "head.safetensors", "adapter"
FORMAT: Literal[1] = 1


class Card(Settings):
    """Content of verifier.json."""

    format: Literal[1]
    base: str | None
    """Source of the frozen base model of an adapter. null if the folder has all weights."""
    facts: dict[str, Any]


def check_folder(folder: str | Path, reads: Reads = "end") -> Card:
    """Read a verifier's card. Weights are not read, but their files are checked for completeness.

    Raises: ConfigError, also if the verifier was not trained for this way of reading its values.
    """
    place = Path(folder)
    if look_at(place / CARD) != "file":
        raise ConfigError(
            f"{place} has no {CARD}; expected the folder of a verifier: make one with motet "
            "verifier train"
        )
    try:
        said = _json(place, place / CARD)
        if isinstance(said, dict) and said.get("format") != FORMAT:
            raise ConfigError(
                f"{place / CARD} has format {said.get('format')}, expected {FORMAT}: train the "
                "verifier again"
            )
        card = Card.model_validate(said)
        for plain in place.rglob("*.json"):
            _json(place, plain)
        for weights in {place / HEAD, *place.rglob("*.safetensors")}:
            inside(place, str(weights.relative_to(place)), WEIGHTS)
            with safe_open(weights, "pt"):
                """A truncated file does not open."""
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(
            f"{place / CARD}: {where}: {first['msg']}: train the verifier again"
        ) from error
    except (ValueError, OSError, SafetensorError) as error:
        raise _unreadable(place, error) from error
    if reads != "end" and card.facts.get("loss") == "last":
        raise ConfigError(
            f"reads is {reads}, but the verifier in {place} was trained with loss: last, so only "
            "its value at the end is meaningful: use reads: end, or train a verifier with loss: "
            "every"
        )
    if card.base is None and not (place / "config.json").is_file():
        raise ConfigError(
            f"{place} has no config.json, and its {CARD} names no base: copy all files of the "
            "verifier"
        )
    if (
        card.base is not None
        and Path(card.base).is_absolute()
        and look_at(Path(card.base)) == "nothing"
    ):
        raise ConfigError(
            f"the verifier in {place} is an adapter on {card.base}, which does not exist: restore "
            f"it, or set base in {CARD} to its new place"
        )
    return card


def _json(place: Path, path: Path) -> Any:
    try:
        return read_json(path, ROWS)
    except ConfigError as error:
        raise _unreadable(place, error) from error


def _unreadable(place: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"the verifier in {place} cannot be read: {error}: train it again, or copy it again"
    )
