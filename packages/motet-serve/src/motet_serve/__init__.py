"""Chat with a trained team of Motet, in the terminal or over the OpenAI protocol.

    import motet_serve

    motet_serve.serve("runs/quickstart", settings=motet_serve.TeamServerSettings(port=8001))

- api.py has both functions; command.py is their command line; settings.py has the server's options.
- team.py asks the agents of a team; sharing.py lets several chats share the models.
- app.py and protocol.py answer HTTP requests; stream.py sends an answer while it is written.
- terminal.py is the chat in the terminal.
- http/ is the HTTP server, which Motet's other servers use too.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_serve.api import chat, serve
    from motet_serve.settings import TeamServerSettings

__all__ = ["TeamServerSettings", "chat", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from motet_serve import api

    return getattr(api, name)
