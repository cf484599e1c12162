"""Serve a verifier over HTTP until a signal ends the process."""

from collections.abc import Callable
from pathlib import Path

from motet.models.loading import shortened_context
from motet_serve.http.key import key_of
from motet_serve.http.server import reserve, run_app
from motet_verifier.app import create_app
from motet_verifier.model import Verifier
from motet_verifier.server_settings import VerifierServerSettings


def serve(
    folder: str | Path,
    version: str,
    settings: VerifierServerSettings,
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT, as `motet_serve.http.server.run_app` describes.

    `say` gets a message if the model's context was shortened. It gets the address as soon as the
    server accepts connections. Raises: ConfigError before anything is loaded.
    """
    key = key_of(settings)
    with reserve(settings) as listener:
        verifier = Verifier.load(folder, device=settings.device, reads=settings.reads)
        if (line := shortened_context(verifier.base or folder)) is not None:
            say(line)
        app = create_app(verifier, Path(folder).resolve().name, version, key, settings)
        device = verifier.critic.backbone.device
        run_app(app, listener, settings, lambda url: say(f"{folder} is served at {url} ({device})"))
