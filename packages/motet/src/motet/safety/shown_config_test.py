import math

import pytest

from motet.safety.secret_values import HIDDEN, secrets_of_machine, shown_config, without_secrets
from tests.faults.hostile import within


def test_secret_variables_and_those_that_the_config_names_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "HF_TOKEN": "hf-0123456789",
        "WANDB_API_KEY": "w-0123456789abc",
        "MINE": "named-by-config",
        "SHORT_KEY": "abc",
        "PLAIN": "nothing secret here",
    }.items():
        monkeypatch.setenv(name, value)
    found = secrets_of_machine({"expert": {"key_variable": "MINE"}, "other": [{"x": 1}]})
    assert {"hf-0123456789", "w-0123456789abc", "named-by-config"} <= set(found)
    assert "abc" not in found
    assert "nothing secret here" not in found
    assert found == sorted(found, key=len, reverse=True)


def test_secrets_are_replaced_in_values_and_keys_and_numbers_stay_json() -> None:
    cleaned = without_secrets(
        {"a s3cret-key b": ["my s3cret-key", 1, None, True, math.nan, (math.inf, 0.5)]},
        ["s3cret-key"],
    )
    assert cleaned == {
        f"a {HIDDEN} b": [f"my {HIDDEN}", 1, None, True, None, [None, 0.5]]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("api_key", "abc", HIDDEN),
        ("expert.headers.Authorization", "Bearer abc", HIDDEN),
        ("extra.token", "abc", HIDDEN),
        ("password", "abc", HIDDEN),
        ("key_variable", "EXPERT_KEY", "EXPERT_KEY"),
        ("token_budget", "16384", "16384"),
        ("base_url", "https://me:pass@models.example/v1", f"https://{HIDDEN}@models.example/v1"),
        ("decode.max_new_tokens", 44, 44),
    ],
)
def test_a_config_shows_settings_and_no_secrets(key: str, value: object, shown: object) -> None:
    nested: object = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    assert shown_config(nested) == {key: shown}


def test_long_texts_and_many_secrets_take_no_longer_than_they_are() -> None:
    with within(10.0):
        assert shown_config({"threads": "x" * 200_000, "urls": ["a://" * 50_000]})
        pieces = ["12345678", ":"] * 20_000
        assert without_secrets(pieces, ["12345678"]) == [HIDDEN, ":"] * 20_000
