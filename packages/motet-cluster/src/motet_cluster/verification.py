"""Whether an engine samples with the weights that a home trains: the comparison, and its bounds.

A probe is a few seeded completions of an engine, scored by the home. In float32 both sides agree up
to rounding, so the largest difference has a fixed bound. In bfloat16 rounding is larger than one
update, so a probe can only find an engine that is several updates behind, or broken. Therefore a
rehearsal at the start publishes weights with known noise: what was not transferred then differs
much more than rounding, in every dtype.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.core.seeding import derive
from motet.errors import MotetError
from motet_cluster.vllm_engine import EngineAnswer, EngineRow

ROWS, TOKENS = 8, 8
"""Completions of a probe, and tokens of each prompt and each completion."""
LARGEST = 1e-3
"""float32: the largest difference of a log-probability, in nats."""
TIMES_FLOOR = 3.0
"""bfloat16: the largest mean difference, as a multiple of the one that the rehearsal measured."""
SHARE_OF_NOISE = 0.1
"""The largest mean difference after the noise is published, as a share of the one before."""


@dataclass(frozen=True)
class Difference:
    """|log-probability by the engine - by the home| over the tokens of a probe, in nats."""

    largest: float
    mean: float


def probe_rows(policy: str, vocabulary: int) -> list[EngineRow]:
    """Return the rows of a policy's probe: prompts of random tokens, the same at every call."""
    return [
        EngineRow(
            policy,
            tuple(derive("probe", row, place) % vocabulary for place in range(TOKENS)),
            tokens=TOKENS,
            temperature=1.0,
            stops=(),
            key=derive("probe", row),
            ends=False,
        )
        for row in range(ROWS)
    ]


def difference(answers: Sequence[EngineAnswer], scored: Sequence[Sequence[float]]) -> Difference:
    """Compare the log-probabilities of the same tokens. Not-a-number counts as infinite."""
    apart = [
        abs(said - expected)
        for answer, row in zip(answers, scored, strict=True)
        for said, expected in zip(answer.logprobs, row, strict=True)
    ]
    apart = [value if value == value else float("inf") for value in apart]
    return Difference(max(apart), sum(apart) / len(apart))


def check_probe(who: str, found: Difference, dtype: str, floor: float) -> None:
    """Check a publication.

    Args:
        who: names the policy, its version and the engine in the error.
        floor: the mean difference that the rehearsal measured.

    Raises: MotetError.
    """
    if dtype == "float32":
        bad, bound = found.largest >= LARGEST, f"expected less than {LARGEST:g} in float32"
    else:
        limit = TIMES_FLOOR * floor
        bad = found.mean > limit
        bound = f"expected a mean of at most {limit:.3g}, {TIMES_FLOOR:g} times the rehearsal's"
    if bad:
        raise MotetError(
            f"{who} samples with other weights than those that learn: log-probabilities of the "
            f"same tokens differ by {_shown(found)}; {bound}. Use cluster.samplers.engine: own, "
            "or another version of vLLM"
        )


def check_rehearsal(who: str, before: Difference, after: Difference, dtype: str) -> float:
    """Check that known noise reached an engine. Return the mean difference that rounding explains.

    Args:
        before: the home has the noise, the engine does not.
        after: both have it.

    Raises: MotetError.
    """
    lost = after.mean > SHARE_OF_NOISE * before.mean
    if lost or (dtype == "float32" and after.largest >= LARGEST):
        raise MotetError(
            f"{who} did not take all weights in the rehearsal: with known noise on the trained "
            f"weights, log-probabilities differ by {_shown(before)} before they are published, "
            f"and still by {_shown(after)} afterwards; expected less than "
            f"{SHARE_OF_NOISE * before.mean:.3g} on average"
            + (f" and {LARGEST:g} at most" if dtype == "float32" else "")
            + ". Some weights stay old in the engine, for example a tied head: use "
            "cluster.samplers.engine: own, or another version of vLLM"
        )
    return after.mean


@dataclass(frozen=True)
class ProbeRecord:
    """What the first engine answered to the probe of a publication, and how the home scored it."""

    answers: tuple[EngineAnswer, ...]
    scored: tuple[tuple[float, ...], ...]


def against_record(answers: Sequence[EngineAnswer], record: ProbeRecord) -> Difference:
    """Compare a new engine's probe with the record of the publication that it was given.

    The home may have other weights by now. Draws follow from seeds, so both engines sample the same
    tokens; where rounding makes them part, the tokens before that are compared. If all rows part at
    their first token, the difference is infinite.
    """
    apart: list[float] = []
    for answer, before, scored in zip(answers, record.answers, record.scored, strict=True):
        for token, said, old, expected in zip(
            answer.tokens, answer.logprobs, before.tokens, scored, strict=False
        ):
            if token != old:
                break
            apart.append(abs(said - expected) if said == said else float("inf"))
    if not apart:
        return Difference(float("inf"), float("inf"))
    return Difference(max(apart), sum(apart) / len(apart))


def worst(found: Mapping[str, Difference]) -> Difference:
    """Return the largest of each number."""
    return Difference(
        max(one.largest for one in found.values()), max(one.mean for one in found.values())
    )


def _shown(found: Difference) -> str:
    return f"{found.mean:.3g} nats on average and {found.largest:.3g} at most"
