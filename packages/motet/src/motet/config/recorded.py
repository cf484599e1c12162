"""The config of a run as it is read for looking: it is complete, and loads nothing that it names.

`RunConfig` resolves the names of its algorithm, which may be Python files. A run folder may come
from a stranger, so whatever only looks at a run reads this class in its place.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_validator,
)

from motet.algorithms import ALGORITHMS, check_names, resolve
from motet.config.checks import complaints_of
from motet.config.run_keys import DEFAULT_ALGORITHM, RunKeys, tupled, validation_error
from motet.errors import ConfigError
from motet.settings import Algorithm
from motet.user_code.plugins import is_reference


class AlgorithmOfCode(Algorithm):
    """An algorithm whose row is code that was not loaded. Only the fields in `model_fields_set` are
    known."""

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        return self  # whether the fields fit together depends on the row


def _filled(value: Any) -> Any:
    name = value.get("name", DEFAULT_ALGORITHM) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str):
        return value
    said = {**tupled(value), "name": name}
    if name in ALGORITHMS:
        return {**ALGORITHMS[name].model_dump(), **said}
    if is_reference(name):
        return AlgorithmOfCode.model_validate(said)
    try:
        return resolve(name, {})
    except ConfigError as error:
        raise validation_error([(("name",), str(error))]) from error


def _with_known_names(algorithm: Algorithm) -> Algorithm:
    try:
        check_names(algorithm)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return algorithm


class RecordedConfig(RunKeys):
    """The complete config of a run, for looking."""

    algorithm: Annotated[Algorithm, BeforeValidator(_filled), AfterValidator(_with_known_names)] = (
        Field(default_factory=lambda: resolve(DEFAULT_ALGORITHM, {}))
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        unknown = isinstance(self.algorithm, AlgorithmOfCode)
        complaints = [] if unknown else complaints_of(self)
        if complaints:
            raise validation_error(complaints)
        return self

    @field_serializer("algorithm", mode="wrap")
    def _row_and_what_differs(
        self, value: Algorithm, handler: SerializerFunctionWrapHandler
    ) -> Any:
        said = value.model_dump(mode="json")
        if isinstance(value, AlgorithmOfCode):
            return {key: item for key, item in said.items() if key in value.model_fields_set}
        row = ALGORITHMS[value.name].model_dump(mode="json")
        return {key: item for key, item in said.items() if key == "name" or item != row[key]}
