"""The section `report` of a run config: where metrics and episodes are written and shown."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from motet.plugins import is_reference
from motet.settings import Settings


class WandbConfig(Settings):
    """Weights & Biases. It needs pip install "motet[wandb]"."""

    project: str = "motet"
    """The project that the run is logged to."""
    entity: str | None = None
    """The user or team. The default is that of the account."""
    name: str | None = None
    """The display name. The default is the name of the run."""
    tags: tuple[str, ...] = ()
    """Tags of the run."""


def _reference(name: str) -> str:
    if not is_reference(name):
        raise ValueError(
            f"got {name!r}, expected a function at package.module:NAME or ./file.py:NAME"
        )
    return name


class ReportConfig(Settings):
    """Records besides metrics.jsonl and summary.json, and what a terminal shows."""

    tensorboard: bool = True
    """Also write the metrics to RUN/tensorboard."""
    wandb: WandbConfig | None = None
    """Also log the metrics to Weights & Biases."""
    logger: Annotated[str, AfterValidator(_reference)] | None = None
    """Your own logger: a function at package.module:NAME or ./file.py:NAME. It is called with
    (step, metrics) for every line of metrics.jsonl and warmup.jsonl."""
    log_completions: bool = True
    """On a terminal, show the last completion of each agent below the progress bar."""
    episodes: Literal["all", "none"] = "all"
    """all: write every training episode to RUN/episodes. none: write only the episodes of
    evaluations."""
