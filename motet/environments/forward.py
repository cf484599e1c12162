"""What a wrapped environment can do besides playing."""

from typing import Any

from motet.core import Environment

OPTIONAL = ("tasks", "task", "demonstrate", "solve", "convention", "alone", "answer", "question", "mark")


def forward(environment: Environment[Any], name: str) -> Any:
    """The optional method `name` of the wrapped environment, for a wrapper's `__getattr__`; its states hold the `inner` one.

    Raises: AttributeError where the environment has none, so that `hasattr` tells the truth about the wrapper too.
    """
    if name not in OPTIONAL:
        raise AttributeError(name)
    method = getattr(environment, name)
    return (lambda state, seed: method(state.inner, seed)) if name == "solve" else method
