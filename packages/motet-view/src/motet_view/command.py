"""The commands `motet view`, runs in the browser, and `motet episodes`, games in the terminal."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from motet import __version__
from motet.commands.console import out
from motet.commands.episodes import print_episode
from motet.commands.from_api import ApiCall, of_api
from motet.commands.shell_completion import complete_run
from motet.errors import ConfigError
from motet.safety.visible import Console
from motet_serve.http.options import options_of
from motet_view.settings import ViewerSettings

RUNS = Path("runs")
ViewedRuns = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Run folders, or folders of runs. Default: all runs in runs/.",
        show_default=False,
        autocompletion=complete_run,
    ),
]
Export = Annotated[
    Path | None,
    typer.Option(
        help="Write plain files to this new folder instead, to open from disk or to send.",
        show_default=False,
    ),
]
MostGames = Annotated[
    int,
    typer.Option(
        "--games", min=1, help="With --export: most games of each run, spread over its steps."
    ),
]


@options_of(ViewerSettings, "host", "port")
def view(
    settings: ViewerSettings,
    runs: ViewedRuns = None,
    export: Export = None,
    games: MostGames = 1000,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Show runs in the browser: curves, every recorded game as a tree, and the team.

    A run that trains is shown while it trains. The page needs no network. Ctrl-C ends the server.
    If it is on another machine: ssh -L 8090:localhost:8090 MACHINE, then open
    http://localhost:8090

    Example: motet view runs/quickstart runs/other --no-open
    """
    from motet_view.export import export_viewer
    from motet_view.pages import Pages
    from motet_view.server import serve_viewer
    from motet_view.shelf import find_runs

    if runs is None and not RUNS.is_dir():
        raise ConfigError(
            "there is no folder runs here; expected the paths of run folders, or a run: motet "
            "train quickstart"
        )
    found = find_runs(runs or [RUNS])
    pages = Pages(found, __version__)
    with IndexBar() as bar:
        if export is not None:
            pages.update(bar.read)
            written = export_viewer(pages, export, games, bar.written)
            for name, count in written.items():
                out.print(f"{name}: {count:,} games")
            out.print(f"open {export / 'index.html'}", soft_wrap=True)
            return

        def ready(address: str) -> None:
            out.print(f"{len(found)} run(s) at {address}  (Ctrl-C ends it)", soft_wrap=True)
            if open_page and _has_screen():
                import webbrowser

                webbrowser.open(address)

        serve_viewer(
            pages,
            __version__,
            settings,
            say=lambda line: Console(stderr=True).print(line, soft_wrap=True),
            ready=ready,
            progress=bar.read,
        )


class IndexBar:
    """A progress bar while games are indexed or written. Short work shows none."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("")

    def __enter__(self) -> "IndexBar":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def read(self, run: str, done: int, total: int) -> None:
        """Show how many bytes of a run's episodes are indexed."""
        self._show(f"indexing {run}", done, total)

    def written(self, done: int, total: int) -> None:
        self._show("writing games", done, total)

    def _show(self, what: str, done: int, total: int) -> None:
        if done >= total:
            self._bar.stop()
            return
        self._bar.start()
        self._bar.update(self._task, description=what, completed=done, total=total)


def _has_screen() -> bool:
    """Return whether a browser would have a window. Without one, some run in the terminal."""
    return sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


@of_api("motet_view.recorded:episodes")
def episodes(
    call: ApiCall,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the whole traceback of every fault.")
    ] = False,
) -> None:
    """Show recorded episodes as chats, with rewards and advantages. Nothing is played again.

    Example: motet episodes runs/quickstart --step 12 --worst 5
    """
    found, asked = call(), call.values
    for one in found:
        print_episode(one.episode, one.advantages, traceback=traceback)
    if not found:
        out.print(f"{asked['run']} has no such episode" + " with a fault" * asked["faults"])
    elif not asked["evaluation"] and not any(one.advantages for one in found):
        out.print(
            "no advantages: they need more than the recorded rewards (a critic, a KL penalty in "
            "the reward, a moving average, a learned reward, pairs), or code that the run names, "
            "which is not loaded, or the episodes do not fit the config"
        )
    chosen = asked["faults"] or any(asked[key] is not None for key in ("best", "worst", "task"))
    if found and not chosen and len(found) < found[0].of:
        out.print(
            f"{len(found)} of the {found[0].of} episodes of step {found[0].step}: --best N, "
            "--worst N, --task ID and --faults choose others"
        )
