"""`motet keys` explains what a config may say."""

import pytest

from motet.commands.keys import keys
from motet.errors import ConfigError


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    keys([*words])
    return " ".join(capsys.readouterr().out.split())


def test_a_key_is_explained_with_what_it_takes_and_its_default(capsys) -> None:
    text = said(capsys, "algorithm.entropy_coefficient")
    assert text.startswith(
        "algorithm.entropy_coefficient a number, at least 0; default 0.0 Weight of the entropy"
    )
    assert "entropy_final" not in text


def test_a_section_has_all_of_its_keys_and_of_what_is_in_it(capsys) -> None:
    text = said(capsys, "rollout")
    assert "rollout.samples a list: a whole number" in text
    assert "rollout.pairing" in text
    assert "train.steps" not in text
    assert "policies.NAME.lora.rank" in said(capsys, "policies.NAME.lora")


def test_several_words_narrow_the_search_and_kinds_are_named(capsys) -> None:
    text = said(capsys, "credit", "BASELINE")
    assert "algorithm.credit.baseline (kind: group)" in text
    assert "algorithm.credit.scale" not in text


def test_many_keys_are_listed_without_their_meaning(capsys) -> None:
    text = said(capsys, "e")
    assert "algorithm.entropy_coefficient a number" in text
    assert "Weight of the entropy bonus" not in text
    assert text.endswith("keys: add a word to read what they mean")


def test_without_a_word_the_sections_are_listed(capsys) -> None:
    text = said(capsys)
    assert "rollout The rollout plan" in text
    assert "policies.NAME.lora" not in text
    assert text.endswith("motet keys NAME explains the keys of a section, or a key.")


def test_a_word_in_no_key_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'entropi' in its name \(did you mean 'entropy_final'"):
        keys(["entropi"])
