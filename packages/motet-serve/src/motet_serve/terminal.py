"""A conversation with a team in the terminal, or over standard input."""

import sys
from collections.abc import Callable, Iterator

from motet.errors import ConfigError
from motet.safety.reading import keep_odd_bytes
from motet_serve.team import AgentMessage, TeamAnswer, Unanswered

FENCE = "```"
"""A line that begins and ends a text of several lines."""
Ask = Callable[[str, Callable[[AgentMessage], None]], TeamAnswer]
Write = Callable[[str], None]


def converse(ask: Ask, write: Write, complain: Write, *, show: bool, lines: Iterator[str]) -> int:
    """Answer each text of `lines` until they end. Return the number of texts without an answer.

    `show` also writes what the agents say, as it comes. A text that the team cannot read or answer
    gets an error, and the conversation goes on.
    """
    unanswered = 0

    def told(message: AgentMessage) -> None:
        if show:
            said = [message.text.rstrip(), *(f"calls {call}" for call in message.calls)]
            write(f"[{message.agent}, turn {message.turn + 1}] {' '.join(filter(None, said))}")

    for text in texts_of(lines):
        try:
            answer = ask(text, told)
        except (ConfigError, Unanswered) as error:
            unanswered += 1
            complain(str(error))
        else:
            write(f"[team] {answer.text.rstrip()}" if show else answer.text.rstrip())
    return unanswered


def texts_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield each line that is not empty. Lines between two fences are one text."""
    inside: list[str] | None = None
    for line in lines:
        said = line.rstrip("\r\n")
        if said.strip() == FENCE:
            if inside is None:
                inside = []
                continue
            text, inside = "\n".join(inside), None
            if text.strip():
                yield text
        elif inside is not None:
            inside.append(said)
        elif said.strip():
            yield said
    if inside is not None and "\n".join(inside).strip():
        yield "\n".join(inside)


def typed_lines(prompt: str) -> Iterator[str]:
    """Yield the lines of standard input until Ctrl-D or Ctrl-C. A terminal gets a prompt.

    Raises: ConfigError if there is no standard input.
    """
    if sys.stdin is None:
        raise ConfigError("standard input is closed; expected texts, one a line")
    asks = prompt if sys.stdin.isatty() else ""
    keep_odd_bytes(sys.stdin)
    if asks:
        print("Type a question. Ctrl-D ends the conversation.")
    while True:
        try:
            line = input(asks)
        except (EOFError, KeyboardInterrupt):
            if asks:
                print()
            return
        yield line
