from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from motet.config.load import load_config
from motet.config.validation import validate_options
from motet.config.yaml import read_yaml
from motet.errors import ConfigError
from motet.settings import Decode, Settings
from tests.fixtures.messages import facts, says


class Inner(Settings):
    rate: float = 0.1
    free: Any = None
    rounds: tuple[int, ...] = Field(default=(1,), min_length=1)


class Options(Settings):
    size: int
    loud: bool = False
    inner: Inner = Inner()
    each: dict[str, Inner] = Field(default_factory=dict)
    part: Inner | None = None
    mode: list[str] | str = "x"


def written(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "size: 1\ninner:\n  rat: 1",
            "x.yaml:3: options.inner.rat … unknown … rate",
        ),
        (
            "size: 1\nzzz: 1",
            "x.yaml:2: options.zzz … unknown … size, loud, inner, each, part, mode",
        ),
        (
            "size: 1\neach: {a: {rat: 1}}",
            "x.yaml:2 … options.each.a.rat … unknown … rate",
        ),
        ("size: 1\npart: {rat: 1}", "x.yaml:2 … options.part.rat … unknown … rate"),
        ("size: five", "x.yaml:1 … options.size … 'five' … a whole number"),
        ("size: '5'", "x.yaml:1 … options.size … '5' … a whole number"),
        ("size: true", "x.yaml:1 … options.size … true … a whole number"),
        ("size: 5.0", "x.yaml:1 … options.size … 5.0 … a whole number"),
        ("size: 1\nloud: no", "x.yaml:2 … options.loud … 'no' … true or false"),
        (
            "size: 1\ninner: {rate: .inf}",
            "x.yaml:2 … options.inner.rate … Infinity … a finite number",
        ),
        (
            "size: 1\ninner: {free: [1, .nan]}",
            "x.yaml:2 … options.inner.free[1] … NaN … a finite number",
        ),
        (
            f"size: 0x{'f' * 4000}",
            "x.yaml:1 … options.size … 16,000 bits … at most 14,000",
        ),
        (
            "size: 1\ninner: {rounds: [1,\n  x]}",
            "x.yaml:3 … options.inner.rounds[1] … 'x' … a whole number",
        ),
        (
            "size: 1\ninner: {rounds: []}",
            "x.yaml:2 … options.inner.rounds … [] … at least 1",
        ),
        (
            "size: 1\ninner: [1]",
            "x.yaml:2 … options.inner … [1] … keys and values … rate, free, rounds",
        ),
        ("size: 1\nmode: 3", "x.yaml:2 … options.mode … 3 … a list … a string"),
        ("loud: true", "x.yaml … options.size … missing … no default"),
    ],
)
def test_a_wrong_value_is_said_with_place_key_got_and_expected(tmp_path, text, complaint):
    document = read_yaml(written(tmp_path, text))
    places = {("options", *path) if path else (): place for path, place in document.places.items()}
    with pytest.raises(ConfigError) as refused:
        validate_options(Options, document.data, places, ("options",))
    assert str(refused.value).startswith(f"{tmp_path}/x.yaml")
    assert says(refused.value, complaint)
    assert "\n" not in str(refused.value)


def test_every_problem_has_a_line_of_its_own():
    with pytest.raises(ConfigError) as refused:
        validate_options(Options, {"size": "x", "lound": 1}, {})
    size, lound = str(refused.value).splitlines()
    assert says(size, "size … 'x' … whole number")
    assert says(lound, "lound … unknown … loud")


def test_a_list_fills_a_tuple_and_a_whole_number_a_float():
    decode = validate_options(Decode, {"stop": ["END"], "temperature": 1}, {})
    assert (decode.stop, decode.temperature) == (("END",), 1.0)


def test_what_is_no_plain_value_is_refused():
    with pytest.raises(ConfigError, match=facts("plain values … YAML")):
        validate_options(Options, {"size": object()}, {})


def test_a_long_key_does_not_make_a_long_line():
    with pytest.raises(ConfigError) as refused:
        validate_options(Options, {"size": 1, "x" * 5000: 1}, {})
    assert len(str(refused.value)) < 300


def test_a_name_of_a_section_that_is_new_by_mistake_is_told_from_the_others():
    said = r"team\.axu\.policy: missing; it has no default\. Or is axu one of aux, main\?"
    with pytest.raises(ConfigError, match=said) as caught:
        load_config("quickstart", ["team.axu.decode.max_new_tokens=3"])
    assert caught.value.__suppress_context__  # what pydantic says is in the line
