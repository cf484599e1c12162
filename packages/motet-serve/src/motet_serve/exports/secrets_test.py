"""A secret of this process is found in any file, and in the header of weights."""

import html
import json

import pytest
import yaml

from motet.config.yaml import write_yaml
from motet.errors import ConfigError
from motet_serve.exports.secrets import refuse_secrets

SECRETS = {"SOME_TOKEN": "abcdefgh-1", "MY_KEY": "true", "PLAIN": "not a secret"}


def test_a_secret_is_found_and_not_repeated(tmp_path):
    (tmp_path / "code").mkdir()
    file = tmp_path / "code" / "own.py"
    file.write_text('KEY = "abcdefgh-1"\n')
    with pytest.raises(ConfigError, match=r"code/own\.py .* SOME_TOKEN") as refused:
        refuse_secrets(tmp_path, SECRETS)
    assert "abcdefgh-1" not in str(refused.value)


def test_short_values_other_variables_and_weights_are_no_secrets(tmp_path):
    (tmp_path / "README.md").write_text("true: not a secret")
    (tmp_path / "model.safetensors").write_bytes(b"abcdefgh-1")
    refuse_secrets(tmp_path, SECRETS)


def test_a_word_of_a_vocabulary_is_no_secret_there(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"vocab": {"password": 7, "pass4word": 8}}')
    refuse_secrets(tmp_path, {"DB_PASSWORD": "password"})
    with pytest.raises(ConfigError, match=r"tokenizer\.json .* DB_PASSWORD; .* unset the variable"):
        refuse_secrets(tmp_path, {"DB_PASSWORD": "pass4word"})
    (tmp_path / "team.yaml").write_text("system: my password")
    with pytest.raises(ConfigError, match=r"team\.yaml .* DB_PASSWORD"):
        refuse_secrets(tmp_path, {"DB_PASSWORD": "password"})


WORDS = "correct horse battery staple, over and over: " * 4
VALUES = {"PLAIN_KEY": 'q"uo\\ted/é', "LONG_SECRET": WORDS.strip(), "PIPE_TOKEN": "a|b_c*d<e>f"}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("team.yaml", lambda value: write_yaml({"a": {"system": f"You have {value} now"}})),
        ("team.yaml", lambda value: yaml.safe_dump({"a": [f"You have {value}"]}, width=20)),
        ("config.json", lambda value: json.dumps({"a": [{value: 1}]})),
        ("rows.jsonl", lambda value: f"1\n{json.dumps(value)}\n"),
        ("README.md", lambda value: html.escape(f"a {value} b")),
        ("x.safetensors", lambda value: _weights({"__metadata__": {"a": value}})),
        ("own.py", lambda value: f"KEY = {value!r}\n"),
        ("notes.txt", lambda value: value.replace(" ", "\n")),
    ],
)
def test_a_secret_is_found_however_a_file_writes_it(tmp_path, name, file, content):
    (tmp_path / file).write_text(content(VALUES[name]), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{file} would contain .* {name};"):
        refuse_secrets(tmp_path, {name: VALUES[name]})
    refuse_secrets(tmp_path, {"OTHER_KEY": "another value"})


def _weights(header: dict[str, object]) -> str:
    text = json.dumps(header).ljust(0x141)  # so that its size is ASCII
    return len(text).to_bytes(8, "little").decode() + text + "\0\1"
