"""The command of the published experiments, one for every trainer: reads words, translates, trains as `motet train` does.

python experiments/train_magrpo.py --config experiments/configs/magrpo_he_config.yaml --override KEY=VALUE ...
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from motet.cli import ends_with_one_line, print_dry_run
from motet.config.load import make_config
from motet.config.yaml import Document, KeyPath, read_value, read_yaml
from motet.errors import ConfigError
from motet.experiments.translate import TRAINERS, Translation, translate
from motet.tables import out, print_finished

FLAGS = {
    "model_name": "model_name",
    "output_base_dir": "output.base_dir",
    "num_epochs": "*.num_train_epochs",
    "num_turns": "*.num_turns",
    "turn_gradient_weights": "*.turn_gradient_weights",
}
"""Older flag -> the key that it is; `*` is the trainer's section."""
EXAMPLES = """\
Overrides lie over the config, older flags over both; what is said last counts. For example:

  python experiments/train_{trainer}.py --config experiments/configs/{trainer}_he_config.yaml --dry-run
  python experiments/train_{trainer}.py --config experiments/configs/{trainer}_he_config.yaml \\
      --override model_name=Qwen/Qwen2.5-Coder-7B {trainer}.learning_rate=5e-6 motet.train.checkpoint_every=20"""
PYTHON = {"None": None, "True": True, "False": False}
"""Values as Python writes them, which the trainers took too."""


def main(trainer: str, arguments: Sequence[str] | None = None) -> None:
    """Runs `trainer`, a name of TRAINERS, on the words of the command line. Exit codes are those of `motet`."""
    ends_with_one_line(lambda: _run(trainer, arguments))


def _run(trainer: str, arguments: Sequence[str] | None) -> None:
    chosen = _parser(trainer).parse_args(arguments)
    translated = translated_from(trainer, chosen)
    config = make_config(translated.config.data, translated.overrides, translated.config.places)
    for note in translated.notes:
        out.print(f"  {escape(note)}", soft_wrap=True)
    if chosen.dry_run:
        print_dry_run(config, [])
        return
    from motet import api  # imports torch

    config = config.model_copy(update={"name": _free(config.name, translated.runs)})
    print_finished(api.train(config, runs=translated.runs), translated.runs)


def translated_from(trainer: str, chosen: argparse.Namespace) -> Translation:
    """What the words of the command line come to: the config file, overrides over it, older flags over both."""
    section = TRAINERS[trainer].sections[0]
    layers = [read_yaml(chosen.config), *map(_override, chosen.override)]
    for flag, key in FLAGS.items():
        value = getattr(chosen, flag)
        if value is not None:
            layers.append(_layer(key.replace("*", section), value, f"--{flag}"))
    return translate(layers, TRAINERS[trainer], chosen.config.stem.removesuffix("_config"))


def _parser(trainer: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"train_{trainer}.py",
        description=f"Trains with {trainer} as the published experiments did; experiments/README.md says what keys become.",
        epilog=EXAMPLES.format(trainer=trainer),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, required=True, help="a config in the published form")
    parser.add_argument(
        "--override",
        nargs="*",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="what lies over the config; values are YAML; may be given again. motet.KEY=VALUE reaches Motet's own keys",
    )
    parser.add_argument("--dry-run", action="store_true", help="show Motet's config and the cost, start nothing")
    older = parser.add_argument_group("older flags")
    older.add_argument("--model_name", help="model.name")
    older.add_argument("--output_base_dir", help="output.base_dir")
    older.add_argument("--num_epochs", type=int, help="num_train_epochs")
    older.add_argument("--num_turns", type=int, help="num_turns")
    older.add_argument("--turn_gradient_weights", type=float, nargs="+", metavar="WEIGHT", help="one per turn")
    return parser


def _override(text: str) -> Document:
    key, equals, value = text.partition("=")
    place = f"override {text!r}"
    if not equals or not all(key.split(".")):
        raise ConfigError(f"{place}: expected KEY=VALUE, such as seed=1")
    return _layer(key, PYTHON[value] if value in PYTHON else read_value(value, place), place)


def _layer(key: str, value: Any, place: str) -> Document:
    path: KeyPath = tuple(key.split("."))
    for name in reversed(path):
        value = {name: value}
    return Document(value, {path[:depth]: place for depth in range(1, len(path) + 1)})


def _free(name: str, runs: Path) -> str:
    """The first of NAME, NAME-2, NAME-3, ... that is no run yet: the same command may be given again."""
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, 1_000_000))
    return next(name for name in names if not (runs / name).exists())
