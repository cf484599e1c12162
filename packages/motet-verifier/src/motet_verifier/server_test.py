"""Requests that a server refuses before it loads a model."""

import socket

import pytest

from motet.errors import ConfigError
from motet_verifier.server import serve
from motet_verifier.server_settings import VerifierServerSettings
from tests.fixtures.messages import says

SECRET = "SERVER_TEST_KEY"


def try_to_serve(tmp_path, **settings):
    with pytest.raises(ConfigError) as caught:
        serve(tmp_path / "nothing", "1", VerifierServerSettings(**{"port": 0, **settings}), print)
    return str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "example.org"])
def test_whoever_lets_others_in_needs_a_key_or_says_that_none_is_needed(tmp_path, host):
    said = try_to_serve(tmp_path, host=host)
    assert says(said, f"host {host!r} … other machines … no key … --key-variable … --without-key")


@pytest.mark.parametrize("settings", [{"key_variable": SECRET}, {"without_key": True}])
def test_with_a_key_or_the_word_others_are_let_in(tmp_path, monkeypatch, settings):
    monkeypatch.setenv(SECRET, "k")
    assert "has no verifier.json" in try_to_serve(tmp_path, host="0.0.0.0", **settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_no_key(tmp_path, host):
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    assert "has no verifier.json" in try_to_serve(tmp_path, host=host)


@pytest.mark.parametrize("key", ["", " ", "two words", "Schlüssel", "a\nb"])
def test_a_key_that_no_header_can_carry_is_refused(tmp_path, monkeypatch, key):
    monkeypatch.setenv(SECRET, key)
    said = try_to_serve(tmp_path, key_variable=SECRET)
    assert "which is not set" in said if not key.strip() else "an HTTP header cannot hold" in said
    assert not key.strip() or key not in said


def test_a_key_variable_that_is_not_set_is_named(tmp_path):
    assert f"--key-variable names {SECRET}, which is not set" in try_to_serve(
        tmp_path, key_variable=SECRET
    )


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = try_to_serve(tmp_path, port=port)
    for part in ("127.0.0.1", f"port {port}", "Address already in use", "--port"):
        assert part in said


def test_a_host_that_is_none_is_said(tmp_path):
    said = try_to_serve(tmp_path, host="no.such.invalid", without_key=True)
    assert "cannot listen at 'no.such.invalid'" in said


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True
