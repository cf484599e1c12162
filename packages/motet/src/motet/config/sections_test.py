"""Tests of the config sections that refuse some values."""

import pytest
from pydantic import ValidationError

from motet.config.sections import _READ_BY, EndpointConfig, PolicyConfig, VerifierConfig
from motet.settings import Optimizer


def expert(**settings):
    return EndpointConfig(**{"base_url": "http://localhost:8000/v1", "model": "tiny", **settings})


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
    with pytest.raises(ValidationError, match="set key_variable"):
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
            match=f"got {got} of base_url, folder, constant, ensemble and agents; expected",
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


def test_a_frozen_policy_has_no_optimizer():
    with pytest.raises(ValidationError) as refused:
        PolicyConfig(model="tiny", train="frozen", optimizer=Optimizer())
    assert (
        "got optimizer settings with train: frozen, which is never updated: use train: full or "
        "lora, or drop them (optimizer: null)"
    ) in str(refused.value)
    assert PolicyConfig(model="tiny", train="frozen").optimizer is None


SERVER, FOLDER = {"base_url": "http://localhost"}, {"folder": "verifiers/x"}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SERVER, {"reads": "mean"}, "got reads mean, which base_url does not read: drop it, or "
            "use folder instead"),
        (SERVER, {"device": "cpu"}, "got device cpu, which base_url does not read"),
        (FOLDER, {"batch_size": 8}, "got batch_size 8, which folder does not read: drop it, or "
            "use base_url instead"),
        (FOLDER, {"combine": "minimum"}, "got combine minimum, which folder does not read: drop "
            "it, or use ensemble instead"),
        ({"constant": 0.5}, {"retries": 0}, "got retries 0, which constant does not read"),
        ({"ensemble": (SERVER, FOLDER)}, {"timeout_seconds": 9.0}, "got timeout_seconds 9.0, "
            "which ensemble does not read"),
    ],
)  # fmt: skip
def test_a_verifier_refuses_settings_that_its_kind_does_not_read(kind, settings, message):
    with pytest.raises(ValidationError) as refused:
        VerifierConfig(**kind, **settings)
    assert message in str(refused.value)


def test_every_setting_of_a_verifier_is_read_by_one_kind():
    read = [name for kind, names in _READ_BY.items() for name in (kind, *names)]
    assert sorted(read) == sorted(VerifierConfig.model_fields)
    assert VerifierConfig(**FOLDER, device="cpu", token_budget=9, reads="mean").reads == "mean"
    assert VerifierConfig(**SERVER, timeout_seconds=9.0, key_variable="KEY").timeout_seconds == 9.0
