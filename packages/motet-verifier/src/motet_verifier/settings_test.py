"""Tests the settings of a verifier's training that have no effect."""

import pytest
from pydantic import ValidationError

from motet_verifier.settings import VerifierTraining
from tests.fixtures.messages import says

MODEL = {"path": "some/model"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"train": "full", "lora": {"rank": 4}},
            "lora … train: full … train: lora … drop one",
        ),
        (
            {"optimizer": {"schedule": "constant", "final_fraction": 0.5}},
            "optimizer.final_fraction … 0.5 … schedule: constant … 0.1 … schedule: linear",
        ),
        (
            {"optimizer": {"schedule": "constant", "decay_share": 0.5}},
            "optimizer.decay_share … 0.5 … schedule: constant … 1.0 … schedule: linear",
        ),
        (
            {"model": {**MODEL, "end_tokens": ["<end>"]}},
            "model.end_tokens … <end> … end-of-sequence token of its tokenizer",
        ),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValidationError) as refused:
        VerifierTraining.model_validate({"model": MODEL, **settings})
    assert says(refused.value, message)


def test_a_saved_training_with_all_defaults_is_read_back():
    full = VerifierTraining.model_validate({"model": MODEL, "train": "full"})
    assert VerifierTraining.model_validate(full.model_dump()) == full
