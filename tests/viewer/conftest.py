"""A viewer that serves runs made by hand, and a headless Chromium that looks at it."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from motet_view.pages import Pages
from motet_view.server import serve_viewer
from motet_view.shelf import find_runs
from tests.fixtures.recorded_runs import make_hostile_run, make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser. While it is open, no other test of this process can run an event loop."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with sync_api.sync_playwright() as playwright:
        # This user may be root, for whom Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Seen:
    """A page, and the errors that it has reported. `harmed` tells whether a text ran as code."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))

    def _console(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.errors.append(said.text)

    def go(self, address: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector("main > *")

    @property
    def text(self) -> str:
        return str(self.page.inner_text("main"))

    def check(self) -> None:
        """No error, no effect of a text, and nothing wider than the window."""
        assert self.errors == []
        assert self.page.evaluate("window.harmed") is None
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wider) <= 0


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Seen]]:
    contexts = []

    def open_page(*, width: int = 1280, dark: bool = False) -> Seen:
        contexts.append(
            browser.new_context(
                viewport={"width": width, "height": 850},
                color_scheme="dark" if dark else "light",
            )
        )
        contexts[-1].set_default_timeout(60_000)  # a busy machine is no failure
        return Seen(contexts[-1].new_page())

    yield open_page
    for context in contexts:
        context.close()


class Served:
    """A viewer in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = Pages(find_runs([folder]), "1.2.3")
        self.pages.update()
        there = threading.Event()
        self.address = ""

        def ready(address: str) -> None:
            self.address = address
            there.set()

        def serve() -> None:
            serve_viewer(
                self.pages, "1.2.3", host="127.0.0.1", port=0, say=print, ready=ready,
                progress=lambda run, done, total: None,
            )  # fmt: skip

        threading.Thread(target=serve, daemon=True).start()
        there.wait()

    def game(self, run: str, task: str, order: Any = "newest") -> int:
        """The number of a game of a task."""
        from motet_view.queries import GameFilter

        return int(self.pages.games(run, GameFilter(task=task, order=order))["games"][0]["id"])


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder, steps=30)
    make_run(folder, "other", seed=1)
    make_hostile_run(folder)
    return Served(folder)
