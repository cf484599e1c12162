"""The section `report` of a run config: where metrics and episodes are written and shown."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from motet.settings import Settings
from motet.user_code.plugins import is_reference


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


class MlflowConfig(Settings):
    """MLflow. It needs pip install "motet[mlflow]"."""

    experiment: str = "motet"
    """The experiment that the run is logged to."""
    tracking_uri: str | None = None
    """The tracking server, such as http://localhost:5000. The default is that of MLflow, which
    reads MLFLOW_TRACKING_URI. A password belongs into MLFLOW_TRACKING_PASSWORD."""
    name: str | None = None
    """The display name. The default is the name of the run."""


class TrackioConfig(Settings):
    """Trackio, which writes to files of this machine. It needs pip install "motet[trackio]"."""

    project: str = "motet"
    """The project that the run is logged to."""
    space_id: str | None = None
    """A Space of the Hugging Face Hub that also gets the metrics, such as USER/NAME."""
    name: str | None = None
    """The display name. The default is the name of the run."""


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
    mlflow: MlflowConfig | None = None
    """Also log the metrics to MLflow."""
    trackio: TrackioConfig | None = None
    """Also log the metrics to Trackio."""
    to: Annotated[str, AfterValidator(_reference)] | None = None
    """Your own tracker: a function at package.module:NAME or ./file.py:NAME. It is called with
    (step, metrics) for every line of metrics.jsonl and warmup.jsonl."""
    log_completions: bool = True
    """On a terminal, show the last completion of each agent below the progress bar."""
    episodes: Literal["all", "none"] = "all"
    """all: write every training episode to RUN/episodes. none: write only the episodes of
    evaluations."""
