"""Prompts of the reviewer and the fixer."""

from codejudge.suite import Suite, Verdict
from motet_tasks.coding.bugs import Bug

_REVIEW = """\
A function has a bug: it does not do what is asked for. Find it. What is asked for:

```python
{text}
```

The faulty function, its lines numbered:

```
{numbered}
```

{failures}Say in a sentence or two which line is wrong and what is wrong with it, \
beginning with its number: Line ... \
A partner who reads your review repairs the function; do not write it yourself."""
_FIX = """\
A function has a bug: it does not do what is asked for. Repair it.{text}

The faulty function:

```python
{program}
```

{failures}{review}{answer}"""
_ANSWER = """\
Answer with Python code only: the whole corrected function `{name}`, and the imports that it \
needs. Change no more than you must. No tests, no examples, no explanations."""


def numbered(program: str) -> str:
    """Return the program with a number before each line."""
    lines = program.splitlines()
    width = len(str(len(lines)))
    return "\n".join(f"{number:{width}} | {line}" for number, line in enumerate(lines, start=1))


def failures_of(shown: Suite, verdict: Verdict) -> str:
    """List the shown tests that the faulty program fails; "" if there are none."""
    texts = {case.name: case.text for case in shown.cases}
    failed = [
        f"- {texts[case.name]}"
        + (f"  ({case.kind}{f': {case.message}' if case.message else ''})" if case.kind else "")
        for case in verdict.cases
        if case.status != "passed"
    ]
    return "\n".join(["It fails here:", *failed]) if failed else ""


def review_prompt(bug: Bug, failures: str) -> str:
    return _REVIEW.format(
        text=bug.problem.text, numbered=numbered(bug.program), failures=_apart(failures)
    )


def fix_prompt(bug: Bug, *, with_task: bool, failures: str = "", review: str | None = None) -> str:
    """Build the fixer's prompt. `review` is None for an agent that works alone.

    If the prompt does not contain the task, it contains at least the prelude of the problem.
    """
    problem = bug.problem
    text = ""
    if with_task:
        text = f" What is asked for:\n\n```python\n{problem.text}\n```"
    elif problem.prelude:
        text = f" It is used with this:\n\n```python\n{problem.prelude}\n```"
    return _FIX.format(
        text=text,
        program=bug.program,
        failures=_apart(failures),
        review="" if review is None else _apart(reviewed(review)),
        answer=_ANSWER.format(name=problem.entry_point),
    )


def reviewed(review: str) -> str:
    return f"A partner has reviewed it:\n{review.strip() or '(nothing)'}"


def repaired(code: str) -> str:
    return f"After your review your partner wrote:\n\n```python\n{code.strip() or '(nothing)'}\n```"


def _apart(text: str) -> str:
    return f"{text}\n\n" if text else ""
