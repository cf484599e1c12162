"""Hand-computed comparisons of log-probabilities, and what their bounds find."""

from math import inf, nan

import pytest

from motet.errors import MotetError
from motet_cluster.verification import (
    Difference,
    ProbeRecord,
    against_record,
    check_probe,
    check_rehearsal,
    difference,
    probe_rows,
    worst,
)
from motet_cluster.vllm_engine import EngineAnswer
from tests.fixtures.messages import facts


def answer(tokens: tuple[int, ...], *logprobs: float) -> EngineAnswer:
    return EngineAnswer(tokens, logprobs, stopped=False)


def test_the_difference_is_over_all_tokens_of_all_answers() -> None:
    said = [answer((1, 2), -1.0, -2.0), answer((3,), -0.5)]
    # |-1 + 1.5| = 0.5, 0, |-0.5 + 0.75| = 0.25: mean 0.25
    assert difference(said, [(-1.5, -2.0), (-0.75,)]) == Difference(largest=0.5, mean=0.25)


def test_a_log_probability_that_is_no_number_differs_without_bound() -> None:
    assert difference([answer((1, 2), nan, -2.0)], [(-1.0, -2.0)]).largest == inf
    record = ProbeRecord((answer((1,), -1.0),), ((-1.0,),))
    assert against_record([answer((1,), nan)], record).largest == inf


def test_a_new_engine_is_compared_up_to_the_token_where_it_parts() -> None:
    record = ProbeRecord(
        (answer((1, 2, 3), -1.0, -1.0, -1.0), answer((4, 5), -2.0, -2.0)),
        ((-1.0, -1.25, -1.0), (-2.0, -2.0)),
    )
    said = [answer((1, 2, 9), -1.0, -1.0, -7.0), answer((8, 5), -7.0, -7.0)]
    # row 0: |-1 + 1| = 0 and |-1 + 1.25| = 0.25, then token 9 is another; row 1: none
    assert against_record(said, record) == Difference(largest=0.25, mean=0.125)


def test_a_new_engine_that_parts_at_every_first_token_is_refused() -> None:
    record = ProbeRecord((answer((1,), -1.0),), ((-1.0,),))
    found = against_record([answer((2,), -1.0)], record)
    with pytest.raises(MotetError, match="samples with other weights"):
        check_probe("it", found, "float32", floor=0.0)


def test_float32_is_bounded_by_the_largest_difference() -> None:
    check_probe("it", Difference(largest=9e-4, mean=9e-4), "float32", floor=0.0)
    with pytest.raises(MotetError, match=r"0\.000001 nats|1e-06 nats"):
        check_probe("it", Difference(largest=1e-3, mean=1e-6), "float32", floor=0.0)


def test_bfloat16_is_bounded_by_three_times_the_rehearsal() -> None:
    check_probe("it", Difference(largest=0.3, mean=0.021), "bfloat16", floor=0.007)
    with pytest.raises(MotetError, match=facts("it … expected … mean … 0.021, 3 times")):
        check_probe("it", Difference(largest=0.3, mean=0.022), "bfloat16", floor=0.007)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_rehearsal_finds_what_keeps_old_weights(dtype: str) -> None:
    before = Difference(largest=2.0, mean=0.5)
    assert check_rehearsal("it", before, Difference(9e-4, 9e-5), dtype) == 9e-5
    # A stale head keeps a share of the difference: 0.1 is more than a tenth of 0.5.
    with pytest.raises(MotetError, match=r"still by 0\.1 nats.* expected less than 0\.05"):
        check_rehearsal("it", before, Difference(0.3, 0.1), dtype)


def test_a_rehearsal_in_float32_also_bounds_the_largest_difference() -> None:
    before, after = Difference(largest=2.0, mean=0.5), Difference(largest=0.1, mean=0.007)
    assert check_rehearsal("it", before, after, "bfloat16") == 0.007
    with pytest.raises(MotetError, match=r"and 0\.001 at most"):
        check_rehearsal("it", before, after, "float32")


def test_a_rehearsal_whose_noise_has_no_effect_proves_nothing() -> None:
    with pytest.raises(MotetError, match=facts("it … weights … rehearsal … expected less than 0")):
        check_rehearsal("it", Difference(0.0, 0.0), Difference(1e-6, 1e-7), "float32")


def test_probes_are_the_same_rows_at_every_call() -> None:
    rows = probe_rows("p", vocabulary=50)
    assert rows == probe_rows("p", vocabulary=50)
    assert len({row.key for row in rows}) == len(rows) == 8
    assert all(0 <= token < 50 for row in rows for token in row.prompt)


def test_the_worst_difference_is_the_largest_of_each_number() -> None:
    found = {"a": Difference(0.5, 0.1), "b": Difference(0.2, 0.15)}
    assert worst(found) == Difference(0.5, 0.15)
