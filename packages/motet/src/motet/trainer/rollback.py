"""A way back: when a team has lost its success, return to the weights of its best steps.

Large trainings are restarted from before a loss spike in the same way (Chowdhery et al. 2022,
arXiv 2204.02311, section 5.1). The steps go on counting, so no game is sampled twice; the credit's
averages and the optimizers' moments come from the checkpoint too, and the learning rates are
halved, since the same steps would lead to the same fall.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from motet.errors import ConfigError
from motet.settings.alarms import Rollback

FALLEN = 0.5
"""A team has fallen if its running success is below this share of its best."""
DEAD = 0.9
"""And if at least so many of its groups failed altogether: they teach nothing."""
SLOWER = 0.5
"""Factor of all learning rates, at each rollback."""
APART = 5
"""Steps between two checkpoints of the best, unless the success has risen by `RISEN`."""
RISEN = 1.1


@dataclass
class BestSoFar:
    """The running success of a team and its best, as plain JSON for the checkpoint."""

    recent: list[float] = field(default_factory=list)
    best: float = 0.0
    best_saved: float = 0.0
    """The running success at the newest checkpoint of the best."""
    saved: list[int] = field(default_factory=lambda: [0])
    """The steps of the checkpoints of the best, the newest last."""
    low: int = 0
    """Steps in a row in which the team was fallen."""
    done: int = 0
    """Rollbacks so far."""


class BestWatch:
    """Decides after every step whether to save it as the best, or to go back."""

    def __init__(self, settings: Rollback, state: Mapping[str, Any] | None = None) -> None:
        self._settings = settings
        self.standing = BestSoFar(**(state or {}))

    def see(self, step: int, figures: Mapping[str, float]) -> Literal["save", "back"] | None:
        """Judge a finished step by its metrics.

        Raises: ConfigError if the environment reports no success.
        """
        if "play/success" not in figures:
            raise ConfigError(
                "alarms.rollback compares the success of steps, but this environment reports none: "
                "give Transition(success=...) at the end of a game, or set alarms.rollback: null"
            )
        now, after = self.standing, self._settings.after
        now.recent = [*now.recent, figures["play/success"]][-after:]
        if len(now.recent) < after:
            return None
        running = sum(now.recent) / after
        if running >= now.best:
            now.best, now.low = running, 0
            due = step - now.saved[-1] >= APART or running >= RISEN * now.best_saved
            return self._saved(step, running) if due and running > 0.0 else None
        fallen = running < FALLEN * now.best and figures.get("credit/groups_failed", 1.0) >= DEAD
        now.low = now.low + 1 if fallen else 0
        if now.low < after or now.done >= self._settings.times:
            return None
        now.low, now.recent, now.done = 0, [], now.done + 1
        return "back"

    def _saved(self, step: int, running: float) -> Literal["save"]:
        self.standing.saved.append(step)
        self.standing.best_saved = running
        return "save"

    def line(self, step: int) -> str:
        """Say the rollback of this step, just decided."""
        now = self.standing
        return (
            f"rollback {now.done} of {self._settings.times} at step {step}: success has fallen "
            f"below half of its best, {now.best:.3g}, and most groups fail altogether: back to the "
            f"weights of step {now.saved[-1]}, at {SLOWER**now.done:.3g} of the learning rates"
        )

    def kept(self, newest: int) -> set[int]:
        """Return the steps whose checkpoints the run needs, if it keeps so many `newest` ones.

        Each of those may be resumed from, and then needs the best of its own time.
        """
        return set(self.standing.saved[-newest - 1 :])

    def state(self) -> dict[str, Any]:
        """Return the standing as plain JSON."""
        return asdict(self.standing)

    def slowed(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of saved weights, for optimizers that are slower by all rollbacks."""
        facts: dict[str, Any] = deepcopy(dict(weights))
        for optimizer in facts["optimizers"].values():
            optimizer["share"] = SLOWER**self.standing.done
        return facts
