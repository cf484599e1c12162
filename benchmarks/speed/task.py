"""The work that every side does, in plain Python, because each side has its own environment.

A word is a token, so lengths are exact: they are those of the job. At turn two the prompt is the
first prompt, the agent's own answer and another agent's answer. (A Qwen2 may also sample single
bytes and syllables, which are tokenized again as slightly more or fewer tokens: 192.2 on average.)
The end-of-sequence token lies beyond the model's vocabulary, so no answer ends early.
"""

import random
from collections.abc import Iterable, Sequence

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]


def word(number: int) -> str:
    """Return two syllables for numbers below 10,000, three from there on. All words differ."""
    if number < 10_000:
        return SYLLABLES[number // 100] + SYLLABLES[number % 100]
    return SYLLABLES[(number - 10_000) // 10_000] + word(number % 10_000)


def prompt(number: int, words: int) -> str:
    """Return the prompt of problem `number`."""
    draw = random.Random(number)
    return spaced(word(draw.randrange(8000)) for _ in range(words))


def second_prompt(first: str, said: Sequence[str], agent: int) -> str:
    """Return an agent's prompt at turn two."""
    return spaced(" ".join((first, said[agent], said[(agent + 1) % len(said)])).split())


def spaced(words: Iterable[str]) -> str:
    """Join the words with a space before each, the first too: in byte-level BPE it belongs to the
    word."""
    return "".join(f" {one}" for one in words)


def reward(texts: Sequence[str]) -> float:
    """Return a cheap reward that differs for different texts."""
    return sum(hash_of(text) for text in texts) / len(texts)


def hash_of(text: str) -> float:
    return sum(text.encode()) % 997 / 997
