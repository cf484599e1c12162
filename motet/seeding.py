"""Randomness is a function: every draw is a hash of what it is for, so any step can be drawn again, and nothing is ever global.

key = derive(run_seed, episode_id, agent, path, sample)      once per completion
u   = uniforms(keys_B, position)                             one number in [0, 1) per row and token position
"""

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derive(*parts: object) -> int:
    """A 64-bit key from the printed form of `parts` (ints, strings and tuples of them), the same on every machine."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def uniforms(keys_B: np.ndarray, position: int | np.ndarray) -> np.ndarray:
    """Draws number `position` of every key's stream: float64 [B] in [0, 1), from uint64 [B]; [B, 1] with [L] gives [B, L].

    SplitMix64 as a counter-based generator (Steele, Lea and Flood 2014): the counter is added, the sum is mixed.
    """
    with np.errstate(over="ignore"):
        z = keys_B.astype(np.uint64) + (np.asarray(position, np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z = z ^ (z >> np.uint64(31))
    drawn: np.ndarray = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn
