"""The shortest way in: rows, one prompt per agent, and a reward of what all of them wrote.

With model="Qwen/Qwen3-0.6B" every agent trains an adapter on that model. Here it is a tiny model
with random weights, which learns to write vowels. Run: python examples/train_team.py
"""

import motet


def vowels(text):
    return sum(letter in "aeiou" for letter in text) / max(1, len(text))


summary = motet.train_team(
    rows=[{"topic": topic} for topic in ("sea", "snow", "sun", "moon", "rain", "wind") * 8],
    agents={
        "writer": lambda row: f"A line about the {row['topic']}: ",
        "critic": lambda row: f"A word for the {row['topic']}: ",
    },
    reward=lambda row, texts: min(vowels(text) for text in texts.values()),
    steps=15,
    overrides=["decode.max_new_tokens=12"],
    name="train_team",
    overwrite=True,
)
before, after = (summary.heldout[when].reward for when in ("before", "after"))
print(f"vowels, held out: {before:.2f} -> {after:.2f}")
