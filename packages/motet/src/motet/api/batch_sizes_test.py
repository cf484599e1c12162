"""What small configs play, with counts that can be checked by hand."""

from dataclasses import replace
from typing import Any

import pytest

from motet.api.batch_sizes import Play, Sizes, plays_of, rows_played, tokens_learnt
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.models.memory import shape_of
from motet.settings import TinyModel

SIZES = Sizes({"tiny": shape_of(TinyModel())}, {"a": 100, "b": 60}, tasks=8, evaluated=0)
LORA = {"model": "tiny", "train": "lora"}


def config(**sections: Any) -> RunConfig:
    plain = {
        "name": "run",
        "environment": "quickstart",
        "models": {"tiny": {"embedded": {}}},
        "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny"}},
        "team": {"a": "p", "b": "q"},
        "decode": {"max_new_tokens": 50},
        "rollout": {"samples": [4]},
        "train": {"steps": 1, "tasks_per_step": 8},
    }
    return make_config(plain | sections)


def test_an_agent_plays_every_task_with_so_many_samples():
    first, second = plays_of(config(), SIZES)
    assert first == Play("a", "p", prompts=8, samples=4, prompt=100, answer=50)
    assert second == Play("b", "q", prompts=8, samples=4, prompt=60, answer=50)
    assert (first.rows, first.length) == (32, 150)


def test_a_tree_asks_more_often_at_its_second_turn_and_with_the_answers_of_all_agents():
    plays = [
        one for one in plays_of(config(rollout={"samples": [2, 3]}), SIZES) if one.agent == "a"
    ]
    # turn 1: 8 prompts of 100, 16 completions; turn 2: 16 prompts of 100 + 2 · 50, 48 completions
    assert [(one.prompts, one.prompt, one.rows) for one in plays] == [(8, 100, 16), (16, 200, 48)]


def test_a_policy_per_turn_plays_its_turn():
    team = {"a": ["p", "q"], "b": ["p", "q"]}
    plays = plays_of(config(team=team, rollout={"samples": [2, 3, 1]}), SIZES)
    assert [one.policy for one in plays if one.agent == "a"] == ["p", "q", "q"]


def test_rows_at_once_are_those_of_the_widest_turn_with_the_longest_prompt():
    assert rows_played(config(), SIZES, "tiny") == (32, 150)
    tree = config(rollout={"samples": [2, 3]})
    assert rows_played(tree, SIZES, "tiny") == (48, 100 + 2 * 50 + 50)


def test_adapters_on_one_base_and_a_policy_of_two_agents_are_sampled_together():
    assert rows_played(config(policies={"p": LORA, "q": LORA}), SIZES, "tiny")[0] == 64
    shared = config(policies={"p": {"model": "tiny"}}, team={"a": "p", "b": "p"})
    assert rows_played(shared, SIZES, "tiny")[0] == 64


def test_an_evaluation_may_be_wider_than_a_step_and_both_have_limits():
    assert rows_played(config(), replace(SIZES, evaluated=99), "tiny") == (99, 150)
    few = config(train={"steps": 1, "tasks_per_step": 8, "rows_per_batch": 7})
    assert rows_played(few, SIZES, "tiny") == (7, 150)
    short = config(train={"steps": 1, "tasks_per_step": 8, "tokens_per_batch": 750})
    assert rows_played(short, SIZES, "tiny") == (5, 150)


@pytest.mark.parametrize(("critics", "tokens"), [(False, 8 * 100 + 32 * 50), (True, 64 * 130)])
def test_a_policy_reads_a_prompt_once_for_its_completions_and_a_critic_for_each(critics, tokens):
    large = config(train={"steps": 1, "tasks_per_step": 8, "token_budget": 99999})
    sizes = replace(SIZES, prompts={"a": 100, "b": 60})
    # critics: 32 rows of 100 + 50 tokens, and 32 rows of 60 + 50
    assert tokens_learnt(large, sizes, "tiny", by_critics=critics) == tokens


def test_nothing_is_learnt_from_the_completions_of_a_frozen_policy():
    frozen = {"model": "tiny", "train": "frozen"}
    made = config(policies={"p": frozen, "q": {"model": "tiny"}})
    # only b: 8 prompts of 60 tokens and 32 answers of 50
    assert tokens_learnt(made, SIZES, "tiny", by_critics=False) == 8 * 60 + 32 * 50
