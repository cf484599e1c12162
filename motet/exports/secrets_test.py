"""A secret of this process is found in any file but weights."""

import pytest

from motet.errors import ConfigError
from motet.exports.secrets import refuse_secrets

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
