import pytest

from motet.safety.secret_values import HIDDEN, shown_config
from tests.faults.hostile import within


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


def test_long_texts_take_no_longer_than_they_are() -> None:
    with within(10.0):
        assert shown_config({"threads": "x" * 200_000, "urls": ["a://" * 50_000]})
