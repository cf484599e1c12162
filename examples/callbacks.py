"""Callbacks: print the reward, keep a record of evaluations, and stop when the team is good enough.

Run: python examples/callbacks.py
"""

import motet

evaluations = {}


def show(step, metrics):
    """Print every tenth step. A callback that returns True would end the training."""
    if step % 10 == 0:
        print(f"step {step}: reward {metrics['play/reward']:.2f}")


def record(step, metrics):
    evaluations[step] = metrics["evaluate/success"]


if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        ["name=callbacks", "evaluation.every=5", "train.steps=60"],
        callbacks=[
            motet.Callback(on_step=show, on_evaluation=record),
            motet.stop_when("evaluate/success", at_least=0.9),
        ],
        overwrite=True,
    )
    print(f"ended after {summary.steps} of 60 steps by {summary.ended_by}: {evaluations}")
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
