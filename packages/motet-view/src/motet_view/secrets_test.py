import math

import pytest

from motet.safety.secret_values import HIDDEN, found_in
from motet_view.secrets import secrets_of_machine, without_secrets
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


def test_the_pieces_of_a_text_do_not_join_to_a_secret() -> None:
    assert without_secrets({"pieces": ["my s", "3c", "ret-", "key", "!"]}, ["s3cret-key"]) == {
        "pieces": [HIDDEN, "", "", "", ""]
    }
    assert without_secrets(["a s3cret-key", "b"], ["s3cret-key"]) == [f"a {HIDDEN}", "b"]
    text = "s3cret-keys3cret-key s3cret-key"
    for size in range(1, 14):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert len(without_secrets(parts, ["s3cret-key"])) == len(parts)
        assert found_in(without_secrets(parts, ["s3cret-key"]), {"A": "s3cret-key"}) is None
    assert found_in([{"pieces": ["s3", "cret-key"]}], {"A": "s3cret-key"}) == "A"


def test_lists_of_other_things_are_searched_one_by_one() -> None:
    assert without_secrets(["s3cret-key", 1, ["s3cret-", "key"]], ["s3cret-key"]) == [
        HIDDEN, 1, [HIDDEN, ""],
    ]  # fmt: skip
    assert without_secrets(["ab", "cd"], []) == ["ab", "cd"]


def test_many_secrets_take_no_longer_than_their_texts() -> None:
    pieces = ["12345678", ":"] * 20_000
    with within(10.0):
        assert without_secrets(pieces, ["12345678"]) == [HIDDEN, ":"] * 20_000
