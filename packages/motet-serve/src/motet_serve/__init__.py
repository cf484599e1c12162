"""Chat with a trained team of Motet, in the terminal or over the OpenAI protocol.

    import motet_serve

    motet_serve.serve("runs/quickstart", settings=motet_serve.TeamServerSettings(port=8001))

- api.py has the functions: ask, chat and serve; command.py is the command line of chat and serve;
  settings.py has the server's options.
- team.py asks the agents of a team; sharing.py lets several chats share the models.
- app.py and protocol.py answer HTTP requests; stream.py sends an answer while it is written.
- terminal.py is the chat in the terminal.
- http/ is the HTTP server, which Motet's other servers use too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_serve.api import ask, chat, serve
    from motet_serve.settings import TeamServerSettings
    from motet_serve.team import AgentMessage, TeamAnswer, Unanswered

__all__ = [
    "AgentMessage",
    "TeamAnswer",
    "TeamServerSettings",
    "Unanswered",
    "ask",
    "chat",
    "serve",
]
_MODULES = ("settings", "team", "api")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = (import_module(f"{__name__}.{module}") for module in _MODULES)
    return next(getattr(module, name) for module in modules if hasattr(module, name))
