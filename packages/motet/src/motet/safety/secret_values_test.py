import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from motet.safety.secret_values import (
    HIDDEN,
    found_in,
    hidden,
    secret_variables,
)

SECRET = 's3cr"t/k<y+\\1'


def test_secrets_are_known_by_the_name_of_their_variable_and_by_passwords_in_addresses() -> None:
    variables = {
        "HF_TOKEN": "hf_0123456789",
        "OPENAI_APIKEY": "sk-0123456789",
        "DB_PASS": "hunter2hunter2",
        "MY_SECRET_VALUE": "abcdefgh",
        "NAMED": "named-by-config",
        "DATABASE_URL": "postgres://me:pa55word-1@host/db",
        "PROXY": "http://host:80/",
        "BROKEN": "http://[@",
        "SHORT_KEY": "true",
        "PASSAGE": "not a secret",
    }
    assert secret_variables(["NAMED"], variables) == {
        "HF_TOKEN": "hf_0123456789",
        "OPENAI_APIKEY": "sk-0123456789",
        "DB_PASS": "hunter2hunter2",
        "MY_SECRET_VALUE": "abcdefgh",
        "NAMED": "named-by-config",
        "DATABASE_URL": "pa55word-1",
    }


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET).replace("/", "\\/"),
        repr(SECRET),
        quote(SECRET, safe=""),
        b64encode(SECRET.encode()).decode(),
        b64encode(b"Bearer " + SECRET.encode() + b" and more").decode(),
        urlsafe_b64encode(b"x" + SECRET.encode()).decode(),
        "s3cr&quot;t/k&lt;y+\\1",
    ],
)
def test_a_secret_is_hidden_in_every_spelling(text: str) -> None:
    assert HIDDEN in hidden(f"before {text} behind", [SECRET])
    assert SECRET not in hidden(text, [SECRET])
    assert found_in({"a": [f"x {text}"]}, {"MINE": SECRET}) == "MINE"


def test_a_secret_of_several_words_is_hidden_where_it_is_wrapped() -> None:
    assert hidden("a correct horse\n  battery staple b", ["correct horse battery staple"]) == (
        f"a {HIDDEN} b"
    )
    assert found_in("correct\nhorse battery", {"A": "correct horse battery"}) == "A"
