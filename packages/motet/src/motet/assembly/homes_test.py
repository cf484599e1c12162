"""Which home each policy, critic and reward model lives in."""

import pytest

from motet.assembly import task_setup
from motet.assembly.homes import homes_of
from motet.assembly.task_setup import open_task_setup
from motet.config.load import make_config
from motet.errors import ConfigError
from tests.fixtures.messages import facts
from tests.small_runs import run_config

CLUSTER = {"learners": {"gpus": 0}}
SHARDS = {"learners": {"gpus": 0, "ranks": 2}}
LORA = {"model": "tiny", "train": "lora"}


@pytest.fixture(autouse=True)
def _any_optimizer(monkeypatch):
    monkeypatch.setattr(task_setup, "check_optimizer", lambda kind, device: None)


def homes(**sections):
    config = make_config(run_config(**{"cluster": CLUSTER, **sections}))
    with open_task_setup(config, train=True) as setup:
        found = homes_of(config, setup.team)
    return {home.name: home.residents for home in found}


def test_each_full_policy_has_a_home_of_its_own():
    assert homes() == {"p": ("p",), "q": ("q",)}


def test_all_adapters_and_frozen_policies_of_a_model_share_one_home():
    policies = {"p": LORA, "q": {"model": "tiny", "train": "frozen"}}
    assert homes(policies=policies) == {"tiny": ("p", "q")}


def test_a_critic_lives_with_the_policy_of_its_first_agent():
    assert homes(algorithm={"name": "mappo"}) == {"p": ("p", "critic-joint"), "q": ("q",)}
    assert homes(algorithm={"name": "ippo"}) == {"p": ("p", "critic-a"), "q": ("q", "critic-b")}


def test_the_reward_model_lives_with_the_first_policy():
    found = homes(reward_model={"samples": 4}, policies={"p": LORA, "q": {"model": "tiny"}})
    assert found == {"tiny": ("p", "reward-model"), "q": ("q",)}


def test_a_policy_behind_an_endpoint_has_no_home_and_no_critic_lives_with_it():
    away = {"endpoint": {"base_url": "http://localhost:1/v1", "model": "big"}}
    first = {"policies": {"p": away, "q": {"model": "tiny"}}}
    assert homes(**first) == {"q": ("q",)}
    assert homes(**first, algorithm={"name": "mappo"}) == {"q": ("q", "critic-joint")}
    assert homes(**first, reward_model={"samples": 4}) == {"q": ("q", "reward-model")}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"cluster": {"learners": {"gpus": 0, "gpus_of": {"r": 1}}}}, "gpus_of … r … homes … p, q"),
        ({"cluster": {}}, "device … cpu … home p … 1 GPUs"),
        (
            {"policies": {"tiny": {"model": "tiny"}, "q": LORA}, "team": {"a": "tiny", "b": "q"}},
            "both … home tiny",
        ),
        (
            {"cluster": SHARDS, "optimizer": {"kind": "adamw_8bit"}},
            "optimizer of p … adamw_8bit … 2 processes … home p … kind: adamw",
        ),
        (
            {
                "cluster": SHARDS,
                "algorithm": {"name": "mappo"},
                "critic": {"optimizer": {"kind": "adamw_8bit"}},
            },
            "optimizer of critic-joint … adamw_8bit … kind: adamw",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(sections, message):
    with pytest.raises(ConfigError, match=facts(message)):
        homes(**sections)


def test_adapters_are_copies_so_their_moments_may_have_eight_bits():
    adapters = {"policies": {"p": LORA, "q": LORA}, "optimizer": {"kind": "adamw_8bit"}}
    assert homes(cluster=SHARDS, **adapters) == {"tiny": ("p", "q")}
