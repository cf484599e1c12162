"""Your own credit: a completion counts by its best joint action, not by their mean.

Lenient learners (Panait, Tuyls and Luke 2008, JMLR 9) forgive partners that are still exploring.
Run: python examples/own_credit.py
"""

import torch

import motet


def lenient(step):
    """Return the advantage of each of the S samples: its best return minus its group's mean.

    `step` is a `motet.CreditStep`. Each of the J joint actions has one sample per agent, or -1.
    """
    best_S = torch.full_like(step.returns_S, -torch.inf)
    for sample_J, returns_J in zip(step.actions.sample_NJ, step.actions.returns_NJ, strict=True):
        acts_J = sample_J >= 0
        best_S.scatter_reduce_(0, sample_J[acts_J], returns_J[acts_J], "amax")
    return best_S - step.group_mean(best_S)


if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        ["name=own_credit", "rollout={samples: [6], pairing: crossed}"],
        credit=lenient,
        overwrite=True,
    )
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
