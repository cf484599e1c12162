"""A verifier: a model that scores the answers of a team, without the gold answers.

    import motet_verifier

    motet_verifier.sample_answers("gsm8k_debate", "answers.jsonl", tasks=2000)

- api.py has the functions; command.py is their command line.
- sample.py, writing.py, answers.py, answer_log.py and balance.py make the data.
- model.py is the model, train.py trains it, folder.py saves it, quality.py measures it.
- scorer.py scores in this process; app.py, queue.py and server.py serve it over HTTP.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_verifier.api import serve_verifier, train_verifier
    from motet_verifier.api_answers import balance_answers, sample_answers
    from motet_verifier.server_settings import VerifierServerSettings

__all__ = [
    "VerifierServerSettings",
    "balance_answers",
    "sample_answers",
    "serve_verifier",
    "train_verifier",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from motet_verifier import api, api_answers

    return getattr(api if hasattr(api, name) else api_answers, name)
