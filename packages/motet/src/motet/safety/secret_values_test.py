import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from motet.safety.secret_values import (
    HIDDEN,
    found_in,
    hidden,
    secret_variables,
    without_secrets,
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
