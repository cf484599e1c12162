"""Tests of the config sections that refuse some values."""

import pytest
from pydantic import ValidationError

from motet.config.services import ExpertConfig, VerifierConfig


def expert(**settings):
    return ExpertConfig(**{"base_url": "http://localhost:8000/v1", "model": "tiny", **settings})


def test_an_expert_sends_only_the_parameters_that_were_set():
    assert expert().parameters == {}
    assert expert(temperature=0.0, max_tokens=9).parameters == {"temperature": 0.0, "max_tokens": 9}
    assert expert(max_tokens=9, extra={"top_p": 0.5}).parameters == {"max_tokens": 9, "top_p": 0.5}


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "http://localhost",
        "http://127.0.0.1:8000/v1/",
        "http://[::1]:8000/v1",
    ],
)
def test_web_addresses_are_taken(url):
    assert expert(base_url=url).base_url == url


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://here/v1",
        "http://",
        "http:///v1",
        "",
        "http://h/v1?key=1",
        "http://h:99999/v1",
    ],
)
def test_what_is_no_web_address_is_refused(url):
    with pytest.raises(ValidationError, match="base_url"):
        expert(base_url=url)


def test_an_address_with_a_password_is_refused_because_it_would_be_recorded():
    with pytest.raises(ValidationError, match="name a variable in key_variable"):
        expert(base_url="https://me:secret@models.example/v1")


@pytest.mark.parametrize("field", ["model", "messages", "stream", "temperature", "max_tokens"])
def test_extra_fields_replace_none_that_have_their_own_place(field):
    with pytest.raises(ValidationError, match=f"extra sets {field}; expected other fields"):
        expert(extra={field: 1})


def test_a_verifier_is_one_of_a_server_a_folder_a_constant_and_several_of_these():
    server, constant = {"base_url": "http://localhost:8000"}, {"constant": 0.0}
    for one in (
        server,
        constant,
        {"folder": "verifiers/x"},
        {"ensemble": (server, constant), "combine": "minimum"},
    ):
        assert VerifierConfig(**one)
    for wrong, got in (({}, "none"), ({**server, **constant}, "base_url and constant")):
        with pytest.raises(
            ValidationError,
            match=f"got {got} of base_url, folder, constant and ensemble; expected exactly",
        ):
            VerifierConfig(**wrong)
    with pytest.raises(ValidationError, match="ensemble has one verifier; expected two or more"):
        VerifierConfig(ensemble=(server,))


@pytest.mark.parametrize(
    "settings", [{"base_url": "localhost"}, {"constant": 1.5}, {"constant": -0.1}]
)
def test_a_verifier_that_cannot_be_is_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        VerifierConfig(**settings)
