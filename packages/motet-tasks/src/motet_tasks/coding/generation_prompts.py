"""First prompts of agents that write a program together: as a chat, or as raw text for a base
model to continue."""

from collections.abc import Mapping, Sequence
from string import Formatter
from types import MappingProxyType
from typing import Literal, TypeAlias

from pydantic import field_validator

from motet.settings import Settings
from motet_tasks.coding.problems import CodingProblem

Style = Literal["chat", "raw"]
Role: TypeAlias = Literal["helper", "main", "alone"]

_PROBLEM = """

```python
{problem}
```

"""
_ONLY = """

Answer with Python code only: the function `{function}` and the imports that it needs. \
No tests, no examples, no explanations."""
CHAT: Mapping[str, str] = MappingProxyType(
    {
        "helper": (
            "Write a helper function for the programming problem below. At the same time "
            f"{{partners}}; nobody sees what the others write.{_PROBLEM}"
            "Your function begins with `{head}`. It gets the arguments of `{entry_point}` and "
            "returns something that makes the rest of the problem easier. "
            f"Do not write `{{entry_point}}` itself.{_ONLY}"
        ),
        "main": (
            "Write the function `{entry_point}` of the programming problem below. At the same time "
            f"{{partners}}; nobody sees what the others write.{_PROBLEM}"
            "A helper gets the arguments of `{entry_point}` and returns something that is useful "
            "for the problem. Call {calls} and go on from what comes back. "
            f"Do not define a function of that name yourself.{_ONLY}"
        ),
        "alone": f"Solve the programming problem below.{_PROBLEM.rstrip()}{_ONLY}",
    }
)
RAW: Mapping[str, str] = MappingProxyType(
    {
        "helper": """\
{problem}
    ...


# A helper for {entry_point}: it gets the same arguments and returns something that makes the rest \
of the problem easier.
{head}
""",
        "main": """\
# There is also {calls}: it gets the arguments of {entry_point} and returns something that is \
useful for the problem.
# {entry_point} calls it and goes on from what comes back.

{problem}
""",
        "alone": "{problem}\n",
    }
)
_FIELDS = ("problem", "entry_point", "function", "head", "partners", "calls")


class Wording(Settings):
    """Custom templates for the first prompts.

    Fields: {problem} (its text), {entry_point}, {function} (the name of the function that the agent
    writes), {head} (its first line), {partners} (what the other agents write), {calls} (how to call
    the helpers).
    """

    helper: str | None = None
    """Prompt of a helper. If unset, the built-in template is used."""
    main: str | None = None
    """Prompt of the agent that writes the problem's function. If unset, the built-in template."""
    alone: str | None = None
    """Prompt of an agent without helpers. If unset, the built-in template is used."""

    @field_validator("helper", "main", "alone")
    @classmethod
    def _known_fields(cls, template: str | None) -> str | None:
        try:
            parts = [] if template is None else list(Formatter().parse(template))
        except ValueError as error:
            raise ValueError(
                f"got {template!r}: {error}; write {{{{ and }}}} for literal braces"
            ) from error
        fields = [
            f"{field}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
            for _, field, form, conversion in parts
            if field is not None
        ]
        unknown = [field for field in fields if field not in _FIELDS]
        if unknown:
            expected = ", ".join(f"{{{field}}}" for field in _FIELDS)
            raise ValueError(
                f"got {{{unknown[0]}}}, expected one of {expected}; write {{{{ and }}}} for "
                "literal braces"
            )
        return template

    def of(self, style: Style, role: Role) -> str:
        own = {"helper": self.helper, "main": self.main, "alone": self.alone}[role]
        return own if own is not None else (CHAT if style == "chat" else RAW)[role]


def head_of(problem: CodingProblem, function: str) -> str:
    """Return the first line of the agent's function: the problem's own signature, or a helper's
    with the same parameters."""
    return (
        problem.signature
        if function == problem.entry_point
        else f"def {function}({problem.parameters}):"
    )


def first_prompt(
    problem: CodingProblem, function: str, helpers: Sequence[str], wording: Wording, style: Style
) -> str:
    """Return the first prompt of the agent that writes `function`. `helpers` are the names of all
    helper functions."""
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


def next_prompt(feedback: str, head: str, style: Style) -> str:
    """Return what is new in a later turn. In raw text, feedback is a comment in the program."""
    if style == "chat":
        return feedback
    return "\n".join(f"# {line}".rstrip() for line in feedback.splitlines()) + f"\n\n{head}\n"
