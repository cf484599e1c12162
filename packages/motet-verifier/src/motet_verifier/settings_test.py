"""Tests the settings of a verifier's training that have no effect."""

import pytest
from pydantic import ValidationError

from motet_verifier.settings import VerifierTraining

MODEL = {"path": "some/model"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"train": "full", "lora": {"rank": 4}},
            "got lora settings with train: full, expected train: lora: drop one",
        ),
        (
            {"optimizer": {"schedule": "constant", "final_fraction": 0.5}},
            "got optimizer.final_fraction 0.5 with schedule: constant, which never lowers the "
            "rate: leave it at 0.1, or use schedule: linear",
        ),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValidationError) as refused:
        VerifierTraining.model_validate({"model": MODEL, **settings})
    assert message in str(refused.value)


def test_a_saved_training_with_all_defaults_is_read_back():
    full = VerifierTraining.model_validate({"model": MODEL, "train": "full"})
    assert VerifierTraining.model_validate(full.model_dump()) == full
