"""One game as plain JSON: the tree of Rounds with prompts, samples and joint actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from motet.core import Completion, Episode, Fault, Outcome, Prompt, Round
from motet.core.row_values import readable
from motet.errors import ConfigError

_LONGEST_CHARACTER = 16
"""No character has more tokens than this."""
Pieces = Callable[[Completion], list[str] | None]
"""Returns the text of each token, or None if the tokenizer is not there."""


def game_tree(episode: Episode, pieces: Pieces) -> dict[str, Any]:
    """Return the episode as plain JSON. `tree` is None if the game failed before its first turn.

    An outcome has its `worth`: its mean reward and the mean worth of what follows. None: a fault.
    """
    return {
        "episode": episode.id,
        "task": {"id": episode.task.id, "fields": readable(episode.task.fields)},
        "fault": _fault(episode.fault),
        "tree": None if episode.root is None else _round(episode.root, (), pieces),
        "greedy": None if episode.greedy is None else _round(episode.greedy, (), pieces),
    }


def _round(round_: Round, path: tuple[int, ...], pieces: Pieces) -> dict[str, Any]:
    return {
        "turn": round_.turn,
        "path": list(path),
        "prompts": {agent: _messages(prompt) for agent, prompt in round_.prompts.items()},
        "samples": {
            agent: [_sample(one, pieces) for one in group]
            for agent, group in round_.samples.items()
        },
        "outcomes": [
            {
                "picks": dict(outcome.picks),
                "rewards": dict(outcome.rewards),
                "terms": dict(outcome.terms),
                "end": outcome.end,
                "fault": _fault(outcome.fault),
                "worth": _worth(outcome),
                "once": outcome.once,
                "next": None
                if outcome.next is None
                else _round(outcome.next, (*path, place), pieces),
            }
            for place, outcome in enumerate(round_.outcomes)
        ],
        "without": [
            {"picks": dict(outcome.picks), "worth": _worth(outcome)} for outcome in round_.without
        ],
    }


def _sample(one: Completion, pieces: Pieces) -> dict[str, Any]:
    return {
        "text": one.text,
        "thinking": one.thinking,
        "calls": [str(call) for call in one.calls],
        "unread": one.unread,
        "stop": one.stop,
        "policy": one.policy,
        "version": one.version,
        "temperature": one.temperature,
        "logprobs": None if one.logprobs is None else list(one.logprobs),
        "pieces": pieces(one),
    }


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"speaker": "prompt", "text": prompt}]
    return [
        {
            "speaker": f"{message.role} ({message.name})" if message.name else message.role,
            "text": message.shown,
        }
        for message in prompt
    ]


def _fault(fault: Fault | None) -> dict[str, str] | None:
    return None if fault is None else asdict(fault)


def _worth(outcome: Outcome) -> float | None:
    if outcome.fault is not None or not outcome.rewards:
        return None
    own = sum(outcome.rewards.values()) / len(outcome.rewards)
    below = [
        worth
        for child in (outcome.next.outcomes if outcome.next is not None else ())
        if (worth := _worth(child)) is not None
    ]
    return own + (sum(below) / len(below) if below else 0.0)


# ------------------------------------------------------------------------------------------- tokens


def pieces_of(run: Path, config: Mapping[str, Any]) -> Pieces:
    """Return the function that splits completions of this run into the texts of their tokens.

    It uses the tokenizers in the folder of the run, or in the local cache of the hub.
    """

    def pieces(one: Completion) -> list[str] | None:
        try:
            file = _tokenizer_file(run, config, one.policy)
        except OSError:  # a name that is too long for a file, or a folder of another user
            return None
        if one.tokens is None or file is None:
            return None
        most = 2 * len(one.text + one.thinking) + 10_000
        return _split(_tokenizer(str(file), file.stat().st_mtime_ns), one.tokens, most)

    return pieces


def _tokenizer_file(run: Path, config: Mapping[str, Any], policy: str) -> Path | None:
    policies, models = config.get("policies"), config.get("models")
    chosen = policies.get(policy) if isinstance(policies, Mapping) else None
    model = chosen.get("model") if isinstance(chosen, Mapping) else None
    if not isinstance(model, str) or "/" in model or model.startswith("."):
        return None
    kept = run / "models" / model / "tokenizer.json"
    if kept.is_file():
        return kept
    settings = models.get(model) if isinstance(models, Mapping) else None
    path = settings.get("path") if isinstance(settings, Mapping) else None
    if not isinstance(path, str):
        return None
    if (Path(path) / "tokenizer.json").is_file():
        return Path(path) / "tokenizer.json"
    return _cached(path)


@lru_cache(maxsize=16)
def _cached(name: str) -> Path | None:
    """Return the tokenizer of a model of the hub, if it was downloaded before."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "tokenizer.json")
    except HFValidationError:  # the name of a folder that is not on this machine
        return None
    return Path(found) if isinstance(found, str) else None


@lru_cache(maxsize=8)
def _tokenizer(file: str, changed_ns: int) -> Any:
    """Return a tokenizer, or None if its file is broken or would take endless time."""
    from tokenizers import Tokenizer

    from motet.models.folder import check_tokenizer

    try:
        check_tokenizer(Path(file))
        return Tokenizer.from_file(file)
    except ConfigError:
        return None
    except Exception as error:  # the library raises only this base class
        if type(error) is not Exception:
            raise
        return None


def _split(tokenizer: Any, tokens: Sequence[int], most: int) -> list[str] | None:
    """Return the text of each token, or None if there are tokens that the tokenizer cannot have or
    more than `most` characters: then it is not that of the text.

    A character of several tokens belongs to the last of them. So every token is decoded with those
    before it, since the last whole character.
    """
    if tokenizer is None or not all(0 <= token < 1 << 32 for token in tokens):
        return None
    found: list[str] = []
    begin, done, length = 0, 0, 0
    for place in range(len(tokens)):
        before = _decoded(tokenizer, tokens[begin:done])
        now = _decoded(tokenizer, tokens[begin : place + 1])
        if before is None or now is None:
            return None
        whole = len(now) > len(before) and not now.endswith("\ufffd")
        if whole or place + 1 - done >= _LONGEST_CHARACTER:
            found.append(now[len(before) :])
            begin, done = done, place + 1
        else:
            found.append("")
        length += len(found[-1])
        if length > most:
            return None
    return found


def _decoded(tokenizer: Any, tokens: Sequence[int]) -> str | None:
    """Return the text of tokens; None if the tokenizer's file breaks the library."""
    try:
        text: str = tokenizer.decode(tokens, skip_special_tokens=False)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # which the library does not export
            raise
        return None
    return text
