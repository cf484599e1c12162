"""Keys of other libraries lead to Motet's."""

import pytest

from motet.config.foreign_keys import foreign_advice, foreign_keys
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.config.validation import _keys_at
from motet.errors import ConfigError

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
        ("gradient_accumulation_steps=4", "in Motet this is train.token_budget (micro-batches are"),
        ("num_generations=8", "in Motet this is rollout.samples (a list with the completions"),
        ("per_device_train_batch_size=2", "in Motet this is train.tasks_per_step"),
        ("train.max_steps=10", "in Motet this is train.steps"),
        ("algorithm.beta=0.1", "in Motet this is algorithm.kl.coefficient"),
        ("use_vllm=true", "in Motet this is cluster.samplers.engine (vllm, with a section cluster"),
        (
            "fsdp=full_shard",
            "in Motet this is cluster.learners.gpus (the GPUs of each model, which",
        ),
        ("nnodes=2", "in Motet this is cluster.address (the address of a Ray cluster"),
        ("train.learning_rate=1e-5", "in Motet this is optimizer.learning_rate"),
    ],
)
def test_an_unknown_key_of_another_library_is_answered_with_ours(override, advice):
    with pytest.raises(ConfigError) as refused:
        make_config(CONFIG, [override])
    key = override.partition("=")[0]
    assert f"{key}: unknown key; {advice}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_spelling_mistake_is_still_a_spelling_mistake():
    with pytest.raises(ConfigError, match=r"train.stepz: unknown key; did you mean steps\?"):
        make_config(CONFIG, ["train.stepz=1"])
    assert foreign_advice("stepz") is None
