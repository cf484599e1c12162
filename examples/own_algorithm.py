"""A learning rule of your own: compare with the group's median, and clip. Run: python examples/own_algorithm.py"""

import motet
from motet.credit.baselines import BASELINES, Baseline


def group_median(comparison):
    """b = median of the group [S]; `comparison` has returns_S and group_S."""
    baseline_S = comparison.returns_S.clone()
    for group in range(comparison.groups):
        members = comparison.group_S == group
        baseline_S[members] = comparison.returns_S[members].median()
    return baseline_S


BASELINES["group_median"] = Baseline(group_median, siblings=True)
median = motet.Algorithm(
    name="examples/own_algorithm.py:median", policy_loss="clipped_surrogate", baseline="group_median", epochs=2
)

if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        ["name=own_algorithm", "algorithm.name=examples/own_algorithm.py:median"],
        overwrite=True,
    )
    before, after = (summary["heldout"][when]["success"] for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
