"""Earlier weights of a policy: which are kept, and which play."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from motet.models.backbone import Backbone, Policy
from motet.models.snapshots import Snapshots
from motet.settings import Lora

FolderOf = Callable[..., Path]


def full(folder: Path) -> tuple[Policy, Policy]:
    """Return a policy that learns, and one that plays its earlier weights."""
    learns = Policy("p", Backbone.load(folder, trainable_full=True))
    return Policy("past", Backbone.load(folder), trainable=False), learns


def adapters(folder: Path) -> tuple[Policy, Policy]:
    backbone = Backbone.load(folder, dtype="bfloat16")
    for name in ("past", "p"):
        backbone.add_adapter(name, Lora(), seed=0)
    return Policy("past", backbone, "past", trainable=False), Policy("p", backbone, "p")


@pytest.fixture(params=[full, adapters], ids=["full", "lora"])
def players(request: pytest.FixtureRequest, folder_of: FolderOf) -> tuple[Policy, Policy]:
    pair: tuple[Policy, Policy] = request.param(folder_of())
    return pair


def learn(policy: Policy, value: float) -> None:
    """Set all weights of a policy to one value."""
    with torch.no_grad():
        for weight in policy.own_weights():
            weight.fill_(value)
    policy.backbone.sync_from_master()


def values(policy: Policy) -> set[float]:
    return {value for weight in policy.own_weights() for value in weight.unique().tolist()}


def after(players: Sequence[Policy], steps: int, *, every: int = 2, keep: int = 2) -> Snapshots:
    """Return the snapshots after so many steps. The weights after step n are all n."""
    past, learns = players
    learn(learns, 0.0)
    found = Snapshots(past, learns, every=every, keep=keep, seed=0)
    for step in range(1, steps + 1):
        learn(learns, float(step))
        found.store(step)
    return found


@pytest.mark.parametrize(
    ("steps", "keep", "stored"),
    [
        (1, 2, [0]),
        (2, 2, [0, 2]),
        (5, 2, [0, 2, 4]),
        (9, 2, [0, 6, 8]),
        (9, 1, [0, 8]),
        (9, 9, [0, 2, 4, 6, 8]),
    ],
)
def test_the_start_and_the_newest_are_kept(players, steps, keep, stored):
    assert after(players, steps, keep=keep).steps == stored


def test_the_player_gets_the_weights_of_the_drawn_step_and_the_source_keeps_its_own(players):
    past, learns = players
    snapshots = after(players, 5)
    for step in range(6, 16):
        assert values(past) if step == 6 else values(past) <= {0.0, 2.0, 4.0}
        chosen = snapshots.play(step)
        assert values(past) == {float(chosen)}
        assert values(learns) == {5.0}
    assert snapshots.play(None) == 0
    assert values(past) == {0.0}


def test_each_snapshot_is_drawn_equally_often_and_by_the_seed_alone(players):
    snapshots = after(players, 5)
    drawn = [snapshots.drawn(step) for step in range(600)]
    assert drawn == [after(players, 5).drawn(step) for step in range(600)]
    counts = Counter(drawn)
    assert counts.keys() == {0, 2, 4}
    assert min(counts.values()) > 150  # 200 of 600 each, with a standard deviation of 11.5


def test_what_is_stored_goes_through_a_checkpoint(players):
    snapshots = after(players, 5)
    tensors = {name: tensor.clone() for name, tensor in snapshots.tensors().items()}
    resumed = after(players, 0)
    resumed.load(snapshots.steps, tensors)
    assert resumed.steps == [0, 2, 4]
    assert {name: tensor.tolist() for name, tensor in resumed.tensors().items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }


def test_a_checkpoint_has_the_same_names_at_every_step(players):
    """A writer of checkpoints keeps a copy for each name."""
    assert after(players, 5).tensors().keys() == after(players, 9).tensors().keys()
