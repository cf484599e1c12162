"""Which pairs of several iterations are learned from.

Source: comlrl 1.4.3, MADPOIterTrainer: preference_replay_mode, _lambda, _k and _sample_size.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from motet.settings import PairReplay

AnyPair = TypeVar("AnyPair")
LEAST = 1e-4
"""The smallest share of an iteration under lambda_decay."""


def weights_of(iterations: int, replay: PairReplay) -> list[float]:
    """Return how likely a pair is drawn from each iteration, oldest first. They add up to 1.

    With lambda_decay an iteration of age a has the weight (1 - λ)·λ^a, divided by the sum of all. A
    weight below `LEAST` is 0, so that old iterations need not be read.
    """
    match replay.mode:
        case "current":
            weights = [0.0] * (iterations - 1) + [1.0]
        case "nearest_k":
            assert replay.k is not None
            weights = [float(age < replay.k) for age in reversed(range(iterations))]
        case "all_history":
            weights = [1.0] * iterations
        case "lambda_decay":
            assert replay.decay is not None
            decayed = [replay.decay**age for age in reversed(range(iterations))]
            weights = [weight * (weight >= LEAST * sum(decayed)) for weight in decayed]
    return [weight / sum(weights) for weight in weights]


def replayed(history: Sequence[Sequence[AnyPair]], replay: PairReplay, seed: int) -> list[AnyPair]:
    """Draw the pairs of one iteration.

    Each draw first chooses an iteration by `weights_of`, among those with pairs. Within an
    iteration no pair is drawn again before all were drawn.

    Args:
        history: the pairs of all iterations, oldest first. The last are the present ones.
    """
    present = history[-1]
    if replay.mode == "current":
        return list(present)
    weighted = [
        (pairs, weight)
        for pairs, weight in zip(history, weights_of(len(history), replay), strict=True)
        if pairs and weight > 0.0
    ]
    if not weighted:
        return []
    draw = random.Random(seed)
    size = replay.size or len(present) or len(weighted[-1][0])
    places = draw.choices(range(len(weighted)), [weight for _, weight in weighted], k=size)
    found: list[AnyPair] = []
    for place, (pairs, _) in enumerate(weighted):
        whole, rest = divmod(places.count(place), len(pairs))
        found += [*pairs] * whole + draw.sample(list(pairs), rest)
    draw.shuffle(found)
    return found
