"""Put a trained team of Motet to work: chat with it, serve it, export it for others.

    import motet_serve

    motet_serve.serve("runs/quickstart", settings=motet_serve.TeamServerSettings(port=8001))
    motet_serve.export_team("runs/quickstart", "teams/quickstart")

- api.py has the functions ask, chat and serve; exporting.py has export_team; command.py is their
  command line; settings.py has the server's options.
- team.py asks the agents of a team; sharing.py lets several chats share the models.
- app.py and protocol.py answer HTTP requests; stream.py sends an answer while it is written.
- terminal.py is the chat in the terminal.
- exports/ is a trained team as one folder: weights, team.yaml, model card, hub.
- http/ is the HTTP server, which Motet's other servers use too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_serve.api import ask, chat, serve
    from motet_serve.exporting import ExportResult, export_team
    from motet_serve.settings import TeamServerSettings
    from motet_serve.team import AgentMessage, TeamAnswer, Unanswered

_MODULE_OF = {
    "AgentMessage": "team",
    "ExportResult": "exporting",
    "TeamAnswer": "team",
    "TeamServerSettings": "settings",
    "Unanswered": "team",
    "ask": "api",
    "chat": "api",
    "export_team": "exporting",
    "serve": "api",
}
__all__ = [
    "AgentMessage",
    "ExportResult",
    "TeamAnswer",
    "TeamServerSettings",
    "Unanswered",
    "ask",
    "chat",
    "export_team",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
