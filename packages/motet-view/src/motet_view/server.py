"""Serve the viewer on this machine until a signal ends it."""

import threading
from collections.abc import Callable

from motet.clients.http_client import is_loopback
from motet.errors import shortened
from motet_serve.http.key import in_url
from motet_serve.http.server import reserve, run_app
from motet_view.app import create_viewer
from motet_view.pages import Pages
from motet_view.settings import ViewerSettings

REFRESH_SECONDS = 1.5
"""How often the files of the runs are looked at."""


def serve_viewer(
    pages: Pages,
    version: str,
    settings: ViewerSettings,
    *,
    say: Callable[[str], None],
    ready: Callable[[str], None],
    progress: Callable[[str, int, int], None],
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` gets the address when the server accepts connections.

    The runs are indexed in a thread of its own, so pages open meanwhile. Port 0 selects any free
    port. `say` gets a warning if other machines can read the pages. Raises: ConfigError.
    """
    local = is_loopback(f"http://{in_url(settings.host)}")
    over = threading.Event()
    with reserve(settings) as listener:
        if not local:
            say(
                f"everybody who can reach {settings.host} can read the texts of these runs: there "
                "is no password"
            )
        app = create_viewer(pages, version, everywhere=not local)
        watcher = threading.Thread(
            target=_watch, args=(pages, progress, over, say), name="viewer", daemon=True
        )

        def listening(address: str) -> None:
            ready(address)
            watcher.start()

        try:
            run_app(app, listener, settings, listening)
        finally:
            over.set()


def _watch(
    pages: Pages,
    progress: Callable[[str, int, int], None],
    over: threading.Event,
    say: Callable[[str], None],
) -> None:
    """Bring the indexes up to date until it is `over`. An error is said once, and tried again."""
    said = set()
    while not over.is_set():
        try:
            pages.update(progress)
        except Exception as error:  # noqa: BLE001  a thread that died would leave old pages
            line = f"the runs cannot be read: {type(error).__name__}: {shortened(str(error))}"
            if line not in said:
                say(line)
                said.add(line)
        over.wait(REFRESH_SECONDS)
