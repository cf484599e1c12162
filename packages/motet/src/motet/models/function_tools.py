"""Tools that are functions: their schemas from signatures and docstrings."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from motet.core.tools import Tool
from motet.errors import ConfigError

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class FunctionTool:
    """A function as a tool."""

    function: Callable[..., Any]
    name: str
    description: str
    parameters: Mapping[str, Any]

    def __call__(self, **arguments: Any) -> Any:
        return self.function(**arguments)


def tool(function: Callable[..., Any]) -> Tool:
    """Return a plain or async function as a tool. May be used as a decorator.

    The name is that of the function. Its docstring says what it does, and in a section `Args:` what
    each argument is; the types are those of the signature (`transformers.utils.get_json_schema`).

    Raises: ConfigError that says what is missing.
    """
    from transformers.utils.chat_template_utils import get_json_schema

    try:
        said = get_json_schema(function)["function"]
    except Exception as error:  # the parser raises many kinds
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"tool {name}: {error}; expected a function with a type for each argument, and a "
            "docstring that says what it does and, behind a line `Args:`, what each argument is "
            "(`NAME: what it is`)"
        ) from error
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in _MANY:
            raise ConfigError(
                f"tool {said['name']} takes any number of arguments ({one}); expected named "
                f"arguments with types, such as a list in place of {name}"
            )
    return FunctionTool(function, said["name"], said["description"], said["parameters"])
