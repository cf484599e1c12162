"""Commands whose arguments and options are the parameters of a function of the Python API.

    @of_api("motet.api.evaluation:play")
    def play(call: ApiCall, traceback: Traceback = False) -> None:
        print_episode(call())

The signature of the function gives names, types and defaults, and the section `Args` of its
docstring the help. Parameters before the `*` become arguments, except `into`; the others become
options. What a command line cannot give, such as a callback or a Python object, is left out.

The function's source is read and not imported, because the API imports torch, which takes seconds:
help and completion must not wait for it.
"""

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from motet.commands.options import ARGUMENTS, check_config, parts_of

_PLAIN = {
    "bool": bool,
    "int": int,
    "int | None": int | None,
    "float": float,
    "float | None": float | None,
    "str": str,
    "str | None": str | None,
    "str | Path": Path,
    "str | Path | None": Path | None,
    "Sequence[str | Path]": list[Path] | None,
}
"""Annotation of a parameter -> that of its option."""
_LISTS: dict[str, type[Any]] = {
    "Sequence[str]": str,
    "Sequence[int]": int,
    "Sequence[float]": float,
}
"""Annotation of a parameter -> the type of its parts, which commas separate."""
_FILE = Annotated[Path, typer.Argument(show_default=False)]


@dataclass(frozen=True)
class ApiParameter:
    """A parameter of a function of the API."""

    name: str
    annotation: str
    default: Any
    """`inspect.Parameter.empty` without one."""
    help: str
    is_option: bool

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def parts(self) -> type[Any] | None:
        """The type of the parts of a list with commas. None for other types."""
        return _LISTS.get(self.annotation.removesuffix(" | None")) if self.is_option else None

    def typed_as(self) -> inspect.Parameter | None:
        """Return the parameter with typer's annotation. None if a command line cannot give it."""
        annotation: Any = self._as_option() if self.is_option else self._as_argument()
        if annotation is None:
            return None
        default = self.default
        if isinstance(default, tuple):
            default = ",".join(map(str, default)) or None
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )

    def _as_option(self) -> Any:
        kind: Any = _PLAIN.get(self.annotation)
        if self.parts is not None:
            kind = str | None
        elif self.annotation.startswith("Literal["):
            kind = Literal[ast.literal_eval(f"({self.annotation[8:-1]},)")]
        if kind is None:
            return None
        flags = (self.flag,) if kind is bool else ()
        shown = self.default not in (None, (), inspect.Parameter.empty)
        several = None if self.parts is None else f"<{self.parts.__name__},...>"
        return Annotated[
            kind, typer.Option(*flags, help=self.help, show_default=shown, metavar=several)
        ]

    def _as_argument(self) -> Any:
        kind, shared = get_args(ARGUMENTS.get(self.name, _FILE))
        about = copy(shared)
        about.help = self.help or shared.help
        return Annotated[kind, about]

    def read(self, value: Any) -> Any:
        """Return the value for the API of what typer gave. Raises: ConfigError."""
        if value is None or value in ([], ()):
            return self.default
        return value if self.parts is None else parts_of(self.flag, value, self.parts)


@cache
def parameters_of(reference: str) -> tuple[ApiParameter, ...]:
    """Return the parameters of `package.module:FUNCTION`, read from its source."""
    module, _, name = reference.partition(":")
    package, *rest = module.split(".")
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).parent.joinpath(*rest).with_suffix(".py").read_text(encoding="utf-8")
    found = re.search(rf'^def {name}\(.*?^    """.*?"""', text, re.MULTILINE | re.DOTALL)
    assert found is not None, reference
    (function,) = ast.parse(found[0]).body
    assert isinstance(function, ast.FunctionDef)
    helps, given = _helps(ast.get_docstring(function) or ""), function.args
    first = len(given.args) - len(given.defaults)
    positional = [
        (one, given.defaults[number - first] if number >= first else None, one.arg == "into")
        for number, one in enumerate(given.args)
    ]
    named = [
        (one, default, True)
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return tuple(
        ApiParameter(
            one.arg,
            ast.unparse(one.annotation) if one.annotation is not None else "",
            inspect.Parameter.empty if default is None else _value(default, text),
            helps.get(one.arg, ""),
            is_option,
        )
        for one, default, is_option in (*positional, *named)
    )


def _value(node: ast.expr, text: str) -> Any:
    """Return the value of a default: a literal, a function of Python such as print, or a constant
    of the module with this `text`."""
    if isinstance(node, ast.Name) and hasattr(builtins, node.id):
        return getattr(builtins, node.id)
    if isinstance(node, ast.Name):
        found = re.search(rf"^{node.id} = (.+)$", text, re.MULTILINE)
        assert found is not None, node.id
        return ast.literal_eval(found[1])
    return ast.literal_eval(node)


def _helps(docstring: str) -> dict[str, str]:
    """Return parameter -> its description in the section `Args`, as a sentence."""
    section = re.search(r"^Args:\n(.*?)(?:\n\S|\Z)", docstring, re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w)", section[1] if section else ""):
        names, _, text = entry.strip().partition(": ")
        said = re.sub(r"\s+", " ", text).replace("`", "")
        found |= dict.fromkeys(names.split(", "), said[:1].upper() + said[1:])
    return found


@dataclass(frozen=True)
class ApiCall:
    """A call of a function of the API with the arguments and options that were typed."""

    reference: str
    values: Mapping[str, Any]
    """Parameter -> its value."""
    typed: Mapping[str, Sequence[str]]
    """Option that was given -> the words that give it: `{"--samples": ["--samples 8"]}`."""

    def words(self, but: Collection[str] = ()) -> list[str]:
        """Return the options that were given, as they are typed. `but`: without these."""
        return [word for flag, words in self.typed.items() if flag not in but for word in words]

    def __call__(self, **more: Any) -> Any:
        """Import the function and call it. `more`: parameters that are not typed."""
        module, _, name = self.reference.partition(":")
        return getattr(import_module(module), name)(**{**self.values, **more})


def of_api(
    reference: str, leave_out: Sequence[str] = (), loads: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of the API: `package.module:FUNCTION`.

    The decorated function gets an `ApiCall`, and its own options. Parameters in `leave_out` keep
    their defaults.

    A wrong config is refused before the command runs, and so before anything heavy is imported.
    That loads the code that the config names: not if `loads` is false.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command).parameters.values())[1:]
        known = {one.name: one for one in parameters_of(reference)}
        made = {
            name: typed
            for name, one in known.items()
            if name not in leave_out and (typed := one.typed_as()) is not None
        }

        def run(**given: Any) -> None:
            values = {name: known[name].read(given[name]) for name in made}
            for name in ("config", "target") if loads else ():
                if name in values and known[name].annotation == "ConfigLike":
                    check_config(values[name], values["overrides"])
            command(_call(reference, values, given), **{one.name: given[one.name] for one in own})

        parameters = [*made.values(), *(one.replace(kind=one.KEYWORD_ONLY) for one in own)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorated


def _call(reference: str, values: Mapping[str, Any], given: Mapping[str, Any]) -> ApiCall:
    mine = [one for one in parameters_of(reference) if one.name in values]
    typed = {
        one.flag: _words(one.flag, given[one.name])
        for one in mine
        if one.is_option and str(values[one.name]) != str(one.default)
    }
    return ApiCall(reference, {one.name: values[one.name] for one in mine}, typed)


def _words(flag: str, value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [flag if one is True else f"{flag} {one}" for one in values]
