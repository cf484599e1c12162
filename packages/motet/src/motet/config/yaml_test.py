from pathlib import Path

import pytest

from motet.config.yaml import dotted, place_of, read_value, read_yaml, write_yaml
from motet.errors import ConfigError
from tests.fixtures.messages import facts, says


def written(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-6", 5e-6),
        ("1E3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-3", -3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("no", "no"),
        ("off", "off"),
        ("y", "y"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("-.inf", float("-inf")),
        ("[1.5,0.5]", [1.5, 0.5]),
        ("{a: [1, no]}", {"a": [1, "no"]}),
        ("train[:1000]", "train[:1000]"),
        ('"5e-6"', "5e-6"),
        ("bigcode/starcoder2-3b", "bigcode/starcoder2-3b"),
        ("./file.py:Class", "./file.py:Class"),
        ("1e-3x", "1e-3x"),
    ],
)
def test_a_value_is_what_yaml_1_2_says(text, value):
    read = read_value(text, "here")
    assert read == value
    assert type(read) is type(value)


def test_every_key_and_item_knows_its_line(tmp_path):
    document = read_yaml(written(tmp_path, "a: 1\nb:\n  c: [x,\n    y]\n"))
    assert document.data == {"a": 1, "b": {"c": ["x", "y"]}}
    lines = {
        dotted(path): place.rpartition(":")[2] for path, place in document.places.items() if path
    }
    assert lines == {"a": "1", "b": "2", "b.c": "3", "b.c[0]": "3", "b.c[1]": "4"}


def test_what_has_no_line_has_that_of_the_key_above():
    assert place_of({(): "x.yaml", ("a",): "x.yaml:3"}, ("a", "b", 0)) == "x.yaml:3"
    assert place_of({(): "x.yaml"}, ("z",)) == "x.yaml"
    assert place_of({}, ("z",)) == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "x.yaml:4 … b.c … twice … line 3 … keep one"),
        ("", "x.yaml … empty … keys and values … name: quickstart"),
        ("# only this\n", "x.yaml … empty … keys and values … name: quickstart"),
        ("- 1\n- 2\n", "x.yaml … [1, 2] … keys and values … name: quickstart"),
        ("a: 1\nb: c: d\n", "x.yaml:2 … not YAML … mapping values"),
        ("a: 1\n1: b\n", "x.yaml:2 … key 1 … a string … in quotes"),
        (
            "a: !!python/name:os.system x\n",
            "tag:yaml.org,2002:python/name:os.system … plain values without tags",
        ),
        ("a: !!int x\n", "x.yaml:1 … 'x' … tag:yaml.org,2002:int"),
        ("a: &a\n  b: *a\n", "x.yaml:1 … a.b … contains itself … alias … another value"),
        ("a: 1\n---\nb: 2\n", "not YAML: but found another document"),
        ("a: \x07\n", "not YAML: unacceptable character"),
    ],
)
def test_a_bad_file_gets_one_clear_line(tmp_path, text, complaint):
    with pytest.raises(ConfigError) as refused:
        read_yaml(written(tmp_path, text))
    assert says(refused.value, complaint)
    assert "\n" not in str(refused.value)


def test_a_missing_file_gets_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match=facts("absent.yaml does not exist … YAML file")):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match=facts(f"{tmp_path.name} … folder … expected … file")):
        read_yaml(tmp_path)


def test_a_python_file_is_no_config(tmp_path):
    (tmp_path / "team.py").write_text("import motet\n")
    with pytest.raises(ConfigError, match=facts("Python file … runs/NAME/config.yaml")):
        read_yaml(tmp_path / "team.py")


def test_what_is_written_reads_back_equal_texts_that_look_like_numbers_too(tmp_path):
    data = {
        "rate": 5e-6,
        "text": "5e-6",
        "no": "no",
        "yes": True,
        "null": None,
        "list": [1.5, "2"],
        "deep": {"empty": {}, "none": []},
    }
    data["again"] = data["deep"]
    data["shape"] = {
        "lines": "one\ntwo: 'x' # no\n",
        "colon": "a: b",
        "octal": "0o17",
        "long": "word " * 50,
    }
    assert read_yaml(written(tmp_path, write_yaml(data))).data == data


def test_aliases_are_read_and_never_written(tmp_path):
    document = read_yaml(written(tmp_path, "a: &a {x: 1}\nb: *a\n"))
    assert document.data["b"] == {"x": 1}
    assert "&" not in write_yaml({"a": document.data, "b": document.data})


LAUGHS = "l0: &l0 [1]\n" + "".join(
    f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
"""Ten lines that expand to a thousand million values."""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "a: " + "[" * 60 + "]" * 60,
            "x.yaml:1 … a[0][0] … nested … at most 50",
        ),
        ("a: " + "[" * 3000, "x.yaml … nested … at most 50"),
        (LAUGHS, "x.yaml … more than 20,000 values"),
    ],
    ids=["deep", "deeper", "laughs"],
)
def test_a_text_without_end_is_refused(tmp_path, text, complaint):
    with pytest.raises(ConfigError, match=facts(complaint)):
        read_yaml(written(tmp_path, text))
