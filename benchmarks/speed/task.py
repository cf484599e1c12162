"""The work that every side does, in plain Python, because each side has an environment of its own.

A word is a token, so lengths are exact: those of the job; at turn two the prompt is the first one, what the agent said and what
another said. (A Qwen2 may also say single bytes and syllables, which are read again as somewhat more or
fewer tokens: 192.2 on average.) The end-of-sequence token lies beyond the model's vocabulary, so no answer ends early.
"""

import random
from collections.abc import Iterable, Sequence

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]


def word(number: int) -> str:
    """Two syllables for numbers below 10,000, three from there on: no two words are alike."""
    if number < 10_000:
        return SYLLABLES[number // 100] + SYLLABLES[number % 100]
    return SYLLABLES[(number - 10_000) // 10_000] + word(number % 10_000)


def prompt(number: int, words: int) -> str:
    """Problem `number`."""
    draw = random.Random(number)
    return spaced(word(draw.randrange(8000)) for _ in range(words))


def second_prompt(first: str, said: Sequence[str], agent: int) -> str:
    """What an agent reads at turn two."""
    return spaced(" ".join((first, said[agent], said[(agent + 1) % len(said)])).split())


def spaced(words: Iterable[str]) -> str:
    """A space before each, the first too: to a byte-level tokenizer it belongs to the word."""
    return "".join(f" {one}" for one in words)


def reward(texts: Sequence[str]) -> float:
    """Cheap, and different for different texts."""
    return sum(hash_of(text) for text in texts) / len(texts)


def hash_of(text: str) -> float:
    return sum(text.encode()) % 997 / 997
