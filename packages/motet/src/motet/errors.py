"""All exceptions of Motet.

The class says which part failed. The message says what was found, what was expected, and how to fix
it.

`ConfigError` is an error that the user must fix. It ends a command with exit code 2 before any work
is done. The four faults (EnvironmentFault, RewardFault, SamplerFault, SandboxFault) affect one
episode or one joint action. They are recorded as `core.Fault`, counted and reported, and never
become a reward. SandboxFault is an error of codejudge, the sandbox, and no MotetError.
"""

from motet.safety.visible import visible


def shortened(text: str, most: int = 200, end: int = 40) -> str:
    """Return `text`. If it is longer than `most`, return its beginning and its last `end`
    characters."""
    return text if len(text) <= most else f"{text[: most - end - 5]} ... {text[-end:]}"


class MotetError(Exception):
    """Base class of every error that Motet raises on purpose.

    A message may quote external text of any length. Long lines are shortened, and control
    characters are escaped.
    """

    cause: str | None = None
    """One stable word that faults are counted by. None: they are counted by the
    exception's class."""
    may_pass: bool = False
    """Whether the error may be temporary, for example because a service was busy. An environment
    that raises it is called again."""

    def __init__(self, message: object = "") -> None:
        lines = (shortened(line, 1500, 500) for line in str(message).split("\n"))
        super().__init__(visible("\n".join(lines)))


class ConfigError(MotetError):
    """The configuration cannot work: an unknown key, a wrong type, an undefined name, a plan that
    the algorithm refuses."""


class CannotResume(ConfigError):
    """The run cannot be resumed. Each command adds how it starts a new one."""


class EnvironmentFault(MotetError):
    """An environment failed to start, observe or step."""


class RewardFault(MotetError):
    """A reward could not be computed. The completion itself may be right or wrong."""


class SamplerFault(MotetError):
    """A policy could not sample, for example because the prompt is longer than its context."""


class Interrupted(MotetError):
    """The run stopped because the user or the system asked for it. The message says how
    to resume."""


class OutOfMemory(MotetError):
    """A device is out of memory. The message says what needed the memory, and which settings need
    less."""


class ProcessLost(MotetError):
    """A process of the cluster died, or did not answer in time. Its weights are lost."""


class EnginesLost(MotetError):
    """So many vLLM engines died that none is replaced any more. It never passes by itself."""


class TrainingDiverged(MotetError):
    """A loss or a gradient is not finite. The run stops before any weight is changed."""
