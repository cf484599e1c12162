"""Critics and clipped updates, selected by config alone, on whole steps of a small game."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import motet
from motet.assembly import bases
from motet.assembly.components import components_of
from motet.assembly.models import LocalModels, assemble
from motet.assembly.task_setup import TaskSetup, open_task_setup
from motet.config.paths import config_path
from motet.core import CreditState
from tests.fixtures.messages import facts, says
from tests.fixtures.one_step import one_step
from tests.fixtures.wide import widely
from tests.small_runs import LORA, TINY, run_config, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

TWO_TURNS: dict[str, Any] = {"game": {"turns": 2}, "rollout": {"samples": [2, 2]}}
FULL = {"p": {"model": "tiny"}, "q": {"model": "tiny"}}
SIZES = {"tiny": 16, "judge": 32}
FREE = {"steps": 2, "tasks_per_step": 2, "max_step_kl": None}
"""Without a bound, after which a learning rate would fall."""
PER_TURN = {"a": ["p", "q"], "b": ["p", "q"]}


@contextmanager
def models_of(tmp_path: Any, **sections: Any) -> Iterator[tuple[TaskSetup, LocalModels]]:
    with open_task_setup(
        motet.read_config(run_config(**{**TWO_TURNS, **sections})), train=True
    ) as setup:
        yield setup, assemble(setup, asyncio.run(bases.raw(setup, tmp_path, None)), train=True)


def play(setup: TaskSetup, models: LocalModels, number: int = 1) -> dict[str, float]:
    components, tasks = components_of(setup, models), setup.tasks["train"]
    return dict(asyncio.run(one_step(components, tasks, number, CreditState()))[0].metrics)


def copies(models: LocalModels) -> dict[str, list[torch.Tensor]]:
    """Copy every weight of every policy and critic, by name."""
    everyone = {**models.policies, **models.critics}
    return {name: [p.detach().clone() for p in one.parameters()] for name, one in everyone.items()}


def moved(before: dict[str, list[torch.Tensor]], after: dict[str, list[torch.Tensor]]) -> set[str]:
    return {
        name
        for name in before
        if any(not torch.equal(*pair) for pair in zip(before[name], after[name], strict=True))
    }


# ---------------------------------------------------------------------------------- who trains what


@pytest.mark.parametrize(
    "policies", [FULL, pytest.param(LORA, marks=pytest.mark.wide)], ids=["full", "lora"]
)
@pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        *[("ippo", how) for how in ("full", "lora", "head", "policy")],
        *[("mappo", how) for how in ("full", "lora", "head")],
    ],
)
def test_every_weight_that_can_learn_is_in_exactly_one_optimiser_heads_included(
    tmp_path, policies, algorithm, how
):
    sections = {"policies": policies, "algorithm": {"name": algorithm}, "critic": {"train": how}}
    with models_of(tmp_path, **sections) as (_, models):
        used = {
            id(one.backbone): one.backbone.model
            for one in (*models.policies.values(), *models.critics.values())
        }
        can_learn = {
            id(p) for model in used.values() for p in model.parameters() if p.requires_grad
        }
        heads = {id(p) for critic in models.critics.values() for p in critic.head.parameters()}
        learners = set(models.learners.values())
        stepped = [
            id(parameter)
            for learner in learners
            for state in learner._train_states.values()
            for group in state.optimizer.param_groups
            for parameter in group["params"]
        ]
        assert len(heads) == 2 * len(models.critics) == (4 if algorithm == "ippo" else 2)
        assert len(stepped) == len(set(stepped))
        assert set(stepped) == can_learn | heads


@pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        ("iac", "full"),
        ("maac", "lora"),
        ("ippo", "policy"),
        ("mappo", "head"),
        pytest.param("maporl", "lora", marks=pytest.mark.wide),
        ("maporl", "policy"),
    ],
)
def test_every_algorithm_moves_everyone_and_its_critics(tmp_path, algorithm, how):
    sections = {"policies": LORA, "algorithm": {"name": algorithm}, "critic": {"train": how}}
    with models_of(tmp_path, **sections) as (setup, models):
        before = copies(models)
        figures = play(setup, models)
        assert moved(before, copies(models)) == {*models.policies, *models.critics}
        for critic in models.critics:
            assert figures[f"learn/value_error/{critic}"] > 0.0


def test_agents_that_share_a_policy_share_its_critic_and_its_steps(tmp_path):
    sections = {"policies": {"p": {"model": "tiny"}}, "team": {"a": "p", "b": "p"}}
    with models_of(
        tmp_path, **sections, algorithm={"name": "ippo", "minibatches": 2}, train=FREE
    ) as (
        setup,
        models,
    ):
        play(setup, models)
        assert list(models.critics) == ["critic-a"]
        assert [models.learners[name].state(name)[1] for name in ("p", "critic-a")] == [
            {"step": 8}
        ] * 2


@pytest.mark.parametrize("warmup", [None, {"steps": 2, "batch_size": 4}], ids=["cold", "warm"])
def test_a_critic_may_stand_on_a_model_that_nobody_plays_with(train, warmup):
    config = run_config(
        **TWO_TURNS,
        models={
            name: {"embedded": TINY | {"hidden_size": width}, "device": "cpu"}
            for name, width in SIZES.items()
        },
        algorithm={"name": "maac"},
        critic={"model": "judge"},
        warmup=warmup,
    )
    assert all("learn/value_error/critic-joint" in row for row in steps(train(config)))


def test_incentives_are_refused_where_nobody_knows_who_was_right(train):
    with pytest.raises(motet.ConfigError, match=facts("Coded … says_right")):
        train(run_config(algorithm={"name": "mareinforce", "incentives": {"beta1": 1.0}}))


def test_incentives_are_refused_where_nobody_answers_twice():
    with pytest.raises(motet.ConfigError, match=facts("two turns … rollout.samples [1] … one")):
        motet.dry_run(
            config_path("debate"),
            ["rollout.samples=[1]", "algorithm.incentives={alpha1: 1}"],
        )


@pytest.mark.parametrize(
    ("schedule", "idle"),
    [
        ("{kind: round_robin, block: 25}", []),
        ("{kind: round_robin, block: 50}", ["b at turn 1, b at turn 2"]),
        ("{kind: turns, first_turn_steps: 50}", ["a at turn 2, b at turn 2"]),
    ],
)
def test_whom_a_schedule_never_reaches_is_said_before_the_run(schedule, idle):
    cost = motet.dry_run(config_path("debate"), [f"schedule={schedule}", "train.steps=50"])
    assert len(cost.warnings) == len(idle)
    for warning, policy_turns in zip(cost.warnings, idle, strict=True):
        assert says(warning, f"schedule … {policy_turns} in 50 steps … block or first_turn_steps")


def test_a_schedule_of_many_steps_is_read_at_once():
    far = ["schedule={kind: turns, first_turn_steps: 1000000000}", "train.steps=1000000000"]
    (warning,) = motet.dry_run(config_path("debate"), far).warnings
    assert says(warning, "schedule … a at turn 2, b at turn 2 … 1000000000 steps")


@pytest.mark.parametrize(
    "name", widely(["relay_iac", "relay_maac", "relay_ippo", "relay_mappo"], keep=["relay_mappo"])
)
def test_the_relays_configs_take_two_steps(name):
    assert motet.check(config_path(name), ["train.tasks_per_step=4"]).summary.steps == 2


# ----------------------------------------------------------------------------------- what a step is


def gradients(tmp_path: Any, algorithm: dict[str, Any], **sections: Any) -> dict[str, torch.Tensor]:
    """Return the gradient of the policies' first optimizer step. AdamW's first average is (1 − β1)
    of it."""
    wide = {"learning_rate": 1e-2, "betas": [0.0, 0.95], "clip_norm": 1e9}
    with models_of(tmp_path, algorithm=algorithm, optimizer=wide, **sections) as (setup, models):
        play(setup, models)
        return {
            name: torch.cat(
                [
                    t.flatten()
                    for key, t in models.learners[name].state(name)[0].items()
                    if "sq" not in key
                ]
            )
            for name in models.policies
        }


def close(ones: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return all(
        float((ones[name] - others[name]).norm()) < 1e-6 * float(others[name].norm())
        for name in others
    )


PLAIN = {"whiten": False, "epochs": 1, "gae_lambda": 1.0}


def test_one_epoch_of_one_minibatch_of_ppo_is_the_policy_gradient(tmp_path):
    clipped = gradients(tmp_path / "x", {"name": "ippo", **PLAIN, "gae_lambda": 0.7})
    plain = gradients(tmp_path / "y", {"name": "iac", "reduce": "token_mean", "gae_lambda": 0.7})
    assert min(float(gradient.norm()) for gradient in plain.values()) > 1e-2
    assert close(clipped, plain)


@pytest.mark.parametrize("name", widely(["ippo", "mappo", "maporl"], keep=["ippo"]))
def test_ppo_whose_critic_says_zero_is_reinforce_with_returns(tmp_path, name):
    # the head of a new critic is zero, so at the first step its value needs no forcing
    fields = {"maporl": {"kl_in": "none", "kl_coefficient": 0.0, "minibatches": 1}}.get(name, {})
    rule = {"maporl": {"returns": "discounted_sum", "gamma": 0.3}}.get(name, {})
    clipped = gradients(tmp_path / "x", {"name": name, **PLAIN, **fields})
    plain = gradients(tmp_path / "y", {"name": "mareinforce", "reduce": "token_mean", **rule})
    assert min(float(gradient.norm()) for gradient in plain.values()) > 1e-2
    assert close(clipped, plain)


def test_the_ratio_is_one_at_the_first_update_and_has_moved_after_several(tmp_path):
    for epochs in (1, 3):
        with models_of(tmp_path / str(epochs), algorithm={"name": "ippo", "epochs": epochs}) as (
            setup,
            models,
        ):
            figures = play(setup, models)
        assert (abs(figures["learn/ratio"] - 1.0) < 1e-5) == (epochs == 1)
        assert (figures["learn/approx_kl"] < 1e-9) == (epochs == 1)
        assert figures["learn/sampling_logp_difference"] < 1e-5


def test_a_policy_that_has_moved_too_far_takes_no_further_step(tmp_path):
    for stop, taken in ((1e-9, 1), (1e9, 4)):
        algorithm = {"name": "ippo", "stop_at_kl": stop}
        with models_of(tmp_path / str(taken), algorithm=algorithm) as (setup, models):
            play(setup, models)
            done = {
                name: learner.state(name)[1]["step"] for name, learner in models.learners.items()
            }
        assert done == {"p": taken, "q": taken, "critic-a": 4, "critic-b": 4}


# ---------------------------------------------------------------------------------------- schedules

TURNS = {"kind": "turns", "first_turn_steps": 1, "block": 2}


@pytest.mark.parametrize("policies", [FULL, LORA], ids=["full", "lora"])
def test_a_block_of_a_turn_moves_the_policies_of_that_turn_and_no_bit_of_the_others(
    tmp_path, policies
):
    sections = {
        "policies": policies,
        "team": PER_TURN,
        "schedule": TURNS,
        "algorithm": {"name": "ippo"},
    }
    with models_of(tmp_path, **sections, critic={"train": "head"}) as (setup, models):
        for number, who in ((1, "p"), (2, "q"), (3, "q"), (4, "p")):
            before = copies(models)
            play(setup, models, number)
            assert moved(before, copies(models)) == {who, *models.critics}


@pytest.mark.parametrize(
    ("schedule", "team", "taken"),
    [
        pytest.param(
            {"kind": "simultaneous"},
            {"a": "p", "b": "q"},
            {"p": 5, "q": 5, "critic-a": 5, "critic-b": 5},
            marks=pytest.mark.wide,
        ),
        (
            {"kind": "round_robin", "block": 2},
            {"a": "p", "b": "q"},
            {"p": 3, "q": 2, "critic-a": 3, "critic-b": 2},
        ),
        (TURNS, PER_TURN, {"p": 3, "q": 2, "critic-a": 5}),
    ],
    ids=["simultaneous", "round_robin", "turns"],
)
def test_every_learning_rate_ends_where_the_run_does(train, schedule, team, taken):
    config = run_config(
        **TWO_TURNS,
        algorithm={"name": "ippo", "epochs": 2, "minibatches": 2},
        critic={"epochs": 3, "train": "head"},
        team=team,
        schedule=schedule,
        optimizer={"learning_rate": 1e-2, "schedule": "linear", "final_fraction": 0.1},
        train=FREE | {"steps": 5},
    )
    found = steps(train(config))
    for name, count in taken.items():
        rates = [
            row[f"learn/learning_rate/{name}"]
            for row in found
            if f"learn/learning_rate/{name}" in row
        ]
        assert len(rates) == count
        assert rates == sorted(rates, reverse=True)
        # a tenth, reached at the last update and not before
        assert rates[-1] == pytest.approx(1e-3)
