"""Tests of the config sections that refuse some values."""

import pytest
from pydantic import TypeAdapter, ValidationError

from motet.config.sections import EndpointConfig, LocalPolicy, PolicyConfig, VerifierConfig
from motet.settings import Optimizer
from tests.fixtures.messages import facts, says


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


def test_a_null_in_extra_keeps_any_field_out_of_the_request():
    said = {"max_tokens": None, "seed": None, "max_completion_tokens": 9}
    assert expert(extra=said).parameters == said
    assert expert(extra=said, max_tokens=5).parameters["max_tokens"] == 5


def verifier(**keys):
    return TypeAdapter(VerifierConfig).validate_python(keys)


def test_a_verifier_is_one_of_a_server_a_folder_a_constant_and_several_of_these():
    server, constant = {"base_url": "http://localhost:8000"}, {"constant": 0.0}
    for one in (
        server,
        constant,
        {"folder": "verifiers/x"},
        {"ensemble": (server, constant), "combine": "minimum"},
        {"agents": {"a": server, "b": {"ensemble": (server, constant)}}},
    ):
        assert verifier(**one)
    for wrong, got in (({}, "none"), ({**server, **constant}, "base_url and constant")):
        with pytest.raises(
            ValidationError,
            match=facts(f"got {got} … base_url, folder, constant, ensemble … agents"),
        ):
            verifier(**wrong)
    with pytest.raises(ValidationError, match=facts("ensemble … one verifier … two or more")):
        verifier(ensemble=(server,))
    with pytest.raises(
        ValidationError, match=r"got none, but agents, expected .* constant or ensemble"
    ):
        verifier(agents={"a": {"agents": {"b": server}}})


def test_a_policy_is_a_model_or_an_endpoint_and_what_is_neither_names_its_keys():
    policy = TypeAdapter(PolicyConfig).validate_python
    endpoint = {"base_url": "http://localhost:1/v1", "model": "big"}
    assert policy({"model": "tiny"}).train == "full"
    assert policy({"endpoint": endpoint, "model": None, "lora": None}).train == "frozen"
    for said, got in (
        ({"modle": "tiny"}, "none, but modle … model or endpoint"),
        ({"model": "tiny", "endpoint": endpoint}, "model and endpoint … exactly one"),
    ):
        with pytest.raises(ValidationError, match=facts(got)):
            policy(said)


def test_keys_of_other_kinds_that_say_nothing_are_dropped():
    """So are those of recorded runs of before, which had the keys of all kinds."""
    said = {"base_url": None, "folder": None, "constant": 0.5, "ensemble": [], "agents": {}}
    assert verifier(**said, combine="mean", retries=3, reads="end") == verifier(constant=0.5)


@pytest.mark.parametrize(
    "settings", [{"base_url": "localhost"}, {"constant": 1.5}, {"constant": -0.1}]
)
def test_a_verifier_that_cannot_be_is_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        verifier(**settings)


def test_a_frozen_policy_has_no_optimizer():
    with pytest.raises(ValidationError) as refused:
        LocalPolicy(model="tiny", train="frozen", optimizer=Optimizer())
    assert says(refused.value, "optimizer … train: frozen … train: full or lora … optimizer: null")
    assert LocalPolicy(model="tiny", train="frozen").optimizer is None


SERVER, FOLDER = {"base_url": "http://localhost"}, {"folder": "verifiers/x"}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SERVER, {"reads": "mean"}, '"mean" … base_url … reads … base_url, key_variable, '
            "timeout_seconds, retries, concurrency, batch_size … use folder … drop reads"),
        (SERVER, {"device": "cpu"}, '"cpu" … base_url … device'),
        (FOLDER, {"batch_size": 8}, "use base_url … drop batch_size"),
        (FOLDER, {"combine": "minimum"}, "use ensemble … drop combine"),
        ({"constant": 0.5}, {"retries": 0}, "0 … constant … retries"),
        ({"ensemble": (SERVER, FOLDER)}, {"timeout_seconds": 9.0},
         "9.0 … ensemble … timeout_seconds"),
    ],
)  # fmt: skip
def test_a_verifier_refuses_settings_that_its_kind_does_not_read(kind, settings, message):
    with pytest.raises(ValidationError) as refused:
        verifier(**kind, **settings)
    assert says(refused.value, message)


def test_every_setting_of_a_verifier_is_one_of_its_kind():
    assert verifier(**FOLDER, device="cpu", token_budget=9, reads="mean").reads == "mean"
    assert verifier(**SERVER, timeout_seconds=9.0, key_variable="KEY").timeout_seconds == 9.0
