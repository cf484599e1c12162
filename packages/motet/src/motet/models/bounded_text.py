"""Run untrusted code on strings: a chat template, the patterns of a tokenizer or of an adapter.

Each of these may run forever or fill the memory for some string, and this process could not
interrupt it. So they run in a subprocess (text_worker.py) without files and network, which is
killed at its limits.
"""

import atexit
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import SamplerFault

SECONDS = 5.0
"""CPU seconds for one string; a prompt of a million characters takes one."""
TRIES = 3
"""How many strings may drive a template, a tokenizer or a pattern to its limits; then we stop using
it.
"""
LONG = 100_000
"""Characters. A longer string may hit a limit because of its length alone, so it does not count for
TRIES.
"""
START_SECONDS = 120.0
LEARN_SECONDS = 60.0
"""CPU seconds to load one tokenizer; one with a quarter of a million tokens takes two."""
_PATIENCE = 12
"""The wall-clock limit is this many times the CPU limit: other processes use the machine too."""
_MOST_ANSWER = 256 << 20
_MOST_LEARNT = 128 << 20
"""Characters of all tokenizers that one process holds; in its memory they take about ten times as
much.
"""
_RENEWED = 300.0
"""CPU seconds after which we replace the process, well before its own limit
(text_worker.PROCESSOR).
"""
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")


class TextLimit(SamplerFault):
    """A string took more time or memory than any string may."""

    cause = "text_limit"


class TemplateRefused(SamplerFault):
    """The chat template rejects this chat."""

    cause = "bad_prompt"


class TokenizerFault(SamplerFault):
    """The template, the tokenizer or the pattern itself failed."""

    cause = "tokenizer"


class BadPrompt(SamplerFault):
    """A prompt that the model cannot read: without tokens, with a lone surrogate, with a token that
    has no embedding, or one that the chat template rejects."""

    cause = "bad_prompt"


def limit_tokens(tokenizer: PreTrainedTokenizerBase, embeddings: int) -> None:
    """Reject strings with tokens that the model has no embedding for, from now on.

    They raise BadPrompt and do not reach the model.
    """
    _EMBEDDINGS[tokenizer] = embeddings


def set_date(tokenizer: PreTrainedTokenizerBase, date: datetime) -> None:
    """Let the chat template of `tokenizer` read this date and time from now on."""
    _DATES[tokenizer] = date


_DATES: WeakKeyDictionary[PreTrainedTokenizerBase, datetime] = WeakKeyDictionary()
_EMBEDDINGS: WeakKeyDictionary[PreTrainedTokenizerBase, int] = WeakKeyDictionary()


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool = False) -> list[int]:
    """Return what `tokenizer(text, add_special_tokens=special)["input_ids"]` returns.

    Raises: SamplerFault.
    """
    read = _WORKER.encode(tokenizer, text, special)
    ids = tokenizer(text, add_special_tokens=special)["input_ids"] if read is None else read["ids"]
    beyond = _EMBEDDINGS.get(tokenizer)
    if beyond is not None and max(ids, default=0) >= beyond:
        spelt = tokenizer.convert_ids_to_tokens(max(ids))
        raise BadPrompt(
            f"a text contains {spelt!r}, a token of the tokenizer without an embedding in the model"
        )
    return list(ids)


def token_spans(tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[int, int, int]]:
    """Return each token of `text` with the places of the characters that it was read from.

    The tokenizer is a fast one. Raises: SamplerFault.
    """
    read = _WORKER.encode(tokenizer, text, special=False, spans=True)
    if read is None:
        own = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        read = {"ids": own["input_ids"], "spans": own["offset_mapping"]}
    return [(token, *span) for token, span in zip(read["ids"], read["spans"], strict=True)]


