"""The process in which a stranger's chat template, patterns and tokenizer work on texts; bounded_text.py starts it by its path.

A question and an answer are each a line of JSON. It is locked once it has imported what it needs: no file, no network,
no process. Its memory is limited here; how long it computes, whoever asks watches.
"""

import json
import os
import re
import resource
import signal
import sys
import time
from typing import Any

MEMORY = 4 << 30
"""Bytes; a tokenizer of a quarter of a million tokens takes half of one."""
PROCESSOR = 600
"""Seconds of a processor in all its life: one that nobody watches any more, because who did was killed, ends too."""
MOST_TEXT = 16 << 20
"""Characters of a prompt. The longest contexts in use hold a third of that."""


MOST_SAID = 2000
"""Characters of what a template says when it fails, which is written into every episode that it fails in."""


class TooLong(ValueError):
    """A prompt that no context holds."""


def main() -> None:
    for one in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a job; who asks may have texts to finish
        signal.signal(one, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import jinja2.debug  # which jinja imports when a template fails
    from tokenizers import Tokenizer
    from transformers.utils.chat_template_utils import render_jinja_template

    known: dict[str, Any] = {}

    def render(asked: dict[str, Any]) -> str:
        rendered, _ = render_jinja_template(
            [asked["rows"]], chat_template=asked["template"], add_generation_prompt=True, **asked["tokens"]
        )
        text: str = rendered[0]
        if len(text) > MOST_TEXT:
            raise TooLong(f"a prompt of {len(text):,} characters; expected at most {MOST_TEXT:,}")
        return text

    def answer(asked: dict[str, Any]) -> Any:
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
                return known[asked["name"]].encode(asked["text"], add_special_tokens=asked["special"]).ids
            case "match":
                pattern = re.compile(asked["pattern"])
                return [name for name in asked["names"] if pattern.fullmatch(name)]
        raise AssertionError(asked["do"])

    time.tzset()  # a template may ask for the date, and the zone is in a file
    ready = {"do": "render", "rows": [{"role": "user", "content": "x"}], "tokens": {}}
    render(ready | {"template": "{% for m in messages %}{{ m.content | trim }}{{ strftime_now('%c') }}{% endfor %}"})
    try:
        render(ready | {"template": "{{ raise_exception('ready') }}"})
    except jinja2.TemplateError:
        """The first failure imports what all of them need."""
    lock()
    print("ready", file=answers)
    for line in sys.stdin:
        try:
            said: dict[str, Any] = {"is": answer(json.loads(line))}
        except MemoryError:
            said = {"failed": f"it needs more than {MEMORY >> 30} GiB of memory", "kind": "limit"}
        except TooLong as error:
            said = {"failed": str(error), "kind": "limit"}
        except jinja2.TemplateError as error:
            said = {"failed": str(error)[:MOST_SAID], "kind": "template"}
        except BaseException as error:  # noqa: BLE001 - a panic of the tokenizer's library is no Exception
            said = {"failed": f"{type(error).__name__}: {error}"[:MOST_SAID], "kind": "other"}
        print(json.dumps(said), file=answers)


def lock() -> None:
    limit()
    from motet.sandbox import seccomp

    try:
        seccomp.lock()
    except OSError:
        """No such filter on this machine: jinja's own sandbox and the limits are what is left."""


def limit() -> None:
    """Of what the machine allows, which may be less already, no more than this."""
    most = {resource.RLIMIT_AS: MEMORY, resource.RLIMIT_CPU: PROCESSOR} if sys.platform == "linux" else {}
    for kind, count in {**most, resource.RLIMIT_CORE: 0}.items():
        allowed = [one for one in resource.getrlimit(kind) if one != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(count, *allowed),) * 2 if allowed else (count, count))


if __name__ == "__main__":
    main()
