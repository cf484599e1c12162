"""Every kind of team, by config alone, on any model folder: trained, saved, loaded, played."""

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import motet
from motet.assembly import bases
from motet.assembly.components import components_of
from motet.assembly.models import assemble
from motet.assembly.task_setup import open_task_setup
from motet.core import CreditState, walk
from tests.fixtures.model_folders import ARCHITECTURES
from tests.fixtures.one_step import one_step
from tests.fixtures.wide import widely
from tests.small_runs import (
    LORA,
    contents,
    episodes,
    recorded,
    run_config,
    steps,
    summary,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


# -------------------------------------------------------------------------------------------- teams


def team(shape: str, model_folder: Any) -> dict[str, Any]:
    """Return the config sections of one kind of team."""
    full, lora, frozen = ({"model": "tiny", "train": how} for how in ("full", "lora", "frozen"))
    two_turns = {"game": {"turns": 2}, "rollout": {"samples": [2, 2]}}
    return {
        "one policy for both": {"policies": {"p": full}, "team": {"a": "p", "b": "p"}},
        "an adapter each": {"policies": {"p": lora, "q": lora}},
        "one adapter for both": {"policies": {"p": lora}, "team": {"a": "p", "b": "p"}},
        "a model each": {"policies": {"p": full, "q": full}},
        "a policy per turn": {
            "policies": {"p": full, "q": lora, "r": lora},
            "team": {"a": ["p", "q"], "b": {"policy": ["r"]}},
            **two_turns,
        },
        "a frozen partner": {"policies": {"p": full, "q": frozen}},
        "a frozen partner under the adapter": {"policies": {"p": lora, "q": frozen}},
        "two architectures": {
            "models": {
                name: {"path": str(model_folder(name)), "device": "cpu"}
                for name in ("qwen3", "gpt2")
            },
            "policies": {"p": {"model": "qwen3"}, "q": {"model": "gpt2", "train": "lora"}},
        },
    }[shape]


SHAPES = (
    "one policy for both", "an adapter each", "one adapter for both", "a model each",
    "a policy per turn", "a frozen partner", "a frozen partner under the adapter",
    "two architectures",
)  # fmt: skip


def by_plain_libraries(run: Path, policy: str, base: Path) -> Any:
    """Load a saved policy of a run without Motet."""
    folder = run / "team" / policy
    if not folder.exists():
        return AutoModelForCausalLM.from_pretrained(base).eval()
    if (folder / "adapter_config.json").exists():
        return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).eval()
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@torch.no_grad()
def farthest(model: Any, policy: str, played: tuple[motet.Episode, ...]) -> float:
    """Return the largest difference (nats) between the recorded log-probabilities and those of
    `model`."""
    gaps = []
    for episode in played:
        for _, round_ in walk(episode.root):
            for agent, completions in round_.samples.items():
                for one in (
                    completion for completion in completions if completion.policy == policy
                ):
                    prompt = round_.prompt_tokens[agent]
                    logits_LV = model(torch.tensor([[*prompt, *one.tokens]])).logits[
                        0, len(prompt) - 1 : -1
                    ]
                    logp_LV = (logits_LV / one.temperature).log_softmax(-1)
                    gaps += (
                        (
                            logp_LV[range(len(one.tokens)), list(one.tokens)]
                            - torch.tensor(one.logprobs)
                        )
                        .abs()
                        .tolist()
                    )
    return max(gaps)


@pytest.mark.parametrize(
    "shape",
    widely(
        SHAPES,
        keep=[
            "one policy for both",
            "a policy per turn",
            "a frozen partner under the adapter",
            "two architectures",
        ],
    ),
)
def test_every_shape_of_team_trains_saves_loads_and_plays_as_it_did(shape, train, model_folder):
    config = run_config(**team(shape, model_folder))
    run = train(config)
    models, policies = config["models"], config["policies"]
    trained = {name for name, policy in policies.items() if policy.get("train") != "frozen"}
    assert {folder.name for folder in (run / "team").iterdir()} == trained
    played = episodes(run, "evaluate-000002")
    for name, policy in policies.items():
        base = Path(models[policy["model"]].get("path", run / "models" / policy["model"]))
        assert farthest(by_plain_libraries(run, name, base), name, played) < 1e-4
        if name in trained:
            assert farthest(by_plain_libraries(run, "nobody", base), name, played) > 1e-3
    assert recorded(motet.evaluate(run, show="silent")) == summary(run)["heldout"]["after"]


