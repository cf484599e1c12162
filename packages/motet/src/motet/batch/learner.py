"""The protocol of what trains one backbone."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from motet.batch.batches import Batch, ValueBatch
from motet.batch.objectives import BatchMetrics, Objective, ValueObjective


class Learner(Protocol):
    """Trains one backbone.

    It has one optimiser for each policy and critic on the backbone. It may run in this process or
    elsewhere.
    """

    async def logprobs(self, batch: Batch) -> Tensor:
        """Return log-probabilities under the present weights, float32 [B, Lc] on the CPU, without a
        gradient."""
        ...

    async def accumulate(self, batch: Batch, objective: Objective) -> BatchMetrics:
        """Add the batch's gradient to the accumulated gradient of its policy."""
        ...

    async def accumulate_values(self, batch: ValueBatch, objective: ValueObjective) -> BatchMetrics:
        """Add the batch's gradient to the accumulated gradient of its critic."""
        ...

    async def step(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Do one gradient step for each policy and critic in `names` that has accumulated
        gradients.

        Accumulated gradients of all others are discarded. Returns the metrics of each step.

        Raises: TrainingDiverged before any weight is changed.
        """
        ...

    async def keep(self, names: Sequence[str]) -> None:
        """Keep copies of the present weights of `names`, in place of those kept before."""
        ...

    async def scale_back(self, names: Sequence[str], factor: float) -> None:
        """Move the weights of `names` back along the line to the kept ones: `factor` of the
        distance is left. Their next steps are shorter too."""
        ...

    def precision(self, name: str) -> str:
        """Return the numerical precision of a policy: a key of `alarms.MISMATCH`."""
        ...

    def suspect(self, batch: Batch) -> str:
        """Return the class of the batch's policy, and possible causes of a mismatch between the
        log-probabilities of training and sampling."""
        ...
