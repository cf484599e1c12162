"""One exception tree. A name says which boundary was crossed; a message says what was got, what was expected, how to fix it.

`ConfigError` is the user's to mend and ends a command with exit code 2 before any work is done. The four faults belong to one
episode or one joint action: they are recorded as `core.Fault`, counted and shown, and never become a reward.
"""

from motet.visible import visible


def shortened(text: str, most: int = 200, end: int = 40) -> str:
    """`text`, or its beginning and its last `end` characters where it is longer than a message should be."""
    return text if len(text) <= most else f"{text[: most - end - 5]} ... {text[-end:]}"


class MotetError(Exception):
    """Base of every error that Motet raises on purpose.

    What a message repeats may be of any length and have any characters: a long line is cut, and control
    characters are written out.
    """

    cause: str | None = None
    """One stable word to count a fault by; where it is None, a fault is counted by the class of what was raised."""
    may_pass: bool = False
    """Whether the same once more may go well, as where a service was busy: an environment that raises it is asked again."""

    def __init__(self, message: object = "") -> None:
        lines = (shortened(line, 1500, 500) for line in str(message).split("\n"))
        super().__init__(visible("\n".join(lines)))


class ConfigError(MotetError):
    """The run as configured cannot work: unknown key, wrong type, a name nobody defines, a plan an algorithm refuses."""


class EnvironmentFault(MotetError):
    """An environment could not start, observe or step."""


class RewardFault(MotetError):
    """A scorer could not score; the answer itself may be right or wrong."""


class SamplerFault(MotetError):
    """A policy could not answer, for example because its prompt is longer than its context."""


class SandboxFault(MotetError):
    """The sandbox itself failed; what the program under judgement did is a result, not a fault."""


class Interrupted(MotetError):
    """The person or the system asked the run to stop, and it did. The message says how to go on."""


class OutOfMemory(MotetError):
    """A device has less memory than was asked for. The message says what asked, and which settings ask for less."""


class TrainingDiverged(MotetError):
    """A loss or a gradient is not a finite number; the run stops before the weights are touched."""
