"""The date that chat templates read: a run keeps that of its start."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from motet.config.load import load_config
from motet.config.schema import RunConfig
from motet.models.chat_template import reads_date, tokenizer_with


def kept_dates(config: RunConfig, recorded: Path | None, now: datetime) -> RunConfig:
    """Return the config with a date for every model whose chat template reads one.

    Args:
        recorded: the config of the run that goes on, which has its dates. None: a new run.
        now: the start of a new run.

    Raises: ConfigError.
    """
    if recorded is not None:
        before = load_config(recorded).models
        dates = {name: base.template_date for name, base in before.items()}
    else:
        dates = _dates(config, now)
    return _dated(config, dates)


def _dates(config: RunConfig, now: datetime) -> dict[str, str | None]:
    return {
        name: now.isoformat(" ", "seconds")
        for name, base in config.models.items()
        if base.path is not None and reads_date(tokenizer_with(base.path, base.template)[0])
    }


def _dated(config: RunConfig, dates: Mapping[str, str | None]) -> RunConfig:
    models = {
        name: base.model_copy(update={"template_date": dates[name]})
        if base.template_date is None and dates.get(name) is not None
        else base
        for name, base in config.models.items()
    }
    return config if models == config.models else config.model_copy(update={"models": models})
