"""Serve a verifier over HTTP until a signal ends the process."""

from collections.abc import Callable
from pathlib import Path

from motet.models.loading import shortened_context
from motet_serve.http.server import reserved, run_app
from motet_verifier.app import create_app
from motet_verifier.folder import Reads
from motet_verifier.limits import ScoringLimits
from motet_verifier.model import Verifier


def serve(
    folder: str | Path,
    version: str,
    *,
    host: str,
    port: int,
    device: str,
    reads: Reads,
    key: str | None,
    without_key: bool,
    limits: ScoringLimits,
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT, as `motet_serve.http.server.run_app` describes.

    `say` gets a message if the model's context was shortened. It gets the address as soon as the
    server accepts connections. Port 0 selects any free port. `without_key` accepts requests from
    everyone who can reach the address. Raises: ConfigError before anything is loaded.
    """
    with reserved(host, port, key=key, without_key=without_key) as listener:
        verifier = Verifier.load(folder, device=device, reads=reads)
        if (line := shortened_context(verifier.base or folder)) is not None:
            say(line)
        app = create_app(verifier, Path(folder).resolve().name, version, key=key, limits=limits)
        run_app(
            app,
            listener,
            host,
            limits,
            lambda url: say(f"{folder} is served at {url} ({verifier.critic.backbone.device})"),
        )
