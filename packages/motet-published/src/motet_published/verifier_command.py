"""The commands of MAPoRL's verifier: `motet verifier`, with the published flag for the config."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from motet.commands.exit_codes import ends_with_one_line
from motet.commands.main import main as motet
from motet.errors import ConfigError

FLAGS = ("--config_file", "--config")
"""Published flags whose value is the first argument of `motet verifier sample` and `train`."""


def main(command: str) -> None:
    """Run `motet verifier COMMAND` with the command line."""
    words = positional(sys.argv[1:])
    if words and words[0].endswith(".py"):
        ends_with_one_line(lambda: refuse_published(words[0]))
    sys.argv[1:] = ["verifier", command, *words]
    motet()


def refuse_published(config: str) -> NoReturn:
    """Refuse a published config, which is a Python file. Raises: ConfigError."""
    raise ConfigError(
        f"{config}: the published configs of the verifier's scripts are not translated; expected "
        "a config of Motet, such as gsm8k_debate to sample answers and "
        "verifiers/gsm8k to train (docs/verifier.md)"
    )


def positional(words: Sequence[str]) -> list[str]:
    """Return the words with the published flag's value in front, and without the flag."""
    kept: list[str] = []
    config: list[str] = []
    waiting = iter(words)
    for word in waiting:
        flag, equals, value = word.partition("=")
        if flag not in FLAGS:
            kept.append(word)
        elif equals:
            config = [value]
        else:
            config = [next(waiting, "")]
    return [*config, *kept]
