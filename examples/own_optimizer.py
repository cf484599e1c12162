"""Your own optimizer: stochastic gradient descent with momentum.

Run: python examples/own_optimizer.py
"""

import torch

import motet


def momentum(parameters, settings):
    """Return the optimizer of one policy. `settings` are the keys of the config's `optimizer`.

    The run sets the learning rate of every step by the schedule.
    """
    return torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=0.9)


if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        [
            "name=own_optimizer",
            "optimizer.kind=examples/own_optimizer.py:momentum",
            "optimizer.learning_rate=0.2",
        ],
        overwrite=True,
    )
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
