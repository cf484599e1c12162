"""The settings of a verifier's server, which has the most numbers."""

from dataclasses import fields

import pytest

from motet.errors import ConfigError
from motet_verifier.server_settings import VerifierServerSettings
from tests.fixtures.messages import facts

LIMITS = [one.name for one in fields(VerifierServerSettings) if one.type in (int, float)]


@pytest.mark.parametrize("name", sorted({*LIMITS} - {"port"}))
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_above_zero(name, value):
    with pytest.raises(ConfigError, match=facts(f"{name} … {value} … finite … above 0")):
        VerifierServerSettings(**{name: value})
