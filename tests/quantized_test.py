"""A team on an 8-bit or 4-bit base model: it plays, learns with a KL term, is saved and
plays again."""

import asyncio
import sys
from typing import Any

import pytest
import torch

import motet
from motet.assembly import bases
from motet.assembly.components import components_of
from motet.assembly.models import assemble
from motet.assembly.task_setup import open_task_setup
from motet.core import CreditState
from tests.fixtures.messages import facts, says
from tests.fixtures.one_step import one_step
from tests.small_runs import LORA, recorded, run_config, steps, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
FEWER = ("8bit", "4bit")


def small(folder: Any, quantize: str, **sections: Any) -> dict[str, Any]:
    return run_config(
        models={"tiny": {"path": str(folder), "device": "cpu", "quantize": quantize}},
        algorithm={"name": "marloo", "kl_in": "loss", "kl_coefficient": 0.05},
        **{"policies": LORA, **sections},
    )


@pytest.fixture
def bnb() -> None:
    pytest.importorskip(
        "bitsandbytes", reason='quantised bases need pip install "motet[quantized]"'
    )


@pytest.mark.usefixtures("bnb")
@pytest.mark.parametrize(("quantize", "apart"), [("8bit", 0.05), ("4bit", 1e-4)])
def test_adapters_on_a_quantised_base_train_save_load_and_play_as_they_did(
    quantize, apart, train, model_folder
):
    """In 8 bits, outlier inputs of a batch keep their width; learning has other batches
    than sampling."""
    run = train(small(model_folder("qwen3"), quantize))
    first, second = steps(run)
    assert first["learn/sampling_logp_difference"] < apart
    assert first["learn/kl/p"] == pytest.approx(0, abs=1e-6)
    assert second["learn/kl/p"] > 1e-4
    assert recorded(motet.evaluate(run, show="silent")) == summary(run)["heldout"]["after"]


@pytest.mark.usefixtures("bnb")
@pytest.mark.parametrize("quantize", FEWER)
def test_one_step_moves_the_adapters_and_no_bit_of_the_quantised_base(
    quantize, tmp_path, model_folder
):
    with open_task_setup(
        motet.read_config(small(model_folder("qwen3"), quantize)), train=True
    ) as setup:
        models = assemble(setup, asyncio.run(bases.raw(setup, tmp_path, None)), train=True)
        model = models.policies["p"].backbone.model
        assert models.policies["q"].backbone.model is model
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        asyncio.run(
            one_step(
                components_of(setup, models),
                setup.tasks["train"],
                1,
                CreditState(),
            )
        )
        moved = {
            name
            for name, tensor in model.state_dict().items()
            if not torch.equal(tensor, before[name])
        }
    assert moved
    assert all(".lora_" in name for name in moved)
    assert any(tensor.dtype in (torch.int8, torch.uint8) for tensor in before.values())


@pytest.mark.usefixtures("bnb")
@pytest.mark.parametrize("how", ["lora", "head", "policy"])
def test_critics_stand_on_a_quantised_base(how, train, model_folder):
    run = train(
        {
            **small(model_folder("qwen3"), "4bit"),
            "algorithm": {"name": "iac"},
            "critic": {"train": how},
        }
    )
    first, second = steps(run)
    assert (
        max(first["learn/sampling_logp_difference"], second["learn/sampling_logp_difference"])
        < 1e-4
    )
    for critic in ("critic-a", "critic-b"):
        assert first[f"learn/value/{critic}"] == 0
        assert second[f"learn/value/{critic}"] != 0


# ------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize("quantize", FEWER)
def test_what_trains_all_weights_of_a_quantised_model_is_refused_with_both_values(
    quantize, model_folder
):
    full = small(model_folder("qwen3"), quantize, policies={"p": {"model": "tiny"}, "q": LORA["q"]})
    with pytest.raises(motet.ConfigError) as refused:
        motet.read_config(full)
    said = (
        f"policies.p … train: full … models.tiny … quantize: {quantize} … train: lora or frozen … "
        "quantize: none"
    )
    assert says(refused.value, said)
    with pytest.raises(
        motet.ConfigError,
        match=facts(f"warmup … all weights … models.tiny … quantize: {quantize}"),
    ):
        motet.read_config(small(model_folder("qwen3"), quantize, warmup={"steps": 1}))


@pytest.mark.parametrize("critic", [{}, {"critic": {"train": "full"}}])
def test_a_critic_that_trains_all_weights_of_a_quantised_model_is_refused_whether_said_or_not(
    critic, model_folder
):
    with pytest.raises(
        motet.ConfigError,
        match=facts("critic … train: full … models.tiny … quantize: 4bit … use critic"),
    ):
        motet.read_config(
            {**small(model_folder("qwen3"), "4bit"), "algorithm": {"name": "iac"}, **critic}
        )


def test_an_embedded_model_is_not_quantised():
    with pytest.raises(
        motet.ConfigError, match=facts('quantize … "4bit" … embedded … no quantize')
    ):
        motet.read_config(
            run_config(models={"tiny": {"embedded": {}, "quantize": "4bit"}}, policies=LORA)
        )


def test_without_the_library_the_run_ends_before_any_work(monkeypatch, tmp_path, model_folder):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(motet.ConfigError, match=r'pip install "motet\[quantized\]"'):
        motet.train(small(model_folder("qwen3"), "4bit"), runs=tmp_path / "runs", show="silent")
    assert not (tmp_path / "runs").exists()


# ------------------------------------------------------------------------------------------- memory


@pytest.mark.usefixtures("bnb")
def test_the_estimate_counts_the_quantised_width(model_folder):
    """Two layers of 32 inputs: q 32, k and v 16, o 32 x 32, and three of 64. The embeddings are the
    head."""
    linear = 2 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 64)
    plain, eight, four = (
        motet.dry_run(small(model_folder("qwen3"), quantize)).memory["weights"]
        for quantize in ("none", *FEWER)
    )
    assert plain - eight == 3 * linear
    assert plain - four == 4 * linear - int(linear * (4 + 1 / 8 + 1 / 512) / 8)
