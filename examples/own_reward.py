"""Your own reward on an existing environment: agree, and agree on a high number.

Run: python examples/own_reward.py
"""

import motet


def high_and_same(task, texts):
    """Return the score of one task from the reply of each agent.

    `texts` is {agent: string}. A reward may be a number, or a `motet.Score` with one number per
    agent and metrics.
    """
    said = [text.strip() for text in texts.values()]
    if said[0] != said[1] or not said[0].isdecimal():
        return motet.Score(0.0, {"height": 0.0})
    height = min(1.0, int(said[0]) / task.fields["highest"])
    return motet.Score(0.2 + 0.8 * height, {"height": height})


if __name__ == "__main__":
    summary = motet.train(
        "examples/same_number.yaml",
        ["name=own_reward", "reward.name=examples/own_reward.py:high_and_same"],
        overwrite=True,
    )
    before, after = (summary.heldout[when].terms["height"] for when in ("before", "after"))
    print(f"height of what both said, held out: {before:.2f} -> {after:.2f}")
