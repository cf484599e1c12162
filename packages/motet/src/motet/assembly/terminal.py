"""Feedback from a person at the terminal, as a service for environments."""

import asyncio
import select
import sys
import threading
from collections.abc import Callable

from motet.errors import EnvironmentFault
from motet.safety.visible import visible


class PersonLeft(EnvironmentFault):
    """The input at the terminal has ended."""

    cause = "person_left"


class Terminal:
    """Reads lines of feedback from a person, with `read(text)` if given.

    Only one question is asked at a time.
    """

    def __init__(self, read: Callable[[str], str] | None = None) -> None:
        self._read = read or self._typed
        self._turn = threading.Lock()
        self._given_up = threading.Event()

    async def ask(self, question: str) -> str:
        """Return all lines up to an empty one or the end of the input.

        Raises: PersonLeft if the input ends before the first line.
        """
        try:
            return await asyncio.to_thread(self._lines, question)
        except asyncio.CancelledError:
            self._given_up.set()
            raise

    def _lines(self, question: str) -> str:
        lines: list[str] = []
        question = visible(question)
        with self._turn:
            try:
                while line := self._read(f"\n{question}\n> " if not lines else "> ").strip():
                    lines.append(line)
            except EOFError as error:
                if not lines:
                    raise PersonLeft(
                        "the input ended while feedback was expected; expected a line, or an "
                        "empty line: stay at the terminal, or choose another feedback.mode"
                    ) from error
        return "\n".join(lines)

    def _typed(self, prompt: str) -> str:
        """Works like `input`, but can be cancelled while it waits.

        `input` at a terminal returns only at the Enter key, so Ctrl-C would seem to hang.
        """
        if not someone_is_there():
            return input(prompt)
        print(prompt, end="", flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            if self._given_up.is_set():
                raise EOFError
        return input()


def someone_is_there() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
