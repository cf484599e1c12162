"""The options of a command that starts a server, made from its settings."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, TypeVar, cast

import typer

Command = TypeVar("Command", bound=Callable[..., None])


def options_of(kind: type[Any], *names: str) -> Callable[[Command], Command]:
    """Give a command an option for each field of a dataclass, or each of `names`.

    The metadata of a field has the help of its option. The command has an argument `settings` in
    their place.
    """
    given = [one for one in fields(kind) if not names or one.name in names]

    def with_options(command: Command) -> Command:
        own = inspect.signature(command).parameters.values()
        options = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=one.default,
                annotation=Annotated[
                    one.type,
                    typer.Option(
                        f"--{one.name.replace('_', '-')}",
                        help=one.metadata["help"],
                        show_default=one.default is not None,
                    ),
                ],
            )
            for one in given
        ]

        @wraps(command)
        def call(*others: Any, **values: Any) -> None:
            settings = kind(**{one.name: values.pop(one.name) for one in given})
            command(*others, settings=settings, **values)

        others = [one for one in own if one.name != "settings"]
        call.__signature__ = inspect.Signature([*others, *options])  # type: ignore[attr-defined]
        return cast(Command, call)

    return with_options
