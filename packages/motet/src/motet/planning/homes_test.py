"""Homes of small configs, with counts that can be checked by hand."""

from typing import Any

import pytest

from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.models.memory import shape_of
from motet.planning.homes import home_needs
from motet.settings import Lora, TinyModel

SHAPES = {"tiny": shape_of(TinyModel()), "wide": shape_of(TinyModel(hidden_size=256))}
PROMPTS = {"a": 100, "b": 60}


def config(**sections: Any) -> RunConfig:
    plain = {
        "name": "run",
        "environment": "quickstart",
        "models": {"tiny": {"embedded": {}, "checkpointing": True}},
        "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny"}},
        "team": {"a": "p", "b": "q"},
        "decode": {"max_new_tokens": 50},
        "rollout": {"samples": [4]},
        "train": {"steps": 1, "tasks_per_step": 8},
    }
    return make_config(plain | sections)


def test_each_full_policy_is_a_home():
    first, second = home_needs(config(), SHAPES, PROMPTS, tasks=8)
    assert (first.name, second.name) == ("p", "q")
    assert first.trained == SHAPES["tiny"].parameters
    assert not first.adapter
    assert not first.reference
    (work,) = first.works
    # 8 tasks · 4 samples; 4 completions share a prompt of 100 tokens
    assert (work.completions, work.per_prompt, work.prompt_tokens) == (32, 4, 100)
    assert work.completion_tokens == 50
    assert first.rows == 32
    assert first.row_tokens == 150


def test_adapters_on_one_base_are_one_home_with_two_workloads():
    lora = {"model": "tiny", "train": "lora", "lora": {"rank": 4}}
    (home,) = home_needs(config(policies={"p": lora, "q": lora}), SHAPES, PROMPTS, tasks=8)
    assert (home.name, home.adapter, len(home.works)) == ("tiny", True, 2)
    assert home.trained == 2 * SHAPES["tiny"].adapter(Lora(rank=4))
    assert home.rows == 64


def test_a_tree_asks_more_often_at_its_second_turn():
    (home, _) = home_needs(config(rollout={"samples": [2, 3]}), SHAPES, PROMPTS, tasks=8)
    (work,) = home.works
    # turn 1: 8 prompts of 100, 16 completions; turn 2: 16 prompts of 150, 48 completions
    assert work.completions == 64
    assert work.per_prompt == pytest.approx(64 / 24)
    assert work.prompt_tokens == pytest.approx((8 * 100 + 16 * 150) / 24)
    assert home.rows == 48


def test_a_policy_of_both_agents_does_the_work_of_both():
    shared = config(policies={"p": {"model": "tiny"}}, team={"a": "p", "b": "p"})
    (home,) = home_needs(shared, SHAPES, PROMPTS, tasks=8)
    (work,) = home.works
    assert (work.completions, work.prompt_tokens) == (64, 80)


def test_a_reference_is_a_copy_for_full_policies_and_the_base_for_adapters():
    kl = {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1}
    full, _ = home_needs(config(algorithm=kl), SHAPES, PROMPTS, tasks=8)
    assert full.reference
    assert full.works[0].reference
    lora = {"model": "tiny", "train": "lora"}
    wanted = config(algorithm=kl, policies={"p": lora, "q": lora})
    (shared,) = home_needs(wanted, SHAPES, PROMPTS, tasks=8)
    assert not shared.reference
    assert shared.works[0].reference


def test_a_full_critic_lives_with_the_policy_of_its_agent():
    homes = home_needs(config(algorithm={"name": "iac"}), SHAPES, PROMPTS, tasks=8)
    assert [(home.name, home.plays, len(home.works)) for home in homes] == [
        ("p", True, 2),
        ("q", True, 2),
    ]
    policy, critic = homes[0].works
    assert (critic.plays, critic.per_prompt, critic.reference) == (False, 1.0, True)
    assert policy.plays
    parameters = SHAPES["tiny"].parameters
    assert homes[0].trained == 2 * parameters + 128 + 1


def test_a_joint_critic_lives_with_the_policy_of_the_first_agent():
    homes = home_needs(config(algorithm={"name": "maac"}), SHAPES, PROMPTS, tasks=8)
    assert [len(home.works) for home in homes] == [2, 1]


def test_a_critic_on_its_policy_adds_a_head_to_its_weights():
    made = config(algorithm={"name": "iac"}, critic={"train": "policy"})
    homes = home_needs(made, SHAPES, PROMPTS, tasks=8)
    assert [len(home.works) for home in homes] == [2, 2]
    assert homes[0].trained == SHAPES["tiny"].parameters + 128 + 1


def test_a_frozen_team_and_an_idle_policy_are_refused():
    frozen = {"model": "tiny", "train": "frozen"}
    with pytest.raises(ConfigError, match="every policy is frozen"):
        home_needs(config(policies={"p": frozen, "q": frozen}), SHAPES, PROMPTS, tasks=8)


def test_a_mean_length_replaces_the_longest():
    (home, _) = home_needs(config(), SHAPES, PROMPTS, tasks=8, completion_tokens=20)
    assert home.works[0].completion_tokens == 20
    assert home.row_tokens == 150
