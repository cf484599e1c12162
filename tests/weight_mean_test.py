"""`train.average_share`: a run ends with the mean of the weights after its last steps."""

import pytest
import torch
from safetensors.torch import load_file

from motet.errors import MotetError
from tests.small_runs import LORA, run_config, steps


def weights_after(run, number):
    """Return the weights of the policies after a step, from its checkpoint."""
    found = load_file(run / "checkpoints" / f"step-{number:06d}" / "tensors.safetensors")
    return {name: one for name, one in found.items() if name.startswith("weights.")}


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_a_run_ends_with_the_mean_of_the_weights_after_its_last_steps(train, share):
    train_section = {"steps": 5, "tasks_per_step": 2, "checkpoint_every": 1, "keep_every": 1}
    config = run_config(policies={**LORA, "q": {"model": "tiny"}}, train=train_section)
    plain = train(config)
    averaged = train(
        config | {"name": "averaged", "train": train_section | {"average_share": share}}
    )
    assert [row["learn/loss/p"] for row in steps(averaged)] == [
        row["learn/loss/p"] for row in steps(plain)
    ]
    counted = range(3, 6) if share == 0.6 else range(1, 6)
    before, after = weights_after(plain, 5), weights_after(averaged, 5)
    assert {name.split(".")[1] for name in after} == {"p", "q"}
    each = [weights_after(plain, number) for number in counted]
    for name, found in after.items():
        torch.testing.assert_close(found, sum(one[name] for one in each) / len(each))
    assert any(not torch.equal(before[name], after[name]) for name in after)


@pytest.mark.parametrize(
    "sections",
    [
        {"train": {"average_share": 0.5}},
        {"algorithm": {"name": "magrpo", "entropy_coefficient": 0.1, "entropy_final": 0.0}},
    ],
    ids=["a mean", "a falling bonus"],
)
def test_what_depends_on_the_length_of_a_run_forbids_a_longer_one(train, sections):
    length = {"tasks_per_step": 2, **sections.get("train", {})}
    train(run_config(**sections | {"train": {"steps": 1, **length}}))
    with pytest.raises(MotetError, match=r"train\.steps was 1 and is 2"):
        train(run_config(**sections | {"train": {"steps": 2, **length}}), resume=True)
