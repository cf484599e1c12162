"""The work that every side does, in plain Python, because each side has an environment of its own.

A word is a token, so lengths are exact: 64 of prompt and 64 drawn; at turn two a prompt of 192, which is the first prompt, what
the agent said and what another said. The end-of-sequence token lies beyond the model's vocabulary, so no answer ends early.
"""

import random
from collections.abc import Sequence

READ = (64, 192)
"""Tokens of a prompt at turn one and two."""
NEW = 64


def prompt(number: int) -> str:
    """Problem `number`, 64 words."""
    draw = random.Random(number)
    return " ".join(f"w{draw.randrange(8000)}" for _ in range(READ[0]))


def second_prompt(first: str, said: Sequence[str], agent: int) -> str:
    """What an agent reads at turn two, 192 words."""
    return " ".join((first, said[agent], said[(agent + 1) % len(said)]))


def reward(texts: Sequence[str]) -> float:
    """Cheap, and different for different texts."""
    return sum(hash_of(text) for text in texts) / len(texts)


def hash_of(text: str) -> float:
    return sum(text.encode()) % 997 / 997
