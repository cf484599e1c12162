"""A chat template of the user's own, for a model that has none or another one."""

from pathlib import Path

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import ConfigError
from motet.models.folder import TEMPLATE
from motet.models.loading import load_tokenizer
from motet.reading import read_text


def tokenizer_with(source: str | Path, template: str | None) -> tuple[PreTrainedTokenizerBase, int]:
    """Return the tokenizer of a model and its context length, with the Jinja file `template`.

    None keeps the model's own template. Raises: ConfigError.
    """
    tokenizer, context = load_tokenizer(source)
    if template is not None:
        tokenizer.chat_template = read_template(template)
    return tokenizer, context


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
