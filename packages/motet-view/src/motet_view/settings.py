"""Settings of the viewer. This module imports nothing heavy."""

from dataclasses import dataclass

from motet_serve.http.settings import ServerSettings, setting


@dataclass(frozen=True, kw_only=True)
class ViewerSettings(ServerSettings):
    """Settings of the viewer: `motet view`. It has no key."""

    port: int = setting(8090, "The port. 0: any free port.")
    grace_seconds: int = 3
