"""Checks whether this process has the Python objects that a config refers to."""

from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.objects import PREFIX, described, is_found, is_object


def refuse_missing_objects(config: RunConfig, *, train: bool) -> None:
    """Raises: ConfigError that names every missing object, and says how to pass it again."""
    data = config.data
    references = {
        "environment": ("environment.name", config.environment.name),
        "reward": ("reward.name", config.reward.name if config.reward else None),
        "credit": ("credit", config.credit if train else None),
        "data={'eval': rows}": ("data.eval.path", data.eval.path if data.eval else None),
        "data={'train': rows}": (
            "data.train.path",
            data.train.path if train and data.train else None,
        ),
    }
    missing = {
        argument: (key, name)
        for argument, (key, name) in references.items()
        if name is not None and is_object(name) and not is_found(name)
    }
    if not missing:
        return
    named = "; ".join(f"{key} is {described(name)}" for key, name in missing.values())
    calls = ", ".join(
        argument if "=" in argument else f"{argument}={_name(name)}"
        for argument, (_, name) in missing.items()
    )
    key, name = next(iter(missing.values()))
    place = "FILE.jsonl" if key.startswith("data") else f"./FILE.py:{_name(name)}"
    raise ConfigError(
        f"the config was made in Python, with what this process does not have: {named}. Pass it "
        f"again, as in motet.evaluate(RUN, {calls}), or name a file: {key}={place}"
    )


def _name(reference: str) -> str:
    """Return the last part of an object's qualified name."""
    return reference.removeprefix(PREFIX).rpartition("@")[0].rpartition(":")[2].rpartition(".")[2]
