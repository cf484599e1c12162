"""Counter-based random numbers without global state.

Each random number is a hash of its purpose, so any step can be reproduced on its own.

    key = derive(run_seed, episode_id, agent, path, sample)   # once per completion
    u = uniforms(keys_B, position)          # one number in [0, 1) per row and token position
"""

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derive(*parts: object) -> int:
    """Hash the `repr` of `parts` (ints, strings and tuples of them) to a 64-bit key, the same on
    every machine."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def uniforms(keys_B: np.ndarray, position: int | np.ndarray) -> np.ndarray:
    """Return random number `position` of each key: uint64 [B] -> float64 [B] in [0, 1).

    Keys [B, 1] with positions [L] give [B, L]. The generator is SplitMix64 with a counter (Steele,
    Lea and Flood 2014): it adds the counter to the key and mixes the sum.
    """
    with np.errstate(over="ignore"):
        z = keys_B.astype(np.uint64) + (np.asarray(position, np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z = z ^ (z >> np.uint64(31))
    drawn: np.ndarray = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn
