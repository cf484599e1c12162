"""The reference of the KL penalty moves up to the present weights while the team succeeds.

A long run leaves its start behind, and a penalty towards the start then holds it back or grows
until it dominates the loss. With `algorithm.kl.reset_every` the reference becomes the present
policy every so many steps (ProRL: Liu et al. 2025, arXiv 2505.24864, "Reference Policy Reset"), but
only if the success has not fallen since the last reset: a penalty towards a team that has lost its
success would keep it there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from motet.errors import ConfigError

MARGIN = 0.05
"""The success has held if it is at most this much below that of the last reset."""


@dataclass
class ReferenceWatch:
    """Decides every `every` steps whether the reference becomes the present weights."""

    every: int
    step: int = 0
    """The step whose weights are the reference. 0: those of the start."""
    judged: int = 0
    """The last step after which a reset was due."""
    success: float | None = None
    """The success at the last reset, or at the start."""
    heldout: float | None = None
    """The success of the newest evaluation, if the run evaluates between its steps."""
    recent: list[float] = field(default_factory=list)
    """The successes of the steps since `judged`."""

    def see(self, figures: Mapping[str, float], name: str) -> None:
        """Remember the success of a finished step or of an evaluation, the metric `name`.

        Raises: ConfigError if the environment reports no success.
        """
        if name not in figures:
            raise ConfigError(
                "algorithm.kl.reset_every compares the success of steps, but this environment "
                "reports none: give Transition(success=...) at the end of a game, or set "
                "reset_every: null"
            )
        if name.startswith("evaluate/"):
            self.heldout = figures[name]
        else:
            self.recent.append(figures[name])
        self.success = figures[name] if self.success is None else self.success

    def due(self, step: int) -> bool:
        """Return whether the reference becomes the weights after `step`; once for each step."""
        known = self.recent if self.heldout is None else [self.heldout]
        if step == self.judged or step % self.every or not known or self.success is None:
            return False
        now = sum(known) / len(known)
        self.judged, self.recent = step, []
        if now < self.success - MARGIN:
            return False
        self.step, self.success = step, now
        return True

    def state(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return asdict(self)
