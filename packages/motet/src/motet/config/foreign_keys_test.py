"""Keys of other libraries lead to Motet's."""

import pytest

from motet.config.foreign_keys import foreign_advice, foreign_keys
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.config.validation import _keys_at
from motet.errors import ConfigError
from tests.fixtures.messages import facts, says

CONFIG = {
    "name": "x",
    "environment": "relay",
    "models": {"m": {"embedded": {}}},
    "policies": {"p": {"model": "m"}},
    "team": {"a": "p", "b": "p"},
    "train": {"steps": 1},
}


@pytest.mark.parametrize("key", sorted({key for key, _ in foreign_keys().values() if key}))
def test_every_key_of_the_table_is_one_of_motet(key):
    path = tuple(key.split("."))
    assert path[-1] in _keys_at(RunConfig, path[:-1])


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("gradient_accumulation_steps=4", "train.token_budget … micro-batches"),
        ("num_generations=8", "rollout.samples … list … completions"),
        ("per_device_train_batch_size=2", "train.tasks_per_step"),
        ("train.max_steps=10", "train.steps"),
        ("algorithm.beta=0.1", "algorithm.kl.coefficient"),
        ("use_vllm=true", "cluster.samplers.engine … vllm … section cluster"),
        (
            "fsdp=full_shard",
            "cluster.learners.gpus … GPUs … model",
        ),
        ("nnodes=2", "cluster.address … Ray cluster"),
        ("train.learning_rate=1e-5", "optimizer.learning_rate"),
    ],
)
def test_an_unknown_key_of_another_library_is_answered_with_ours(override, advice):
    with pytest.raises(ConfigError) as refused:
        make_config(CONFIG, [override])
    key = override.partition("=")[0]
    assert says(refused.value, f"{key} … unknown key … Motet … {advice}")
    assert "\n" not in str(refused.value)


def test_a_spelling_mistake_is_still_a_spelling_mistake():
    with pytest.raises(ConfigError, match=facts("train.stepz … unknown key … steps")):
        make_config(CONFIG, ["train.stepz=1"])
    assert foreign_advice("stepz") is None
