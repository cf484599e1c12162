"""The web application of the viewer: JSON answers and the files of the page.

The page may load nothing from elsewhere, and no other site may read the answers or ask for them: a
strict Content-Security-Policy, and checks of the Host header (against DNS rebinding) and of the
site that a browser asks for.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from motet.clients.http_client import is_loopback
from motet.errors import ConfigError
from motet_view.pages import Pages, as_json
from motet_view.queries import GameFilter, Order

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from fastapi.responses import Response

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_viewer(pages: Pages, version: str, *, everywhere: bool) -> "FastAPI":
    """Return the application. `everywhere`: also answer requests that name another host than this
    machine, because the server listens on an address that others can reach."""
    from fastapi import FastAPI, Request
    from fastapi.responses import PlainTextResponse, Response
    from fastapi.staticfiles import StaticFiles
    from starlette.exceptions import HTTPException

    app = FastAPI(
        title="Motet viewer", version=version, docs_url=None, redoc_url=None, openapi_url=None
    )

    @app.middleware("http")
    async def guarded(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        host = request.headers.get("host", "")
        if not _is_host(host):
            found: Response = PlainTextResponse("the Host header is no host\n", 400)
        elif not everywhere and not is_loopback(f"http://{host}"):
            found = PlainTextResponse("this viewer answers only as localhost\n", 403)
        elif _is_asked_by_another_site(request):
            found = PlainTextResponse("this viewer does not answer other sites\n", 403)
        else:
            found = await answer(request)
        found.headers.update(HEADERS)
        return found

    @app.exception_handler(ConfigError)
    async def refused(request: Request, error: ConfigError) -> Response:
        return PlainTextResponse(as_json({"error": str(error)}), 404, media_type="application/json")

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        text = as_json({"error": str(error.detail)})
        return PlainTextResponse(text, error.status_code, media_type="application/json")

    _answer(app, pages)
    _answer_about_games(app, pages)
    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


def _is_asked_by_another_site(request: "Request") -> bool:
    """Return whether a page of another site asks for an answer. It could not read the answer, but
    make the viewer work."""
    site = request.headers.get("sec-fetch-site", "none")
    return site not in ("same-origin", "none") and request.scope["path"].startswith("/api")


def _is_host(host: str) -> bool:
    try:
        urlsplit(f"http://{host}")
    except ValueError:  # such as half a pair of brackets
        return False
    return True


def _sent(answer: dict[str, Any]) -> "Response":
    from fastapi.responses import Response

    return Response(as_json(answer), media_type="application/json")


def _answer_about_games(app: "FastAPI", pages: Pages) -> None:
    from fastapi import Depends, Query
    from fastapi.responses import Response

    def filtered(
        kind: str | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        success: bool | None = None,
        lowest: float | None = None,
        highest: float | None = None,
        fault: str | None = None,
        cut: bool | None = None,
        agent: str | None = None,
        task: str | None = None,
        text: Annotated[str | None, Query(max_length=1000)] = None,
        order: Order = "newest",
        start: Annotated[int, Query(ge=0)] = 0,
        count: Annotated[int, Query(ge=1)] = 50,
    ) -> GameFilter:
        return GameFilter(
            kind, first_step, last_step, success, lowest, highest, fault, cut, agent, task, text,
            order, start, count,
        )  # fmt: skip

    @app.get("/api/games")
    def games(run: str, wanted: Annotated[GameFilter, Depends(filtered)]) -> Response:
        return _sent(pages.games(run, wanted))


def _answer(app: "FastAPI", pages: Pages) -> None:
    from fastapi import Query
    from fastapi.responses import Response

    @app.get("/api/runs")
    def runs() -> Response:
        return _sent(pages.runs())

    @app.get("/api/overview")
    def overview(run: str) -> Response:
        return _sent(pages.overview(run))

    @app.get("/api/curves")
    def curves(run: str, metric: Annotated[Sequence[str] | None, Query()] = None) -> Response:
        return _sent(pages.curves(run, metric))

    @app.get("/api/game")
    def game(run: str, id: int) -> Response:
        return _sent(pages.game(run, id))

    @app.get("/api/advantages")
    def advantages(run: str, id: int) -> Response:
        return _sent(pages.advantages(run, id))

    @app.get("/api/task")
    def task(run: str, task: str) -> Response:
        return _sent(pages.task(run, task))

    @app.get("/api/team")
    def team(run: str) -> Response:
        return _sent(pages.team(run))

    @app.get("/api/configs")
    def configs(run: Annotated[Sequence[str], Query()]) -> Response:
        return _sent(pages.configs(run))
