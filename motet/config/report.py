"""The section of a run config about records besides metrics.jsonl and summary.json."""

from typing import Literal

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


class ReportConfig(Settings):
    """Records besides metrics.jsonl and summary.json."""

    tensorboard: bool = True
    """Also write the metrics to RUN/tensorboard."""
    wandb: WandbConfig | None = None
    """Also log the metrics to Weights & Biases."""
    episodes: Literal["all", "none"] = "all"
    """all: write every training episode to RUN/episodes. none: write only the episodes of
    evaluations."""
