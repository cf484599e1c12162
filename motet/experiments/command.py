"""The command of the published experiments, one for every trainer: reads words, translates, trains as `motet train` does.

python experiments/train_magrpo.py --config experiments/configs/magrpo_he_config.yaml --override KEY=VALUE ...
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from motet.cli import print_dry_run
from motet.config.load import make_config
from motet.config.yaml import Document, KeyPath, read_value, read_yaml
from motet.endings import ends_with_one_line
from motet.errors import ConfigError
from motet.experiments.trainers import COMLRL, TRAINERS
from motet.experiments.translate import Translation, translate
from motet.tables import out, print_finished

LAYERS = "Overrides lie over the config, {flags} over both; what is said last counts. For example:\n\n"
EXAMPLES = """\
  python experiments/train_{trainer}.py --config experiments/configs/{trainer}_he_config.yaml --dry-run
  python experiments/train_{trainer}.py --config experiments/configs/{trainer}_he_config.yaml \\
      --override model_name=Qwen/Qwen2.5-Coder-7B {trainer}.learning_rate=5e-6 motet.train.checkpoint_every=20"""
MAPORL_EXAMPLES = """\
  python experiments/train_{trainer}.py --config experiments/configs/maporl_gsm8k_2x2.yaml --alpha "[0, 2, 2, 0]"
  python experiments/train_{trainer}.py --config experiments/configs/maporl_gsm8k_2x2.yaml --alpha "[0, 2, 2, 0]" --reload
  python experiments/train_{trainer}.py --config experiments/configs/maporl_gsm8k_2x2.yaml --dry-run \\
      --override base_model=Qwen/Qwen2.5-1.5B-Instruct rule_discount=0.5 motet.train.steps=100"""
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
        out.print(f"  {note}", soft_wrap=True)
    if chosen.dry_run:
        print_dry_run(config, [])
        return
    from motet import api  # imports torch

    name = _last(config.name, translated.runs) if chosen.reload else _free(config.name, translated.runs)
    config = config.model_copy(update={"name": name})
    print_finished(api.train(config, resume=chosen.reload, runs=translated.runs), translated.runs)


def translated_from(trainer: str, chosen: argparse.Namespace) -> Translation:
    """What the words of the command line come to: the config file, overrides over it, flags over both."""
    known = TRAINERS[trainer]
    layers = [read_yaml(chosen.config), *map(_override, chosen.override)]
    for flag in known.form.flags:
        value = getattr(chosen, flag.name)
        if value is not None:
            key = flag.key.replace("*", known.sections[0]) if known.sections else flag.key
            layers.append(_layer(key, value, f"--{flag.name}"))
    return translate(layers, known, chosen.config.stem.removesuffix("_config"))


def _parser(trainer: str) -> argparse.ArgumentParser:
    form = TRAINERS[trainer].form
    layers, examples = ("older flags", EXAMPLES) if form is COMLRL else ("flags", MAPORL_EXAMPLES)
    parser = argparse.ArgumentParser(
        prog=f"train_{trainer}.py",
        description=f"Trains with {trainer} as the published experiments did; experiments/README.md says what keys become.",
        epilog=LAYERS.format(flags=layers) + examples.format(trainer=trainer),
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
    if form.reloads:
        parser.add_argument(
            "--reload", action="store_true", help="go on with the last run of this config and these flags"
        )
    parser.set_defaults(reload=False)
    flags = parser.add_argument_group(layers)
    for flag in form.flags:
        flags.add_argument(f"--{flag.name}", type=flag.read, nargs="+" if flag.several else None, help=flag.help)
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


def _last(name: str, runs: Path) -> str:
    """The last of NAME, NAME-2, NAME-3, ... that is a run. Raises: ConfigError where none is."""
    taken = list(takewhile(lambda one: (runs / one).exists(), _names(name)))
    if not taken:
        raise ConfigError(f"{runs / name} holds no run to reload; start it without --reload")
    return taken[-1]


def _free(name: str, runs: Path) -> str:
    """The first of NAME, NAME-2, NAME-3, ... that is no run yet: the same command may be given again."""
    return next(one for one in _names(name) if not (runs / one).exists())


def _names(name: str) -> Iterator[str]:
    return (name if number == 1 else f"{name}-{number}" for number in count(1))
