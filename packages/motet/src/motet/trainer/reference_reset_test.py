"""When the reference of the KL penalty moves up to the present weights."""

import json

import pytest

from motet.errors import ConfigError
from motet.trainer.reference_reset import ReferenceWatch


def played(watch: ReferenceWatch, *successes: float) -> None:
    for success in successes:
        watch.see({"play/success": success}, "play/success")


def evaluated(watch: ReferenceWatch, success: float) -> None:
    watch.see({"evaluate/success": success}, "evaluate/success")


def test_by_hand_the_mean_success_since_the_last_time_decides() -> None:
    """Starts at .5; the means of two steps are .46, which is less than .05 below, .44 and .41."""
    watch = ReferenceWatch(2)
    played(watch, 0.5)
    assert not watch.due(1)
    played(watch, 0.42)
    assert watch.due(2)
    assert (watch.step, watch.success) == (2, pytest.approx(0.46))
    played(watch, 0.44, 0.44)
    assert watch.due(4)
    assert watch.success == pytest.approx(0.44)
    played(watch, 0.38, 0.38)
    assert not watch.due(6)
    assert watch.step == 4
    played(watch, 0.9, 0.1)
    assert watch.due(8)  # .5


def test_held_out_success_decides_where_there_is_one() -> None:
    watch = ReferenceWatch(1)
    evaluated(watch, 0.5)
    played(watch, 0.0)
    assert watch.due(1)
    played(watch, 1.0)
    evaluated(watch, 0.4)
    assert not watch.due(2)
    evaluated(watch, 0.48)
    assert watch.due(3)


def test_a_step_is_judged_once_and_the_standing_goes_through_a_checkpoint() -> None:
    watch = ReferenceWatch(2)
    played(watch, 0.5, 0.5)
    before = ReferenceWatch(**json.loads(json.dumps(watch.state())))
    assert watch.due(2)
    assert not watch.due(2)
    assert not ReferenceWatch(**json.loads(json.dumps(watch.state()))).due(2)
    assert before.due(2)
    assert before == watch
    assert not ReferenceWatch(2).due(2)  # nothing was played


def test_without_success_nothing_can_have_held() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.kl\.reset_every.*success=.*null"):
        ReferenceWatch(2).see({"play/reward": 1.0}, "play/success")
