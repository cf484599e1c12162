"""Tests that random numbers depend only on their key and position."""

import numpy as np
import pytest

from motet.core.seeding import derive, uniforms

PARTS = (0, "e", "a", (), 1)


def test_a_key_is_a_function_of_every_part():
    others = [
        (1, *PARTS[1:]),
        (0, "f", "a", (), 1),
        (0, "e", "b", (), 1),
        (0, "e", "a", (0,), 1),
        (0, "e", "a", (), "1"),
        (0, "ea", (), 1),
    ]
    assert derive(*PARTS) == derive(*PARTS)
    assert len({derive(*one) for one in (PARTS, *others)}) == 1 + len(others)


def test_a_key_is_the_same_in_every_process():
    assert derive(0, "episode", "agent", (1, 2), 3) == 0xC7A0D7A0AB1324FD


def test_the_generator_is_splitmix64():
    # the published first outputs of SplitMix64 for state 0
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    drawn = [uniforms(np.array([0], dtype=np.uint64), position)[0] for position in range(3)]
    assert drawn == [(output >> 11) * 2.0**-53 for output in outputs]


def test_a_row_draws_the_same_whoever_shares_the_batch():
    keys_B = np.array([3, 1, 4, 2**64 - 1], dtype=np.uint64)
    together = uniforms(keys_B, 5)
    assert together.tolist() == [uniforms(keys_B[k : k + 1], 5)[0] for k in range(4)]
    assert uniforms(keys_B[:, None], np.arange(3, 7))[:, 2].tolist() == together.tolist()
    assert ((together >= 0.0) & (together < 1.0)).all()


def test_draws_are_uniform():
    keys_B = np.array([derive("uniform", k) for k in range(4000)], dtype=np.uint64)
    draws = np.concatenate([uniforms(keys_B, position) for position in range(5)])
    counts = np.histogram(draws, bins=20, range=(0.0, 1.0))[0]
    assert (
        (counts - 1000) ** 2 / 1000
    ).sum() < 43.8  # chi-square with 19 degrees of freedom, 99.9 %
    assert np.corrcoef(uniforms(keys_B, 0), uniforms(keys_B, 1))[0, 1] == pytest.approx(
        0.0, abs=0.06
    )
