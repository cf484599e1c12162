"""The verifier's commands."""

import os
from collections.abc import Callable
from pathlib import Path

from motet.errors import ConfigError
from motet.verifier.limits import Limits


def serve_verifier(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "auto",
    key_variable: str | None = None,
    without_key: bool = False,
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serves the verifier in `folder` at POST /predict until SIGTERM or SIGINT; then it answers what is open, and returns.

    `key_variable` names the environment variable that holds the key, which requests then need; without one only this machine may
    ask, unless `without_key`. `say` is told the address once it listens. Main thread only. Raises: ConfigError.
    """
    from transformers.utils.logging import disable_progress_bar

    from motet import __version__
    from motet.verifier.server import serve

    disable_progress_bar()
    serve(
        folder,
        __version__,
        host=host,
        port=port,
        device=device,
        key=None if key_variable is None else _key(key_variable),
        without_key=without_key,
        limits=limits or Limits(),
        say=say,
    )


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"--key-variable names {variable}, which is not set: put the server's key in it")
    return key
