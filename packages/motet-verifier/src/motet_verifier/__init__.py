"""A verifier: a model that scores the answers of a team, without the gold answers.

    import motet_verifier

    motet_verifier.sample_answers("gsm8k_debate", "answers.jsonl", tasks=2000)

- api.py has the functions; command.py is their command line.
- sample.py, writing.py, answers.py, answer_log.py and balance.py make the data.
- model.py is the model, train.py trains it, folder.py saves it, quality.py measures it.
- candidates.py judges the answers of games, and choosing.py measures how it chooses among them.
- scorer.py scores in this process; app.py, queue.py and server.py serve it over HTTP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_verifier.api import serve_verifier, train_verifier
    from motet_verifier.api_answers import balance_answers, sample_answers
    from motet_verifier.api_choosing import choose_answers
    from motet_verifier.server_settings import VerifierServerSettings

_MODULE_OF = {
    "VerifierServerSettings": "server_settings",
    "balance_answers": "api_answers",
    "choose_answers": "api_choosing",
    "sample_answers": "api_answers",
    "serve_verifier": "api",
    "train_verifier": "api",
}
__all__ = [
    "VerifierServerSettings",
    "balance_answers",
    "choose_answers",
    "sample_answers",
    "serve_verifier",
    "train_verifier",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"motet_verifier.{_MODULE_OF[name]}"), name)
