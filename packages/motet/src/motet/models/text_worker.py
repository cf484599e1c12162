"""The subprocess that runs untrusted chat templates, patterns and tokenizers on strings.

bounded_text.py starts it by its path. A request and a response are one line of JSON each. Once it
has imported what it needs, it locks itself: no file, no network, no process. It limits its own
memory; the parent process watches its computing time.
"""

import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

MEMORY = 4 << 30
"""Bytes; a tokenizer with a quarter of a million tokens takes half a GiB."""
PROCESSOR = 600
"""CPU seconds of its lifetime. A process whose parent was killed is watched by nobody, and this
ends it.
"""
MOST_TEXT = 16 << 20
"""Characters of a prompt. The longest contexts in use hold a third of that."""


MOST_SAID = 2000
"""Characters of a template's error message, which goes into every episode in which it fails."""


class TooLong(ValueError):
    """A prompt that is too long for any context."""


def main() -> None:
    for one in (
        signal.SIGINT,
        signal.SIGTERM,
    ):
        # These signals go to all processes of a job; the parent may have strings to finish.
        signal.signal(one, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries must not print into the responses
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import_all()
    lock()
    print("ready", file=answers)
    known: dict[str, Any] = {}
    for line in sys.stdin:
        print(json.dumps(answered(line, known)), file=answers)


def import_all() -> None:
    """Import everything that a request may need: after `lock`, no file can be read."""
    import jinja2.debug  # jinja imports this when a template fails
    import tokenizers  # noqa: F401

    with suppress(ImportError):  # earlier versions of transformers have no such parser
        import transformers.utils.chat_parsing  # noqa: F401

    time.tzset()  # a template may need the date, and the time zone is in a file
    ready = {
        "do": "render",
        "rows": [{"role": "user", "content": "x"}],
        "tokens": {},
        "answer": True,
        "date": None,
        "variables": {},
        "tools": [],
    }
    render(
        ready
        | {
            "template": "{% for m in messages %}{{ m.content | trim }}"
            "{{ strftime_now('%c') }}{% endfor %}"
        }
    )
    try:
        render(ready | {"template": "{{ raise_exception('ready') }}"})
    except jinja2.TemplateError:
        """Import what every failing template needs: the first failure imports it."""


def answered(line: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request: its result, or what failed and of which kind."""
    import jinja2

    try:
        return {"is": answer(json.loads(line), known)}
    except MemoryError:
        return {"failed": f"it needs more than {MEMORY >> 30} GiB of memory", "kind": "limit"}
    except TooLong as error:
        return {"failed": str(error), "kind": "limit"}
    except jinja2.TemplateError as error:
        return {"failed": str(error)[:MOST_SAID], "kind": "template"}
    except BaseException as error:  # noqa: BLE001 - a panic of Rust code is no Exception
        return {"failed": f"{type(error).__name__}: {error}"[:MOST_SAID], "kind": "other"}


def answer(asked: dict[str, Any], known: dict[str, Any]) -> Any:
    """Do what a request asks. `known` maps names to the tokenizers that earlier requests loaded."""
    from tokenizers import Tokenizer

    match asked["do"]:
        case "learn":
            made = Tokenizer.from_str(asked["tokenizer"])
            made.no_padding()
            made.no_truncation()
            made.encode_special_tokens = asked["split"]
            known[asked["name"]] = made
            return None
        case "render":
            return render(asked)
        case "encode":
            read = known[asked["name"]].encode(asked["text"], add_special_tokens=asked["special"])
            return {"ids": read.ids} | ({"spans": read.offsets} if asked["spans"] else {})
        case "parse":
            return parsed(asked)
        case "match":
            pattern = re.compile(asked["pattern"])
            return [name for name in asked["names"] if pattern.fullmatch(name)]
    raise AssertionError(asked["do"])


def render(asked: dict[str, Any]) -> str:
    from transformers.utils import chat_template_utils

    date = datetime.now() if asked["date"] is None else datetime.fromisoformat(asked["date"])
    # transformers passes no functions to a template; the compiled template is cached.
    compiled: Any = chat_template_utils._compile_jinja_template(asked["template"])
    compiled.globals["strftime_now"] = lambda form: date.strftime(form)
    # The result is a pair, which its annotation does not say.
    rendered: Sequence[Any] = chat_template_utils.render_jinja_template(
        [asked["rows"]],
        tools=asked["tools"] or None,
        chat_template=asked["template"],
        add_generation_prompt=asked["answer"],
        **asked["tokens"] | asked["variables"],
    )
    text: str = rendered[0][0]
    if len(text) > MOST_TEXT:
        raise TooLong(f"got a prompt of {len(text):,} characters; expected at most {MOST_TEXT:,}")
    return text


def parsed(asked: dict[str, Any]) -> dict[str, Any]:
    """Read a completion with a response template of transformers."""
    from transformers.utils.chat_parsing import parse_response

    # What the prompt has begun of the answer is not known here.
    message: dict[str, Any] = parse_response(
        asked["text"], asked["template"], prefix="", tools=asked["tools"]
    )
    return message


def lock() -> None:
    limit()
    from codejudge import seccomp

    try:
        seccomp.lock()
    except OSError:
        """This machine has no such filter: jinja's own sandbox and the limits remain."""


def limit() -> None:
    """Set the limits, or lower ones if the machine allows less."""
    most = (
        {resource.RLIMIT_AS: MEMORY, resource.RLIMIT_CPU: PROCESSOR}
        if sys.platform == "linux"
        else {}
    )
    for kind, count in {**most, resource.RLIMIT_CORE: 0}.items():
        allowed = [one for one in resource.getrlimit(kind) if one != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(count, *allowed),) * 2 if allowed else (count, count))


if __name__ == "__main__":
    main()
