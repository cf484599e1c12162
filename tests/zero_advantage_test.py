"""`train.skip_zero_advantage` changes what is read, and no gradient."""

import pytest
import torch
from safetensors.torch import load_file

import motet
from tests.small_runs import LORA, run_config, steps

TRAIN = {"steps": 3, "tasks_per_step": 8, "max_step_kl": None}


def sgd(parameters, settings):
    """Adam would make rounding errors as large as a step."""
    return torch.optim.SGD(parameters, lr=settings.learning_rate)


def half_of_the_tasks_pay_every_answer_alike(task, texts):
    return 1.0 if task.fields["number"] % 2 else float(sum(map(len, texts.values())))


def trained(folder, skip, rate=0.1, **sections):
    own = {"rollout": {"samples": [4]}, "optimizer": {"kind": f"{__file__}:sgd"}} | sections
    own["optimizer"]["learning_rate"] = rate
    config = run_config(name=str(skip), **own)
    config["train"] = TRAIN | {"skip_zero_advantage": skip}
    motet.train(
        config,
        reward=half_of_the_tasks_pay_every_answer_alike,
        runs=folder,
        show="silent",
    )
    return folder / str(skip)


def weights(run):
    return {
        f"{file.parent.name}.{name}": tensor
        for file in sorted((run / "team").rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


@pytest.mark.parametrize(
    "sections",
    [
        {},
        pytest.param({"policies": LORA}, marks=pytest.mark.wide),
        pytest.param(
            {"game": {"turns": 2}, "rollout": {"samples": [2, 2]}}, marks=pytest.mark.wide
        ),
        {"algorithm": {"loss": {"kind": "clipped_surrogate"}, "minibatches": 2, "epochs": 2}},
    ],
    ids=["two models", "adapters", "tree", "minibatches"],
)
def test_the_weights_are_those_of_reading_everything(tmp_path, sections):
    whole, part = (trained(tmp_path, skip, **sections) for skip in (False, True))
    skipped = [row["learn/skipped"] for row in steps(part)]
    assert 0.1 < sum(skipped) / len(skipped) < 0.9
    assert not any("learn/skipped" in row for row in steps(whole))
    found, expected = weights(part), weights(whole)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)
    still = weights(trained(tmp_path / "still", True, rate=1e-12, **sections))
    assert any((still[name] - tensor).abs().max() > 1e-3 for name, tensor in expected.items())
