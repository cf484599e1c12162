"""What agents that write a program together are told first: as a chat, or as raw text that a base model goes on from."""

from collections.abc import Mapping, Sequence
from string import Formatter
from types import MappingProxyType
from typing import Literal, TypeAlias

from pydantic import field_validator

from motet.environments.coding.problems import Problem
from motet.settings import Settings

Style = Literal["chat", "raw"]
Role: TypeAlias = Literal["helper", "main", "alone"]

_PROBLEM = """

```python
{problem}
```

"""
_ONLY = """

Answer with Python code only: the function `{function}` and the imports that it needs. No tests, no examples, no explanations."""
CHAT: Mapping[str, str] = MappingProxyType(
    {
        "helper": "Write a helper function for the programming problem below. At the same time {partners}; nobody sees what the "
        f"others write.{_PROBLEM}"
        "Your function begins with `{head}`. It gets the arguments of `{entry_point}` and returns something that makes the "
        f"rest of the problem easier. Do not write `{{entry_point}}` itself.{_ONLY}",
        "main": "Write the function `{entry_point}` of the programming problem below. At the same time {partners}; nobody sees "
        f"what the others write.{_PROBLEM}"
        "A helper gets the arguments of `{entry_point}` and returns something that is useful for the problem. Call {calls} and "
        f"go on from what comes back. Do not define a function of that name yourself.{_ONLY}",
        "alone": f"Solve the programming problem below.{_PROBLEM.rstrip()}{_ONLY}",
    }
)
RAW: Mapping[str, str] = MappingProxyType(
    {
        "helper": """\
{problem}
    ...


# A helper for {entry_point}: it gets the same arguments and returns something that makes the rest of the problem easier.
{head}
""",
        "main": """\
# There is also {calls}: it gets the arguments of {entry_point} and returns something that is useful for the problem.
# {entry_point} calls it and goes on from what comes back.

{problem}
""",
        "alone": "{problem}\n",
    }
)
_FIELDS = ("problem", "entry_point", "function", "head", "partners", "calls")


class Wording(Settings):
    """What agents are told first, in words of one's own: {problem} (its text), {entry_point}, {function} (the name of what the
    agent writes), {head} (its first line), {partners} (who writes what besides), {calls} (how helpers are called)."""

    helper: str | None = None
    """To a helper; the environment's own words unless set."""
    main: str | None = None
    """To whoever writes the problem's function; the environment's own words unless set."""
    alone: str | None = None
    """To an agent without helpers; the environment's own words unless set."""

    @field_validator("helper", "main", "alone")
    @classmethod
    def _known_fields(cls, template: str | None) -> str | None:
        try:
            parts = [] if template is None else list(Formatter().parse(template))
        except ValueError as error:
            raise ValueError(
                f"got {template!r}: {error}; write {{{{ and }}}} for braces that are meant as such"
            ) from error
        fields = [
            f"{field}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
            for _, field, form, conversion in parts
            if field is not None
        ]
        unknown = [field for field in fields if field not in _FIELDS]
        if unknown:
            expected = ", ".join(f"{{{field}}}" for field in _FIELDS)
            raise ValueError(f"got {{{unknown[0]}}}, expected one of {expected}; {{{{ and }}}} are braces")
        return template

    def of(self, style: Style, role: Role) -> str:
        own = {"helper": self.helper, "main": self.main, "alone": self.alone}[role]
        return own if own is not None else (CHAT if style == "chat" else RAW)[role]


def head_of(problem: Problem, function: str) -> str:
    """The first line of what an agent writes: the problem's own, or a helper's with the same parameters."""
    return problem.signature if function == problem.entry_point else f"def {function}({problem.parameters}):"


def first_prompt(problem: Problem, function: str, helpers: Sequence[str], wording: Wording, style: Style) -> str:
    """What whoever writes `function` is told first, where `helpers` write those and somebody else the problem's own."""
    role: Role = "alone" if not helpers else "main" if function == problem.entry_point else "helper"
    quote = "`" if style == "chat" else ""
    others = [name for name in (*helpers, problem.entry_point) if name != function]
    named = [f"{quote}{name}{quote}" for name in others]
    return wording.of(style, role).format(
        problem=problem.text,
        entry_point=problem.entry_point,
        function=function,
        head=head_of(problem, function),
        partners=_partners(named),
        calls=" and ".join(f"{quote}{name}({problem.arguments}){quote}" for name in helpers),
    )


def _partners(names: Sequence[str]) -> str:
    match names:
        case []:
            return "nobody else writes anything"
        case [name]:
            return f"a partner writes {name}"
    return f"partners write {' and '.join(names)}"


def next_prompt(told: str, head: str, style: Style) -> str:
    """What is new at a later turn. Raw text goes on as a program: what an agent is told is a comment."""
    if style == "chat":
        return told
    return "\n".join(f"# {line}".rstrip() for line in told.splitlines()) + f"\n\n{head}\n"
