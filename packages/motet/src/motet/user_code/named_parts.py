"""The parts of a game that a config names: environments, rewards and comparators.

A name is one that an installed package registers, or a reference to an object.
"""

from pathlib import Path
from typing import Any, Literal

from motet.errors import ConfigError
from motet.user_code.installed import installed, load, missing
from motet.user_code.plugins import is_reference, load_object, nearest


def find_part(
    group: Literal["environments", "rewards", "comparators"],
    name: str,
    where: str,
    base_folder: Path = Path(),
) -> Any:
    """Return the object called `name`: a registered name, `package.module:NAME`, or
    `./file.py:NAME` relative to `base_folder`.

    Raises: ConfigError naming the key `where` if there is no such object, with the registered names
    or the package that is missing.
    """
    known = installed(group)
    if name not in known and not is_reference(name):
        registered = f"one of {', '.join(known)}, " if known else ""
        raise ConfigError(
            f"{where} is {name!r}{missing(group, name) or nearest(name, known)}; expected "
            f"{registered}package.module:NAME or ./file.py:NAME"
        )
    try:
        return load_object(name, base_folder) if is_reference(name) else load(group, name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
