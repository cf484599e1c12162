import pytest

from motet.errors import ConfigError
from motet_serve.http.settings import ServerSettings


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(ConfigError, match=f"port is {port}; expected a number from 0 to 65535"):
        ServerSettings(port=port)