def chat_text(
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any] = MappingProxyType({}),
    *,
    answer: bool = True,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render a chat with the tokenizer's template and variables for it; with `answer`, also the
    header of an answer. `tools` are as in OpenAI's API.

    Raises: TextLimit, TemplateRefused, TokenizerFault.
    """
    asked = {
        "do": "render", "template": template_of(tokenizer, tools), "rows": list(map(dict, rows)),
        "tokens": tokenizer.special_tokens_map, "answer": answer,
        "date": date.isoformat() if (date := _DATES.get(tokenizer)) is not None else None,
        "variables": dict(variables), "tools": list(tools),
    }  # fmt: skip
    return str(_WORKER.ask(asked, "the model's chat template"))


def template_of(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Any] = ()) -> str:
    """Return the chat template. Some tokenizers have another one for chats with tools."""
    return str(tokenizer.get_chat_template(tools=list(tools) or None))


def parsed_response(
    template: Mapping[str, Any], text: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Read a completion with a response template of transformers: content, tool_calls and so on.

    Raises: TextLimit, TokenizerFault.
    """
    asked = {
        "do": "parse", "template": dict(template), "text": text, "tools": list(tools),
    }  # fmt: skip
    found = _WORKER.ask(asked, "the tokenizer's response template")
    if not isinstance(found, dict):
        raise TokenizerFault("the tokenizer's response template gives no message")
    return found


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that the regular expression `pattern` matches as a whole.

    Raises: TextLimit, TokenizerFault.
    """
    return list(
        _WORKER.ask({"do": "match", "pattern": pattern, "names": list(names)}, "the pattern")
    )


class _TextWorker:
    """The subprocess. It is started at the first request, and again after it has ended."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._learnt: dict[str, int] = {}
        self._over: Counter[str] = Counter()
        self._described: WeakKeyDictionary[PreTrainedTokenizerBase, dict[str, Any] | None] = (
            WeakKeyDictionary()
        )

    def encode(
        self, tokenizer: PreTrainedTokenizerBase, text: str, special: bool, spans: bool = False
    ) -> dict[str, Any] | None:
        """Return the token ids, and with `spans` the places of their characters; None for a
        tokenizer without patterns, which may run in this process.
        """
        if tokenizer not in self._described:
            self._described[tokenizer] = _described(tokenizer)
        described = self._described[tokenizer]
        if described is None:
            return None
        name = described["name"]
        with self._turn:
            self._renew()
            if name not in self._learnt:
                size = len(described["tokenizer"])
                if self._learnt and sum(self._learnt.values()) + size > _MOST_LEARNT:
                    self.close()
                self._exchange(described, "the tokenizer", LEARN_SECONDS)
                self._learnt[name] = size
            asked = {
                "do": "encode", "name": name, "text": text, "special": special, "spans": spans,
            }  # fmt: skip
            return dict(self._exchange(asked, "the tokenizer", SECONDS))

    def ask(self, asked: Mapping[str, Any], what: str) -> Any:
        with self._turn:
            self._renew()
            return self._exchange(asked, what, SECONDS)

    def _renew(self) -> None:
        """Close a process that is old or has ended.

        If it ended while it was idle, no string is to blame.
        """
        process = self._process
        if process is None:
            return
        old = sys.platform == "linux" and _processor_seconds(process.pid) > _RENEWED
        if old or process.poll() is not None:
            self.close()

    def _exchange(self, asked: Mapping[str, Any], what: str, seconds: float) -> Any:
        blamed = next(str(asked[key]) for key in ("template", "pattern", "name") if key in asked)
        if self._over[blamed] >= TRIES:
            raise TextLimit(
                f"{what} reached its limits for {TRIES} texts, so it is not called again"
            )
        try:
            process = self._process = self._process or self._started()
            line = json.dumps(asked).encode() + b"\n"
            said = json.loads(self._answered(process, line, what, seconds))
        except TextLimit:
            self._over[blamed] += _characters(asked) <= LONG
            self.close()
            raise
        except BaseException:
            # The process may still answer the interrupted request. Close it, so that this answer is
            # not read as that of the next request.
            self.close()
            raise
        if "failed" not in said:
            return said["is"]
        if said["kind"] == "template":
            raise TemplateRefused(said["failed"])
        kind = TextLimit if said["kind"] == "limit" else TokenizerFault
        raise kind(f"{what} failed for a text: {said['failed']}")

    def _answered(
        self, process: "subprocess.Popen[bytes]", line: bytes, what: str, seconds: float
    ) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        used, until = _processor_seconds(process.pid), time.monotonic() + seconds * _PATIENCE
        answer = bytearray()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            while not answer.endswith(b"\n"):
                if select.select([process.stdout], [], [], 0.25)[0]:
                    part = os.read(process.stdout.fileno(), 1 << 20)
                    if not part:
                        raise BrokenPipeError
                    answer += part
                elif _processor_seconds(process.pid) - used > seconds or time.monotonic() > until:
                    raise TextLimit(
                        f"{what} takes more than {seconds:g} s for a text; expected far less than "
                        "one second"
                    )
                if len(answer) > _MOST_ANSWER:
                    raise TextLimit(f"{what} makes more than {_MOST_ANSWER >> 20} MiB from a text")
        except BrokenPipeError as error:
            raise TextLimit(
                f"{what} ended its process while working on a text, because of its memory limit "
                "or a crash"
            ) from error
        return bytes(answer)

    def _started(self) -> "subprocess.Popen[bytes]":
        place = Path(__file__)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-P", str(place.with_name("text_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent only, which may finish rollouts
            env=environment
            | {"PYTHONPATH": os.pathsep.join([str(place.parents[2]), *filter(None, sys.path)])},
        )
        assert process.stdout is not None
        in_time = select.select([process.stdout], [], [], START_SECONDS)[0]
        if not in_time or process.stdout.readline() != b"ready\n":
            process.kill()
            code = process.wait()
            why = (
                f"ended with exit code {code} at its start"
                if in_time
                else f"was not ready after {START_SECONDS:g} s"
            )
            raise TokenizerFault(
                f"the process for chat templates and tokenizers {why}: check that enough memory "
                f"is free and that this user may run {sys.executable} -P "
                f"{place.with_name('text_worker.py')}"
            )
        return process

    def close(self) -> None:
        process, self._process = self._process, None
        self._learnt.clear()
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # unsent data for a dead process
                    pipe.close()  # type: ignore[union-attr]