@pytest.mark.parametrize("how", ["frozen", "lora"])
def test_a_trained_adapter_is_where_the_next_run_starts(how, train, tmp_path):
    first = train(run_config(policies=LORA), runs=tmp_path / "first")
    base, adapter = first / "models" / "tiny", first / "team" / "p"
    run = train(
        run_config(
            models={"tiny": {"path": str(base), "device": "cpu"}},
            policies={
                "p": {"model": "tiny", "train": how, "adapter": str(adapter)},
                "q": {"model": "tiny"},
            },
        )
    )
    learnt = by_plain_libraries(first, "p", base)
    assert farthest(learnt, "p", episodes(run, "evaluate-000000")) < 1e-4
    assert (farthest(learnt, "p", episodes(run, "evaluate-000002")) < 1e-4) == (how == "frozen")
    assert recorded(motet.evaluate(run, show="silent")) == summary(run)["heldout"]["after"]


@pytest.mark.parametrize(
    "shape", ["an adapter each", "a frozen partner", "a frozen partner under the adapter"]
)
def test_one_step_moves_what_is_trained_and_no_bit_of_anything_else(shape, tmp_path, model_folder):
    with open_task_setup(
        motet.read_config(run_config(**team(shape, model_folder))), train=True
    ) as setup:
        models = assemble(setup, asyncio.run(bases.raw(setup, tmp_path, None)), train=True)
        everything = {
            id(tensor): tensor
            for policy in models.policies.values()
            for tensor in policy.backbone.model.state_dict().values()
        }
        before = {key: tensor.clone() for key, tensor in everything.items()}
        asyncio.run(
            one_step(
                components_of(setup, models),
                setup.tasks["train"],
                1,
                CreditState(),
            )
        )
        trained = {
            parameter.data_ptr()
            for policy in models.policies.values()
            for parameter in policy.parameters()
        }
        moved = {
            tensor.data_ptr()
            for key, tensor in everything.items()
            if not torch.equal(tensor, before[key])
        }
    assert moved
    assert moved <= trained
    for name, policy in models.policies.items():
        mine = {parameter.data_ptr() for parameter in policy.parameters()}
        assert bool(mine & moved) == (name not in setup.team.frozen)


@pytest.mark.parametrize(
    "kind",
    widely(
        product(ARCHITECTURES, (False, True), ("full", "lora")),
        keep=[("qwen3", True, "lora"), ("llama", True, "full"), ("gpt2", False, "full")],
    ),
    ids=str,
)
def test_any_model_folder_of_the_hub_goes_all_the_way(kind, train, model_folder):
    architecture, template, how = kind
    source = model_folder(architecture, template)
    config = run_config(
        game={"chat": ["a"]},
        models={"m": {"path": str(source), "device": "cpu"}},
        policies={"p": {"model": "m", "train": how}},
        team={
            "a": {
                "policy": "p",
                "system": "be brief",
                "decode": {"temperature": 0.7, "stop": ["e"]},
            },
            "b": {
                "policy": "p",
                "system": "be loud",
                "decode": {"max_new_tokens": 6, "top_p": 0.9},
            },
        },
        algorithm={"name": "marloo", "kl_in": "loss", "kl_coefficient": 0.05},
        rollout={"samples": [4]},
    )
    before = contents(source)
    run = train(config)
    assert contents(source) == before
    assert all(
        row["learn/sampling_logp_difference"] < 1e-4 and abs(row["learn/ratio"] - 1) < 1e-4
        for row in steps(run)
    )
    assert (
        farthest(by_plain_libraries(run, "p", source), "p", episodes(run, "evaluate-000002")) < 1e-4
    )
    for episode in episodes(run):
        prompts, samples = episode.root.prompts, episode.root.samples
        assert prompts["a"][0] == motet.Message("system", "be brief")
        assert prompts["b"].startswith("be loud\n\n")
        assert all(
            one.temperature == 0.7 and "e" not in one.text and len(one.tokens) <= 3
            for one in samples["a"]
        )
        assert all(one.temperature == 1.0 and len(one.tokens) <= 6 for one in samples["b"])
    assert recorded(motet.evaluate(run, show="silent")) == summary(run)["heldout"]["after"]
