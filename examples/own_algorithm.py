"""Your own algorithm: the group's median as baseline, and a clipped policy loss.

Run: python examples/own_algorithm.py
"""

import motet


def group_median(comparison):
    """Return the baseline, the median of the group, for each of the S samples: shape [S].

    `comparison` has returns_S and group_S.
    """
    baseline_S = comparison.returns_S.clone()
    for group in range(comparison.groups):
        members = comparison.group_S == group
        baseline_S[members] = comparison.returns_S[members].median()
    return baseline_S


if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        [
            "name=own_algorithm",
            "algorithm={name: magrpo, loss: {kind: clipped_surrogate}, epochs: 2}",
            "algorithm.credit.baseline=examples/own_algorithm.py:group_median",
        ],
        overwrite=True,
    )
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
