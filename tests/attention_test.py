"""Whole runs with another attention implementation of transformers.

Every model that is loaded uses the configured one, and the results are the same.
"""

import pytest

import motet
from motet.config.sections import StoredModel
from motet.models import backbone
from motet_verifier import api
from motet_verifier.model import Verifier
from motet_verifier.settings import VerifierTraining
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.small_runs import run_config, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
POLICIES = {"p": {"model": "tiny"}, "q": {"model": "tiny", "train": "lora"}}


@pytest.fixture
def asked(monkeypatch):
    """Return the attention implementation of every model that is loaded."""
    found, load = [], backbone.load_model

    def noted(source, dtype, device, quantize, attention):
        found.append(attention)
        return load(source, dtype, device, quantize, attention)

    monkeypatch.setattr(backbone, "load_model", noted)
    return found


@pytest.mark.parametrize("attention", widely(["sdpa", "eager"], keep=["eager"]))
def test_base_policies_references_critics_warm_up_and_evaluation_obey_the_key(
    train, tmp_path, asked, attention
):
    config = run_config(
        policies=POLICIES,
        warmup={"steps": 2, "batch_size": 4},
        algorithm={"name": "ippo", "kl_in": "loss", "kl_coefficient": 0.1},
        critic={"train": "full"},
    )
    plain, chosen = {}, {}
    for which, into in (("auto", plain), (attention, chosen)):
        asked.clear()
        run = train(config, [f"models.tiny.attention={which}"], runs=tmp_path / which)
        motet.evaluate(run)
        assert len(asked) > 4
        assert set(asked) == {which}
        into |= dict(enumerate(steps(run)))
    assert len(plain) == 2
    for step, figures in plain.items():
        assert chosen[step] == pytest.approx(figures, rel=1e-3, abs=1e-5)


def test_a_verifier_is_trained_with_the_attention_of_its_model(model_folder, asked):
    settings = VerifierTraining(
        model=StoredModel(path=str(model_folder("llama")), device="cpu", attention="eager")
    )
    found = api._fresh(settings, [], None)
    assert isinstance(found, Verifier)
    assert asked == ["eager"]
    assert found.critic.backbone.model.config._attn_implementation == "eager"


def test_what_the_machine_has_not_is_said_before_any_work():
    with pytest.raises(
        motet.ConfigError, match=facts("attention … flash_attention_2 … cpu … cuda")
    ):
        motet.dry_run(run_config(), ["models.tiny.attention=flash_attention_2"])


def test_an_unknown_one_is_named_with_those_there_are():
    with pytest.raises(
        motet.ConfigError,
        match=r"models\.tiny\.attention: got 'flash', expected 'auto', 'sdpa', 'flash_at",
    ):
        motet.read_config(run_config(), ["models.tiny.attention=flash"])
