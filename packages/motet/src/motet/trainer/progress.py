"""Progress display of a run.

On a terminal, the lines below the bar show the last completion of each agent. Without a terminal
there is at least one line a minute: a thread prints what is being waited for if nothing else was
printed.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import Literal, NamedTuple, Self

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from motet.core import Episode
from motet.safety.visible import Console, on_one_line

SILENCE_SECONDS = 60.0
"""Without a terminal, the longest time without a line."""
_LOOK_SECONDS = 5.0
_MOST_CHARACTERS = 400
"""Of a completion; no terminal is wider."""


class _Interrupted(NamedTuple):
    """A stage before another one began."""

    done: int
    first: int
    """The steps that were done when it began."""
    seconds: float
    tokens: int


class BarWithCompletions(Bar):
    """Progress bars, and lines of text below them."""

    lines: tuple[Text, ...] = ()

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        yield from self.lines


class Progress:
    """Shows one bar per stage on a terminal, aligned lines elsewhere, or nothing.

    It writes to stderr, because stdout is for results.

    with Progress() as progress:
        progress.stage("train", total=60)
        progress.show(1, {"reward": 0.31, "success": 0.25}, tokens=5120)
    """

    def __init__(
        self,
        mode: Literal["auto", "silent"] = "auto",
        *,
        console: Console | None = None,
        every: int = 10,
        clock: Callable[[], float] = monotonic,
        log_completions: bool = True,
    ) -> None:
        """Create the display.

        Args:
            every: steps per line if there is no terminal. It is increased for long stages, so that
                a stage prints about six lines at most, but slow steps are not silent for a minute.
            log_completions: whether `completions` shows anything.
        """
        self._console = Console(stderr=True) if console is None else console
        self._every, self._clock, self._silent = every, clock, mode == "silent"
        self._said, self._what = clock(), ""
        self._over = threading.Event()
        columns = (
            TextColumn("{task.description:<9}", markup=False),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
        )
        self._log_completions = log_completions
        self._bar = BarWithCompletions(
            *columns, console=self._console, disable=self._silent or not self._console.is_terminal
        )
        self._tasks: dict[str, TaskID] = {}
        self._interrupted: dict[str, _Interrupted] = {}
        self._name, self._done, self._first, self._since, self._tokens = "", 0, 0, clock(), 0
        self.stage("", 0)

    def __enter__(self) -> Self:
        self._bar.start()
        if not self._silent and not self._console.is_terminal:
            threading.Thread(target=self._watch, name="progress", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._bar.lines = ()
        self._bar.stop()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.break_silence()

    def break_silence(self) -> None:
        """Print what is being waited for, if nothing was printed for a minute."""
        now = self._clock()
        if now - self._said < SILENCE_SECONDS:
            return
        count = f" {self._done}/{self._total}" if self._total else ""
        what = f"waiting for {self._what}" if self._what else "working"
        said = "  ".join((f"{self._name:<9}{count}", *self._figures, what))
        self._print(f"{said}, {_clock_face(now - self._since)} so far", now)

    def waiting(self, what: str) -> None:
        """Say what the run does now, for a line that is printed if it takes long."""
        self._what = what

    def _print(self, line: str, now: float) -> None:
        self._said = now
        self._console.print(line, soft_wrap=True)

    def stage(self, name: str, total: int, first: int = 0) -> None:
        """Start a stage of `total` steps, of which `first` are already done.

        They were done by the run that this one resumes, or before another stage interrupted this
        one. Then its clock and its tokens go on.
        """
        now = self._clock()
        self._interrupted[self._name] = _Interrupted(
            self._done, self._first, now - self._since, self._tokens
        )
        before = self._interrupted.pop(name, None)
        if before is None or not first or before.done != first:
            before = _Interrupted(first, first, 0.0, 0)
        self._name, self._total, self._done, self._what = name, total, first, ""
        self._figures: list[str] = []
        self._first, self._tokens = before.first, before.tokens
        self._since = now - before.seconds
        if name in self._tasks:
            self._bar.update(self._tasks[name], total=total, completed=first)
        else:
            self._tasks[name] = self._bar.add_task(
                name, total=total, completed=first, figures="", visible=bool(name)
            )
        self._task = self._tasks[name]

    def counter(self, name: str, total: int) -> Callable[[object], None]:
        """Start a stage and return a function; each call of it counts one more step."""
        self.stage(name, total)
        done = count(1)
        return lambda _: self.show(next(done), {})

    def show(self, done: int, figures: Mapping[str, float], tokens: int = 0) -> None:
        """Show that `done` steps of the stage are done.

        `tokens` were sampled or trained since the last call.
        """
        self._done = done
        if self._silent:
            return
        self._tokens += tokens
        now = self._clock()
        seconds = max(now - self._since, 1e-9)
        self._figures = [f"{name} {value:6.3f}" for name, value in figures.items()]
        parts = [*self._figures]
        parts += [f"{self._tokens / seconds:7,.0f} tokens/s"] if self._tokens else []
        left = seconds / max(done - self._first, 1) * (self._total - done)
        parts.append(
            f"left {_clock_face(left)}" if done < self._total else f"took {_clock_face(seconds)}"
        )
        text = "  ".join(parts)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, figures=text)
        elif (
            done % max(self._every, self._total // 6) == 0
            or done == self._total
            or now - self._said >= SILENCE_SECONDS / 2
        ):
            width = len(str(self._total))
            self._print(f"{self._name:<9} {done:>{width}}/{self._total}  {text}", now)

    def completions(self, texts: Mapping[str, str]) -> None:
        """Show on a terminal what each agent wrote last: one line each, cut at its width."""
        if self._log_completions:
            self._bar.lines = tuple(
                Text.assemble(
                    (f"{on_one_line(agent):<9} ", "cyan"),
                    on_one_line(text[:_MOST_CHARACTERS]),
                    no_wrap=True,
                    overflow="ellipsis",
                )
                for agent, text in texts.items()
            )

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if not self._silent:
            self._print(text, self._clock())


def last_completions(episodes: Sequence[Episode]) -> dict[str, str]:
    """Return agent -> its last completion on the first path of the last episode that was played."""
    texts: dict[str, str] = {}
    played = [episode.root for episode in episodes if episode.root is not None]
    round_ = played[-1] if played else None
    while round_ is not None:
        first = round_.outcomes[0]
        texts |= {agent: round_.samples[agent][pick].text for agent, pick in first.picks.items()}
        round_ = first.next
    return texts


def _clock_face(seconds: float) -> str:
    """Format whole seconds as 0:01:30."""
    return str(timedelta(seconds=round(seconds)))
