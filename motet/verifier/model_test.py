"""A verifier's folder: what is written is read again, and what is not whole is said in one line."""

import json
from pathlib import Path

import pytest

from motet.errors import ConfigError
from motet.policies.testing import make_model_folder
from motet.settings import Lora
from motet.verifier.model import Verifier, check_folder
from motet.verifier.testing import chat


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_folder(tmp_path_factory.mktemp("model"))


def fresh(source: Path, lora: bool) -> Verifier:
    return Verifier.new(source, lora=Lora(rank=4) if lora else None, seed=0, device="cpu")


def test_an_adapter_finds_its_base_from_any_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    made = Verifier.new(source.name, lora=Lora(rank=4), seed=0, device="cpu")
    made.save(tmp_path / "v")
    monkeypatch.chdir(tmp_path)
    loaded = Verifier.load("v", device="cpu")
    assert loaded.base == str(source)
    assert loaded.scores([loaded.encode(chat("42"))]) == made.scores([made.encode(chat("42"))])


def test_a_base_that_is_gone_is_named(source: Path, tmp_path: Path) -> None:
    fresh(source, lora=True).save(tmp_path / "v")
    card = json.loads((tmp_path / "v" / "verifier.json").read_text())
    (tmp_path / "v" / "verifier.json").write_text(json.dumps({**card, "base": "/not/there"}))
    with pytest.raises(ConfigError, match="is an adapter on /not/there, which is not there"):
        check_folder(tmp_path / "v")


@pytest.mark.parametrize(
    ("card", "complaint"),
    [
        ('{"format": 0, "base": null, "facts": {}}', "has format 0, expected 1"),
        ("{", "cannot be read"),
        ("", "cannot be read"),
        ("[]", "the file: Input should be"),
        ("null", "the file: Input should be"),
        ('{"format": 1, "facts": {}}', "base: Field required"),
        ('{"format": 1, "base": 7, "facts": {}}', "base: Input should be a valid string"),
        ('{"format": 1, "base": null, "facts": []}', "facts: Input should be a valid dictionary"),
        ('{"format": 1, "base": null, "facts": {}, "bias": 1}', "bias: Extra inputs are not permitted"),
    ],
)
def test_a_card_that_says_something_else_is_one_line(source: Path, tmp_path: Path, card: str, complaint: str) -> None:
    fresh(source, lora=False).save(tmp_path / "v")
    (tmp_path / "v" / "verifier.json").write_text(card)
    with pytest.raises(ConfigError, match=complaint) as caught:
        check_folder(tmp_path / "v")
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_verifier_is_one_line(source: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no verifier\.json; expected the folder of a verifier"):
        Verifier.load(source)


@pytest.mark.parametrize("lora", [False, True])
def test_a_file_that_is_missing_cut_off_or_noise_is_an_error_of_the_config(
    source: Path, tmp_path: Path, lora: bool
) -> None:
    fresh(source, lora).save(tmp_path / "v")
    passed = []
    for file in sorted(path for path in (tmp_path / "v").rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for name, spoilt in {
            "missing": None,
            "empty": b"",
            "half": whole[: len(whole) // 2],
            "noise": b"\xff" * 99,
        }.items():
            if spoilt is None:
                file.unlink()
            else:
                file.write_bytes(spoilt)
            try:
                Verifier.load(tmp_path / "v", device="cpu")
            except ConfigError:
                continue
            passed.append((file.name, name))
        file.write_bytes(whole)
    Verifier.load(tmp_path / "v", device="cpu")
    assert not [pair for pair in passed if pair[0].endswith(".safetensors") or pair[0] == "verifier.json"]


def test_weights_that_were_cut_off_are_found_without_reading_them(source: Path, tmp_path: Path) -> None:
    fresh(source, lora=False).save(tmp_path / "v")
    assert check_folder(tmp_path / "v").base is None
    weights = tmp_path / "v" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="cannot be read"):
        check_folder(tmp_path / "v")
