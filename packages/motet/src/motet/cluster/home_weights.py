"""What a home does for the engines of its policies: it exports weights, and disturbs them.

`disturb` and `undisturb` are for the rehearsal of a publication (`verification.py`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from codejudge import temporary
from motet.core.seeding import derive
from motet.models.backbone import Policy
from motet.models.shards import placed, whole

NOISE = 0.2
"""The noise of a rehearsal, as a share of the root mean square of each weight matrix."""
NOISE_ON_ZEROS = 0.02
"""The noise on a matrix of zeros: one factor of a new adapter."""


def exported(policy: Policy) -> dict[str, bytes]:
    """Return the weights of a policy as files: safetensors, and an adapter's config.

    Of the processes that share its weights, the first one returns them.
    """
    with temporary.folder("motet-") as folder:
        policy.save(folder)
        wanted = [*folder.glob("*.safetensors"), *folder.glob("adapter_config.json")]
        return {path.name: path.read_bytes() for path in sorted(wanted)}


def disturb(policy: Policy, seed: int) -> list[Tensor]:
    """Add known noise to the policy's weights. Return copies of the weights before."""
    before = []
    with torch.no_grad():
        for place, weight in enumerate(policy.parameters()):
            before.append(weight.detach().cpu().clone())
            generator = torch.Generator().manual_seed(derive(seed, place) % 2**63)
            scale = NOISE * float(whole(weight.square().mean()).sqrt()) or NOISE_ON_ZEROS
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
            weight.add_(placed(scale * noise, weight))
    policy.backbone.sync_from_master()
    return before


def undisturb(policy: Policy, before: Sequence[Tensor]) -> None:
    """Give the policy its weights before `disturb` again, to the bit."""
    with torch.no_grad():
        for weight, old in zip(policy.parameters(), before, strict=True):
            weight.copy_(old)
    policy.backbone.sync_from_master()
