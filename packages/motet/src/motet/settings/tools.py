"""How tools are called: the limits of all calls."""

from pydantic import PositiveFloat, PositiveInt

from motet.settings.base import Settings


class ToolUse(Settings):
    """The limits of tool calls (docs/tools.md)."""

    rounds: PositiveInt = 4
    """Rounds of calls of one agent before an answer. The calls of one reply are one round and take
    one turn. After the last round, the text of a reply counts as the answer, and so it does at the
    last turn of `rollout.samples`."""
    timeout_seconds: PositiveFloat = 30.0
    """Timeout of one call. A call that takes longer gives an error as its result."""
    result_characters: PositiveInt = 4000
    """The longest result. The middle of a longer one is left out."""