def _characters(asked: Mapping[str, Any]) -> int:
    """Count the characters of the strings that a template or a tokenizer works on."""
    given = [asked.get("text", ""), asked.get("rows", ()), asked.get("tools", ())]
    return sum(len(text) for one in given for text in strings_in(one))


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in a nested value, keys of mappings among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key)
            yield from strings_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings_in(one)


def _described(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """Return the request that loads a tokenizer in the subprocess; None for one without own
    patterns.

    Tokenizers with the same content have the same name.
    """
    if not tokenizer.is_fast:
        return None  # its patterns belong to transformers
    written = tokenizer.backend_tokenizer.to_str()
    said = json.loads(written)
    before = said["pre_tokenizer"] or {}
    if (
        said["normalizer"] is None
        and before.get("type") == "ByteLevel"
        and said["model"].get("type") == "BPE"
    ):
        return None  # byte-level BPE with the library's own pattern
    split = bool(tokenizer.split_special_tokens)
    name = hashlib.sha256(f"{split} {written}".encode()).hexdigest()
    return {"do": "learn", "name": name, "tokenizer": written, "split": split}


def _processor_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used.

    Linux derives the id of the process's CPU clock from its pid. Elsewhere, return the wall clock.
    """
    if sys.platform != "linux":
        return time.monotonic()
    try:
        return time.clock_gettime(((~pid) << 3) | 2)  # clock_getcpuclockid(3)
    except OSError:
        return 0.0  # it has just ended; its pipe will tell


_WORKER = _TextWorker()
atexit.register(_WORKER.close)
# A forked child starts its own worker: two readers of one pipe would get each other's answers.
os.register_at_fork(after_in_child=_WORKER.__init__)  # type: ignore[misc]
