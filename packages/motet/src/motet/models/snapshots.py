"""Earlier weights of a policy, one of which a frozen policy plays at each step: past opponents.

The weights at the start and the newest snapshots are in main memory, and in checkpoints.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from motet.core.seeding import derive
from motet.models.backbone import Policy


class Snapshots:
    """The stored weights of `source`, which `player` plays with.

    The weights after every `every`-th step are stored. `keep` is how many of the newest are kept,
    besides those of the start.
    """

    def __init__(self, player: Policy, source: Policy, *, every: int, keep: int, seed: int) -> None:
        self._player, self._source = player, source
        self._every, self._keep, self._seed = every, keep, seed
        self._stored = {0: _copied(source)}
        """Step -> the weights after it, the oldest first."""

    @property
    def steps(self) -> list[int]:
        """The steps after which the weights were stored. 0: the start."""
        return list(self._stored)

    def store(self, step: int) -> None:
        """Store the present weights of the source if step `step` is due."""
        if step % self._every == 0:
            start, *later = self._stored
            kept = (start, *later[max(0, len(later) + 1 - self._keep) :])
            self._stored = {one: self._stored[one] for one in kept} | {step: _copied(self._source)}

    def drawn(self, step: int) -> int:
        """Return the step of the weights that play step `step`: each is equally likely."""
        steps = self.steps
        return steps[derive(self._seed, "snapshot", self._player.name, step) % len(steps)]

    @torch.no_grad()
    def play(self, step: int | None) -> int:
        """Give the player the weights that it plays at `step`; None: those of the start.

        Returns the step after which they were stored.
        """
        chosen = 0 if step is None else self.drawn(step)
        for weight, value in zip(self._player.own_weights(), self._stored[chosen], strict=True):
            weight.copy_(value)
        self._player.backbone.sync_from_master()
        return chosen

    def tensors(self) -> dict[str, Tensor]:
        """Return all stored weights: `snapshots.NAME.PLACE.i`. `steps` has the step of a place."""
        return {
            self._key(place, index): weight
            for place, weights in enumerate(self._stored.values())
            for index, weight in enumerate(weights)
        }

    def load(self, steps: Sequence[int], tensors: Mapping[str, Tensor]) -> None:
        """Restore what `steps` and `tensors` returned."""
        count = len(self._stored[0])
        self._stored = {
            step: [tensors[self._key(place, index)].clone() for index in range(count)]
            for place, step in enumerate(steps)
        }

    def _key(self, place: int, index: int) -> str:
        return f"snapshots.{self._player.name}.{place}.{index}"


def _copied(policy: Policy) -> list[Tensor]:
    return [weight.detach().cpu().clone() for weight in policy.own_weights()]
