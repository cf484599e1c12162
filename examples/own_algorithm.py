"""Your own algorithm: the group's median as baseline, and a smooth policy loss.

Run: python examples/own_algorithm.py
"""

import torch

import motet


def group_median(comparison):
    """Return the baseline, the median of the group, for each of the S samples: shape [S].

    `comparison` has returns_S and group_S.
    """
    baseline_S = comparison.returns_S.clone()
    for group in range(comparison.groups):
        members_S = comparison.group_S == group
        # Not median(), which is the lower of the two middle values.
        baseline_S[members_S] = comparison.returns_S[members_S].quantile(0.5)
    return baseline_S


def smooth(inputs):
    """Return the loss of each token of `motet.LossInputs`: smooth where PPO clips, shape [B, L]."""
    return -inputs.advantages_BL * 4.0 * torch.sigmoid(motet.token_ratio(inputs) - 1.0)


if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        ["name=own_algorithm", "algorithm={name: magrpo, epochs: 2}"],
        loss=motet.PolicyLoss(smooth, motet.token_ratio),
        baseline=group_median,
        overwrite=True,
    )
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
