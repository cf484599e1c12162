"""Texts to tokens and names through what a stranger wrote: a chat template, a tokenizer's patterns, an adapter's pattern.

Each of these can compute for ever or fill the memory at any text, and nothing can break that off in this process.
So they work in another one (text_worker.py), which has no files and no network, and is killed at its limits.
"""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import SamplerFault

SECONDS = 5.0
"""Of a processor, for one text; a prompt of a million characters takes one."""
TRIES = 3
"""Texts at which a template, a tokenizer or a pattern may come to its limits before it is given up."""
LONG = 100_000
"""Characters. A longer text may need that much by its length alone, so nothing is given up for it."""
START_SECONDS = 120.0
_PATIENCE = 12
"""By the clock it may take so many times as long: others use the machine too."""
_MOST_ANSWER = 256 << 20
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")


class TextLimit(SamplerFault):
    """A text took more time or memory than any text may."""

    cause = "text_limit"


class TemplateRefused(SamplerFault):
    """The chat template says no to this chat."""

    cause = "bad_prompt"


class TextFailed(SamplerFault):
    """The template, the tokenizer or the pattern itself failed."""

    cause = "tokenizer"


class NoEmbedding(SamplerFault):
    """A text has a token that the model cannot read."""

    cause = "bad_prompt"


_EMBEDDINGS: WeakKeyDictionary[PreTrainedTokenizerBase, int] = WeakKeyDictionary()


def limit_tokens(tokenizer: PreTrainedTokenizerBase, embeddings: int) -> None:
    """From now on a text with a token beyond the model's embeddings is a fault."""
    _EMBEDDINGS[tokenizer] = embeddings


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool = False) -> list[int]:
    """As `tokenizer(text, add_special_tokens=special)["input_ids"]`. Raises: SamplerFault."""
    name = _WORKER.knows(tokenizer)
    if name is None:
        ids = list(tokenizer(text, add_special_tokens=special)["input_ids"])
    else:
        asked = {"do": "encode", "name": name, "text": text, "special": special}
        ids = list(_WORKER.ask(asked, "the tokenizer"))
    last, most = max(ids, default=-1), _EMBEDDINGS.get(tokenizer)
    if most is not None and last >= most:
        raise NoEmbedding(
            f"a text has the token {tokenizer.convert_ids_to_tokens(last)!r} ({last:,}), and the model has embeddings of "
            f"{most:,} tokens; expected a text without it"
        )
    return ids


def chat_text(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, str]]) -> str:
    """A chat as the tokenizer's template writes it, ready for an answer. Raises: TextLimit, TemplateRefused, TextFailed."""
    asked = {
        "do": "render", "template": tokenizer.get_chat_template(), "rows": list(map(dict, rows)),
        "tokens": tokenizer.special_tokens_map,
    }  # fmt: skip
    return str(_WORKER.ask(asked, "the model's chat template"))


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that all of `pattern`, a regular expression, fits. Raises: TextLimit, TextFailed."""
    return list(_WORKER.ask({"do": "match", "pattern": pattern, "names": list(names)}, "the pattern"))


class _Worker:
    """The process, started when it is first asked, and again after it was killed."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._learnt: set[str] = set()
        self._over: Counter[str] = Counter()
        self._numbers = count()
        self._names: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[str, str] | None] = WeakKeyDictionary()

    def knows(self, tokenizer: PreTrainedTokenizerBase) -> str | None:
        """The name of a tokenizer in the process; None for one that has no patterns, which may work here."""
        if tokenizer not in self._names:
            self._names[tokenizer] = self._described(tokenizer)
        found = self._names[tokenizer]
        if found is None:
            return None
        name, written = found
        with self._turn:
            if self._process is None or name not in self._learnt:
                split = bool(tokenizer.split_special_tokens)
                self._exchange({"do": "learn", "name": name, "tokenizer": written, "split": split}, "the tokenizer")
                self._learnt.add(name)
        return name

    def _described(self, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str] | None:
        if not tokenizer.is_fast:
            return None  # its patterns are those of transformers
        written = tokenizer.backend_tokenizer.to_str()
        said = json.loads(written)
        before = said["pre_tokenizer"] or {}
        if said["normalizer"] is None and before.get("type") == "ByteLevel" and said["model"].get("type") == "BPE":
            return None  # bytes and their merges, by a pattern of the library
        return f"tokenizer {next(self._numbers)}", written

    def ask(self, asked: Mapping[str, Any], what: str) -> Any:
        with self._turn:
            return self._exchange(asked, what)

    def _exchange(self, asked: Mapping[str, Any], what: str) -> Any:
        blamed = next(str(asked[key]) for key in ("template", "pattern", "name") if key in asked)
        if self._over[blamed] >= TRIES:
            raise TextLimit(f"{what} came to its limits at {TRIES} texts, and is asked no more")
        try:
            process = self._process = self._process or self._started()
            line = json.dumps(asked).encode() + b"\n"
            said = json.loads(self._answered(process, line, what))
        except TextLimit:
            self._over[blamed] += _characters(asked) <= LONG
            self.close()
            raise
        except BaseException:  # whatever broke off a question, its answer must not be taken for the next one's
            self.close()
            raise
        if "failed" not in said:
            return said["is"]
        if said["kind"] == "template":
            raise TemplateRefused(said["failed"])
        kind = TextLimit if said["kind"] == "limit" else TextFailed
        raise kind(f"{what} failed at a text: {said['failed']}")

    def _answered(self, process: "subprocess.Popen[bytes]", line: bytes, what: str) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        used, until = _processor_seconds(process.pid), time.monotonic() + SECONDS * _PATIENCE
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
                elif _processor_seconds(process.pid) - used > SECONDS or time.monotonic() > until:
                    raise TextLimit(f"{what} takes more than {SECONDS:g} s at a text; expected far less than one")
                if len(answer) > _MOST_ANSWER:
                    raise TextLimit(f"{what} makes more than {_MOST_ANSWER >> 20} MiB of a text")
        except BrokenPipeError as error:
            raise TextLimit(
                f"{what} ended the process in which it worked on a text, by its memory or a fault"
            ) from error
        return bytes(answer)

    def _started(self) -> "subprocess.Popen[bytes]":
        place = Path(__file__)
        told = {name: os.environ[name] for name in _KEPT if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-P", str(place.with_name("text_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=told | {"PYTHONPATH": os.pathsep.join([str(place.parents[2]), *filter(None, sys.path)])},
        )
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], START_SECONDS)[0] or process.stdout.readline() != b"ready\n":
            process.kill()
            process.wait()
            raise TextFailed(
                f"the process for chat templates was not ready after {START_SECONDS:g} s: {sys.executable}"
            )
        return process

    def close(self) -> None:
        process, self._process = self._process, None
        self._learnt.clear()
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was not sent to a dead process
                    pipe.close()  # type: ignore[union-attr]


def _characters(asked: Mapping[str, Any]) -> int:
    """Of the texts that a template or a tokenizer is asked to work on."""
    contents = [content for row in asked.get("rows", ()) for content in row.values()]
    return sum(map(len, [asked.get("text", ""), *contents]))


def _processor_seconds(pid: int) -> float:
    """How long a process has computed: by its own clock, which Linux names after it. Else the wall clock has to do."""
    if sys.platform != "linux":
        return time.monotonic()
    try:
        return time.clock_gettime(((~pid) << 3) | 2)  # clock_getcpuclockid(3)
    except OSError:
        return 0.0  # it has just ended, and its pipe says so


_WORKER = _Worker()
atexit.register(_WORKER.close)
