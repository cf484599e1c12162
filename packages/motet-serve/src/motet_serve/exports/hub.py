"""The Hugging Face Hub: the licence of a base model, and the upload of an export."""

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from motet.errors import ConfigError, MotetError, shortened
from motet.models.folder import PACKAGED
from motet.safety.reading import check_regular

UNKNOWN = "unknown"
_NAME = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
CARD = 1 << 20
"""Most bytes of a model card."""


def licence_of(base: str | Path) -> str:
    """Return the licence of a base model as its card says, such as apache-2.0.

    It is `unknown` if the card does not say it, or if there is no card and no network.

    Args:
        base: a folder, a name of the hub, whose card is downloaded if it is not in the cache, or
            pip:NAME.
    """
    if str(base).startswith(PACKAGED):
        return _licence_of_package(str(base).removeprefix(PACKAGED))
    from huggingface_hub import ModelCard, hf_hub_download

    try:
        place = Path(base) / "README.md"
        if not Path(base).is_dir():
            place = Path(hf_hub_download(str(base), "README.md"))
        check_regular(place.resolve(), CARD)
        said = ModelCard.load(place, ignore_metadata_errors=True).data
    except Exception:  # noqa: BLE001 - no card, no network, or a card that is not valid
        return UNKNOWN
    named = said.get("license_name") if said.get("license") == "other" else said.get("license")
    return named if isinstance(named, str) and named.isprintable() else UNKNOWN


def _licence_of_package(name: str) -> str:
    try:
        about = metadata.metadata(name).json
    except (metadata.PackageNotFoundError, ValueError):
        return UNKNOWN
    said = str(about.get("license_expression") or about.get("license") or UNKNOWN)
    return said.lower() if said.isprintable() and len(said) < 40 else UNKNOWN


def check_name(name: str) -> None:
    """Raises: ConfigError if it is not USER/NAME."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--push is {name!r}; expected USER/NAME with letters, digits, hyphens, underscores "
            "and dots"
        )


def check_login() -> None:
    """Raises: ConfigError if this machine has no token of the hub."""
    from huggingface_hub import get_token

    if get_token() is None:
        raise ConfigError("--push needs a token of the hub: run hf auth login, or set HF_TOKEN")


def push(folder: Path, name: str, *, public: bool) -> str:
    """Upload the folder to a repository, which is created if it does not exist. Return its address.

    Raises: MotetError that says how to upload it again.
    """
    import httpx2
    from huggingface_hub import HfApi, get_token

    api: Any = HfApi()
    try:
        url = str(api.create_repo(name, private=not public, exist_ok=True))
        api.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Upload a team trained by Motet"
        )
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split()).replace(get_token() or "\0", "[key]")
        raise MotetError(
            f"{folder} is complete, but could not be pushed to {name}: "
            f"{shortened(said, 400, 100)}. Push it again with: hf upload {name} {folder}"
        ) from error
    return url
