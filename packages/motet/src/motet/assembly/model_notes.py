"""What a run's models do that no config says: what ends their completions, and their context."""

from collections.abc import Mapping
from pathlib import Path

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.assembly.task_setup import TeamSetup
from motet.models.chat_template import tokenizer_with
from motet.models.completions import CompletionEnds, completion_ends
from motet.models.loading import stored_generation


def note_models(setup: TeamSetup, bases: Mapping[str, str | Path]) -> tuple[list[str], list[str]]:
    """Return what a user should know about the models in `bases`, and warnings. They are loaded
    without their weights.

    Embedded models are left out: their only end token is `<eos>`.

    Raises: ConfigError.
    """
    notes: list[str] = []
    warnings: list[str] = []
    played = {setup.config.policies[name].model for name in setup.team.policies}
    for name, base in setup.config.models.items():
        if base.embedded is not None or name not in bases or name not in played:
            continue
        tokenizer, context = tokenizer_with(bases[name], base.template)
        generation = stored_generation(bases[name])
        ends = completion_ends(bases[name], generation, tokenizer, base.end_tokens)
        notes.append(_what_ends(name, ends, tokenizer))
        warnings += _open_turns(name, ends, tokenizer)
        if tokenizer.model_max_length < context:
            warnings.append(
                f"the tokenizer_config.json of model {name} says model_max_length "
                f"{int(tokenizer.model_max_length)}, but its context is {context} tokens, and that "
                "counts here: set decode.max_new_tokens if its answers shall be shorter"
            )
    return notes, warnings


def _what_ends(name: str, ends: CompletionEnds, tokenizer: PreTrainedTokenizerBase) -> str:
    own = dict.fromkeys(ends.eos, "")
    given = dict.fromkeys(ends.added, " (end_tokens)")
    said = {**dict.fromkeys(ends.turn, " (the end of a turn in its chat template)"), **given, **own}
    words = [
        f"{word}{why}"
        for word, why in zip(
            tokenizer.convert_ids_to_tokens(list(said)), said.values(), strict=True
        )
    ]
    texts = [
        f"the string {text!r} (the end of a turn in its chat template)" for text in ends.turn_text
    ]
    if not words and not texts:
        return f"nothing ends a completion of model {name} but its limit"
    return f"a completion of model {name} ends at {', '.join([*words, *texts])}, or at its limit"


def _open_turns(name: str, ends: CompletionEnds, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return a warning if chats may go on after the end of a turn."""
    mend = f"models.{name}.end_tokens adds tokens, and decode.stop strings"
    if not ends.ids and not ends.turn_text:
        return [
            f"model {name} has no end-of-sequence token, so every completion has "
            f"decode.max_new_tokens tokens: {mend}"
        ]
    if tokenizer.chat_template is None or ends.turn or ends.turn_text:
        return []
    return [
        f"the chat template of model {name} shows no end of a turn, so a model that writes turns "
        f"like it may go on with the next one: {mend}"
    ]
