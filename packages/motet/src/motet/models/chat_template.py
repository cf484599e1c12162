"""A chat template of the user's own, for a model that has none or another one."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import ConfigError
from motet.models.bounded_text import set_date
from motet.models.folder import TEMPLATE
from motet.models.loading import load_tokenizer
from motet.safety.reading import read_text
from motet.settings import ChatTemplate

DATE = "strftime_now"
"""The function of templates that returns the date."""


def tokenizer_with(
    source: str | Path, template: ChatTemplate | None
) -> tuple[PreTrainedTokenizerBase, int]:
    """Return the tokenizer of a model and its context length, with the template of the config.

    Raises: ConfigError.
    """
    tokenizer, context = load_tokenizer(source)
    chosen = template or ChatTemplate()
    if chosen.file is not None:
        tokenizer.chat_template = read_template(chosen.file)
    _check_default(source, tokenizer)
    if chosen.options:
        tokenizer.chat_template = _with_options(source, tokenizer, chosen.options)
    if chosen.date is not None:
        set_date(tokenizer, datetime.fromisoformat(chosen.date))
    return tokenizer, context


def _check_default(source: str | Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises: ConfigError if a tokenizer has several templates, and none for a plain chat."""
    templates: Any = tokenizer.chat_template
    if isinstance(templates, Mapping) and "default" not in templates:
        raise ConfigError(
            f"the tokenizer of model {str(source)!r} has the chat templates "
            f"{', '.join(sorted(templates))}; expected one with the name default: name the file of "
            "one in models.NAME.chat_template"
        )


def reads_date(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template asks for the date."""
    return tokenizer.chat_template is not None and DATE in str(tokenizer.get_chat_template())


def _with_options(
    source: str | Path, tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> str:
    """Return the template with its variables set at its beginning, so that they are saved with it.

    Raises: ConfigError if there is no template, or if it has no such variable.
    """
    for name in options:
        check_variable(f"template_options of model {str(source)!r}", name, tokenizer)
    template = str(tokenizer.get_chat_template())
    head = "".join(f"{{% set {name} = {_jinja(value)} %}}" for name, value in options.items())
    return template if template.startswith(head) else head + template


def check_variable(where: str, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that the chat template reads the variable `name`, which is set `where`.

    Raises: ConfigError.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"{where} sets {name!r}, but the model has no chat template; expected one: set "
            "models.NAME.chat_template, or drop the variable"
        )
    template = str(tokenizer.get_chat_template())
    if (
        name in _GIVEN
        or not name.isidentifier()
        or re.search(rf"\b{re.escape(name)}\b", template) is None
    ):
        raise ConfigError(
            f"{where} sets {name!r}, which the chat template does not read: correct the name, or "
            "drop it"
        )


_GIVEN = ("messages", "tools", "documents", "add_generation_prompt")
"""The variables that a template gets in any case."""


def _jinja(value: Any) -> str:
    """Return the literal of a plain value."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_jinja(str(key))}: {_jinja(one)}" for key, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_jinja, value))}]"
    return "none" if value is None else json.dumps(value)


def read_template(path: str) -> str:
    """Return the text of a Jinja file. Raises: ConfigError if it cannot be read or is empty."""
    try:
        text = read_text(Path(path), TEMPLATE)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"chat_template: {path} cannot be read: {error}; expected a Jinja file in UTF-8"
        ) from error
    if "messages" not in text:
        raise ConfigError(
            f"chat_template: {path} does not use `messages`; expected a Jinja template as in the "
            "tokenizers of transformers"
        )
    return text
