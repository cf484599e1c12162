"""The socket of a server. motet_verifier/server_test.py tests what is refused before it is used."""

import socket

import pytest

from motet.errors import ConfigError
from motet_serve.http.server import reserve
from motet_serve.http.settings import ServerSettings


def test_a_server_that_ends_leaves_its_port_to_the_next():
    with reserve(ServerSettings(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            held, _ = first.accept()
        held.close()
    with reserve(ServerSettings(port=port)) as second:
        assert second.getsockname()[1] == port


def test_an_answer_is_not_held_back():
    with reserve(ServerSettings(port=0)) as listener:
        # asyncio checks the protocol before it sets TCP_NODELAY
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "no such host"])
def test_a_host_that_is_no_name_is_refused(host):
    with pytest.raises(ConfigError, match="choose another --host or --port"):
        reserve(ServerSettings(host=host, port=0))
