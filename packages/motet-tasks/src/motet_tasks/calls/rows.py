"""Rows of BFCL v4, as the datasets BFCL-V4-Parallel-Native and BFCL-V4-Parallel-Multi-Turn of
OpenMLRL have them.

    user_prompt         the request
    function            the functions: a list of {name, description, parameters}
    ground_truth        the calls that it needs: a list of {name: {argument: [accepted values]}}
    official_category, task_type, id    optional
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from motet.core import Task
from motet.errors import ConfigError, shortened
from motet.user_code.plugins import nearest
from motet_tasks.calls.reading import FunctionCall, arguments_of

REQUEST, FUNCTIONS, NEEDED = "user_prompt", "function", "ground_truth"
CATEGORY, KIND = "official_category", "task_type"


def read_request(row: Mapping[str, Any]) -> Task:
    """Raises: ConfigError if a field is missing or has another form."""
    missing = [name for name in (REQUEST, FUNCTIONS, NEEDED) if name not in row]
    if missing:
        name = missing[0]
        raise ConfigError(
            f"a row of function calls has no field {name!r}{nearest(name, row)}; it has "
            f"{', '.join(row)}. Set its column in data: fields: {{{name}: COLUMN}}"
        )
    request = row[REQUEST]
    if not isinstance(request, str) or not request.strip():
        raise ConfigError(f"a row has {request!r} as its {REQUEST!r}; expected a text")
    functions, needed = (_objects(row, name) for name in (FUNCTIONS, NEEDED))
    if not all(map(_is_function, functions)):
        raise ConfigError(
            f"a row has {shortened(str(row[FUNCTIONS]))} as its {FUNCTIONS!r}; expected objects "
            "with a name each, and parameters with properties and a list of required ones, if any"
        )
    if not all(needed):
        raise ConfigError(
            f"a row has {shortened(str(row[NEEDED]))} as its {NEEDED!r}; expected a call in each "
            'object, such as {"get_weather": {"city": ["Oslo"]}}'
        )
    calls = [next(iter(one.items())) for one in needed]
    given = row.get("id")
    digest = blake2b(
        json.dumps([request, calls], default=str).encode(errors="surrogatepass"), digest_size=6
    )
    return Task(
        f"calls-{digest.hexdigest()}" if given is None else str(given),
        {
            "request": request,
            "functions": functions,
            "needed": [[name, arguments_of(arguments)] for name, arguments in calls],
        },
    )


def needed_calls(task: Task) -> list[FunctionCall]:
    """Return the calls that a task needs. Their arguments are lists of accepted values."""
    return [FunctionCall(name, arguments) for name, arguments in task.fields["needed"]]


def _objects(row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a field, which may be a list, or JSON of one.

    Tables give each object the keys of all others, with null. These are no keys of its own.
    """
    value = row[name]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"a row has {shortened(value)!r} as its {name!r}, which is no JSON: {error}"
            ) from error
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not all(isinstance(one, Mapping) for one in value)
    ):
        raise ConfigError(
            f"a row has {shortened(str(value))} as its {name!r}; expected a list of objects"
        )
    return [_without_nulls(one) for one in value]


def _is_function(one: Mapping[str, Any]) -> bool:
    schema = one.get("parameters", {})
    if not isinstance(schema, Mapping):
        return False
    required = schema.get("required", [])
    return (
        isinstance(one.get("name"), str)
        and isinstance(schema.get("properties", {}), Mapping)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
