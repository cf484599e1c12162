"""The commands of MAPoRL's verifier: `motet verifier`, with the published flag for the config."""

import sys
from collections.abc import Sequence

from motet.cli import main as motet

FLAGS = ("--config_file", "--config")
"""Published flags whose value is the first argument of `motet verifier sample` and `train`."""


def main(command: str) -> None:
    """Run `motet verifier COMMAND` with the command line."""
    sys.argv[1:] = ["verifier", command, *positional(sys.argv[1:])]
    motet()


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
