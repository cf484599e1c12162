"""What is said about a joint action besides its rewards: fields, and the names of the records.

An environment gives it as fields of a Transition, a reward as fields of a Score:

    field            the record's term   what it is
    success          success             how well the team solved the task, from 0 to 1
    right            right/AGENT         whether this agent's own answer is right
    majority_right   majority            whether the most common answer is right
    bonus            personal/AGENT      what one agent is paid on its own
    metrics          their own names     plain figures, which are only logged

The records of a run, its metrics (`play/terms/NAME`) and the viewer have all of them in one mapping
of terms. Only this module and the properties of `Outcome` know its names.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from motet.errors import ConfigError

SUCCESS, MAJORITY_RIGHT, RIGHT, BONUS = "success", "majority", "right/", "personal/"


def recorded_terms(
    *,
    success: float | None,
    right: Mapping[str, float],
    majority_right: float | None,
    bonus: Mapping[str, float],
    metrics: Mapping[str, float],
) -> dict[str, float]:
    """Return the fields as one mapping, in the order of the records.

    Success is the first metric, unless the metrics give it a place of its own.
    """
    terms = {RIGHT + agent: value for agent, value in right.items()}
    if majority_right is not None:
        terms[MAJORITY_RIGHT] = majority_right
    if success is not None and SUCCESS not in metrics:
        terms[SUCCESS] = success
    terms |= metrics
    if success is not None:
        terms[SUCCESS] = success
    return terms | {BONUS + agent: value for agent, value in bonus.items()}


def by_agent(terms: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): value for name, value in terms.items() if name.startswith(prefix)
    }


def check_metrics(kind: str, metrics: Any, success: float | None) -> None:
    """Raises: ConfigError if a metric has a name that the records have for another field."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"{kind} got metrics {metrics!r}; expected a mapping of names to numbers")
    for name, advice in _misplaced(metrics):
        if name != SUCCESS or success is None:
            raise ConfigError(f"{kind} got {name!r} among its metrics; {advice}")


def _misplaced(metrics: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names that belong into another field, each with advice."""
    for name, value in metrics.items():
        text = str(name)
        for prefix, field in ((RIGHT, "right"), (BONUS, "bonus")):
            if text.startswith(prefix):
                yield text, f"give {field}={{{text.removeprefix(prefix)!r}: {value!r}, ...}}"
        if text == MAJORITY_RIGHT:
            yield text, f"give majority_right={value!r}"
        if text == SUCCESS:
            yield text, f"give success={value!r}"
