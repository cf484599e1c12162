from dataclasses import fields

import pytest

from motet.errors import ConfigError
from motet_verifier.limits import ScoringLimits


@pytest.mark.parametrize("name", [one.name for one in fields(ScoringLimits)])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_above_zero(name, value):
    with pytest.raises(ConfigError, match=f"{name} is {value}; expected a finite number above 0"):
        ScoringLimits(**{name: value})
