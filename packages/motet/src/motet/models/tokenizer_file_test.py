"""Tokenizers from untrusted sources: no pattern and no growth that takes endless time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from motet.errors import ConfigError
from motet.models import folder
from motet.models.loading import load_tokenizer
from tests.fixtures.messages import facts


def test_a_decoder_with_a_pattern_is_refused(model: Path) -> None:
    said = json.loads((model / "tokenizer.json").read_text())
    said["decoder"] = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
    (model / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match="decoder: got a pattern"):
        load_tokenizer(model)


def harm_tokenizer(model: Path, normalizer: dict[str, Any], added: str) -> None:
    said = json.loads((model / "tokenizer.json").read_text())
    token = {
        **said["added_tokens"][0],
        "id": 300,
        "content": added,
        "normalized": True,
        "special": False,
    }
    (model / "tokenizer.json").write_text(
        json.dumps(
            {**said, "normalizer": normalizer, "added_tokens": [*said["added_tokens"], token]}
        )
    )


def test_a_normalizer_that_makes_texts_grow_without_end_is_refused(model: Path) -> None:
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    harm_tokenizer(model, {"type": "Sequence", "normalizers": [double] * 40}, "a")
    with pytest.raises(
        ConfigError,
        match=facts("tokenizer.json … normalizer … 10,000 times longer"),
    ):
        load_tokenizer(model)


def replaced(old: str, new: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


QUOTES = [replaced("``", '"'), replaced("''", '"')]
NORMALIZERS: Mapping[str, list[dict[str, Any]]] = {
    "bert": [
        {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "lowercase": True,
        },
    ],
    "llama": [{"type": "Prepend", "prepend": "▁"}, replaced(" ", "▁")],
    "gemma": [replaced(" ", "▁")],
    "whisper and marian, with NFC": [{"type": "NFC"}],
    "clip": [{"type": "NFC"}, replaced(r"\s+", " ", "Regex"), {"type": "Lowercase"}],
    "t5": [
        {"type": "Strip", "strip_left": False, "strip_right": True},
        replaced(" {2,}", "▁", "Regex"),
    ],
    "albert": [
        *QUOTES, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
        replaced(" {2,}", " ", "Regex"),
    ],
    "nllb, with a sentinel": [
        {"type": "Nmt"}, {"type": "NFKC"}, replaced("^ $", "\ue000", "Regex"),
        {"type": "Strip", "strip_left": True, "strip_right": True}, replaced("\ue000", " "),
    ],
    "thirty letters for others": [
        replaced(f"[{chr(n)}{chr(n + 1)}]", "x", "Regex")
        for n in range(0x620, 0x63E)
    ],
    "signs that are spelt": [replaced(sign, f"<sign {ord(sign)}>") for sign in "\n\t…½€™✓№"],
    "signs with spaces around them": [replaced(sign, f" {sign} ") for sign in ".,;:!?()[]{}"],
    "one sign after the other": [
        replaced("…", "..."), replaced("...", " . . . "), replaced("  ", " "),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_as_tokenizers_have_them_are_far_from_the_limit(model: Path, name: str) -> None:
    harm_tokenizer(model, {"type": "Sequence", "normalizers": NORMALIZERS[name]}, "zzz")
    load_tokenizer(model)
    assert folder._growth({"type": "Sequence", "normalizers": NORMALIZERS[name]}) < 100


def test_growth_is_that_of_the_longest_way_of_a_character_through_the_steps() -> None:
    a_to_bbb, b_to_cc, c_to_dddd = replaced("a", "bbb"), replaced("b", "cc"), replaced("c", "dddd")
    assert folder._growth([a_to_bbb, b_to_cc, c_to_dddd]) == 3 * 2 * 4
    assert folder._growth([c_to_dddd, {"normalizers": [b_to_cc]}, a_to_bbb]) == 4
    assert folder._growth([replaced("ab", "aaaab"), replaced("ab", "b")]) == 2.5
    assert folder._growth([a_to_bbb, replaced("b+", "dd", "Regex")]) == 3 * 2
    assert folder._growth([replaced("a", ""), None, {"type": "NFC"}]) == folder._growth(None) == 1


def test_what_rust_panics_at_is_one_line(model: Path) -> None:
    harm_tokenizer(
        model, {"type": "Replace", "pattern": {"Regex": "^(a+)+$"}, "content": "b"}, "a" * 60 + "!"
    )
    with pytest.raises(ConfigError, match=r"\Amodel [^\n]+ cannot be loaded: [^\n]+\Z"):
        load_tokenizer(model)
