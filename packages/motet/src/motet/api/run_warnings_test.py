"""What a run warns of: the learning rate of adapters."""

import pytest

import motet
from motet.api.run_warnings import warnings_of
from motet.assembly.task_setup import open_task_setup

LORA = {"model": "tiny", "train": "lora"}
FULL = {"model": "tiny"}
RATE = {"optimizer": {"learning_rate": 1e-4}}


def warned(policies, critic=None, **more):
    config = motet.read_config(
        {
            "name": "rates",
            "environment": {"name": "debate_tiny"},
            "models": {"tiny": {"embedded": {"hidden_size": 16, "layers": 1}}},
            "policies": policies,
            "team": {"a": "p", "b": "q"},
            "algorithm": {"name": "marloo" if critic is None else "iac"},
            "rollout": {"samples": [2]},
            "train": {"steps": 1},
            **({} if critic is None else {"critic": critic}),
            **more,
        }
    )
    with open_task_setup(config, train=True) as setup:
        return [line for line in warnings_of(setup) if "learning_rate" in line]


def test_adapters_at_the_default_rate_are_named_with_what_suits_them():
    (line,) = warned({"p": LORA, "q": LORA})
    assert "default optimizer.learning_rate 5e-06 (policies.p, policies.q), which is" in line
    assert "about ten times" in line
    assert "1e-5 to 1e-4" in line


def test_only_the_adapters_without_a_rate_are_named():
    (line,) = warned({"p": {**LORA, **RATE}, "q": LORA})
    assert "(policies.q)" in line
    (line,) = warned({"p": FULL, "q": FULL}, critic={"train": "lora"})
    assert "(critic)" in line


@pytest.mark.parametrize(
    "more", [{}, RATE, {"optimizer": {"schedule": "linear"}}], ids=["unset", "a rate", "a schedule"]
)
def test_full_training_is_not_warned_of(more):
    assert warned({"p": FULL, "q": FULL}, **more) == []


@pytest.mark.parametrize("rate", [1e-4, 5e-6])
def test_a_rate_that_is_set_is_not_warned_of(rate):
    assert warned({"p": LORA, "q": LORA}, optimizer={"learning_rate": rate}) == []
