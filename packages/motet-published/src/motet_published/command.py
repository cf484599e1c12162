"""The command of the published experiments, shared by all trainers.

It reads the command line, translates the config, and trains like `motet train`.

    python experiments/train_magrpo.py --config experiments/configs/magrpo_he_config.yaml \\
        --override KEY=VALUE ...
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from motet.commands.console import out, print_finished
from motet.commands.exit_codes import ends_with_one_line, new_run_hint
from motet.commands.main import print_dry_run
from motet.config.load import make_config
from motet.config.no_effect import keys_without_effect
from motet.config.schema import RunConfig
from motet.config.yaml import Document, KeyPath, place_of, read_value, read_yaml
from motet.errors import ConfigError
from motet_published.python_config import read_python_config
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation

EPILOG = """\
Overrides replace keys of the config, and flags replace both. The last value counts. Examples:

"""
COMLRL_EXAMPLES = """\
  python experiments/train_{trainer}.py --config experiments/configs/{trainer}_he_config.yaml \
--dry-run
  python experiments/train_{trainer}.py --config experiments/configs/{trainer}_he_config.yaml \\
      --override model_name=Qwen/Qwen2.5-Coder-7B {trainer}.learning_rate=5e-6 \
motet.train.checkpoint_every=20"""
MAPORL_EXAMPLES = """\
  python experiments/train_maporl.py --config experiments/configs/maporl_gsm8k_2x2.yaml \
--alpha "[0, 2, 2, 0]"
  python experiments/train_maporl.py --config experiments/configs/maporl_gsm8k_2x2.yaml \
--alpha "[0, 2, 2, 0]" --reload
  python experiments/train_maporl.py --config experiments/configs/maporl_gsm8k_2x2.yaml \
--dry-run \\
      --override base_model=Qwen/Qwen2.5-1.5B-Instruct rule_discount=0.5 \
motet.train.steps=100"""
COMLRL_FLAGS: dict[str, tuple[str, dict[str, Any]]] = {
    "model_name": ("model_name", {"help": "model.name"}),
    "output_base_dir": ("output.base_dir", {"help": "output.base_dir"}),
    "num_epochs": ("{trainer}.num_train_epochs", {"type": int, "help": "num_train_epochs"}),
    "num_turns": ("{trainer}.num_turns", {"type": int, "help": "num_turns"}),
    "turn_gradient_weights": (
        "{trainer}.turn_gradient_weights",
        {"type": float, "nargs": "+", "help": "one per turn"},
    ),
}
"""Flag -> (the published key that it sets, its options for argparse)."""
MAPORL_FLAGS: dict[str, tuple[str, dict[str, Any]]] = {
    "alpha": (
        "alpha",
        {
            "type": lambda text: read_value(text, "--alpha"),
            "help": "the incentives: [alpha0, alpha1, beta0, beta1]",
        },
    ),
}
PYTHON = {"None": None, "True": True, "False": False}
"""Values in Python syntax, which the published trainers accept too."""


def main(trainer: str, arguments: Sequence[str] | None = None) -> None:
    """Run `trainer`, a name in TRAINERS, with the command line. Exit codes are those of `motet`."""
    ends_with_one_line(lambda: _run(trainer, arguments))


def _run(trainer: str, arguments: Sequence[str] | None) -> None:
    chosen = _parser(trainer).parse_args(arguments)
    translated = translated_from(trainer, chosen)
    config = config_of(translated)
    for note in translated.notes:
        out.print(f"  {note}", soft_wrap=True)
    if chosen.dry_run:
        print_dry_run(config, [])
        return
    from motet import api  # imports torch

    name = (
        _last(config.name, translated.runs)
        if chosen.reload
        else _free(config.name, translated.runs)
    )
    config = config.model_copy(update={"name": name})
    with new_run_hint("start a new run: the same command without --reload"):
        summary = api.train(config, resume=chosen.reload, runs=translated.runs)
    print_finished(summary, translated.runs)


def translated_from(trainer: str, chosen: argparse.Namespace) -> Translation:
    """Translate the command line: overrides replace the config file, and flags replace both."""
    layers = [*_config_files(chosen.config, trainer), *map(_override, chosen.override)]
    for flag, (key, _) in _flags(trainer).items():
        value = vars(chosen)[flag]
        if value is not None:
            layers.append(_layer(key.format(trainer=trainer), value, f"--{flag}"))
    return translate(layers, TRAINERS[trainer], chosen.config.stem.removesuffix("_config"))


def _config_file(path: Path) -> Document:
    is_python = path.suffix == ".py"
    return read_python_config(path) if is_python else read_yaml(path, last_counts=True)


def _config_files(path: Path, trainer: str, above: Sequence[Path] = ()) -> list[Document]:
    """Return a config and those that it extends, the lowest first.

    The section `magrpo` of a file that a config of another trainer extends does not count, as
    published.

    Raises: ConfigError if a file extends itself.
    """
    document = _config_file(path)
    if "extends" not in document.data:
        return [document]
    base = document.data.pop("extends")
    place, chain = place_of(document.places, ("extends",)), (*above, path.resolve())
    if not isinstance(base, str) or (path.parent / base).resolve() in chain:
        raise ConfigError(
            f"{place}: extends: got {base!r}, expected the path of a file that does not extend "
            "this one"
        )
    layers = _config_files(path.parent / base, trainer, chain)
    if trainer != "magrpo":
        layers = [replace(one, data=_without(one.data, "magrpo")) for one in layers]
    return [*layers, document]


def _without(data: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != section}


def config_of(translated: Translation) -> RunConfig:
    """Return Motet's config. Published keys without effect are dropped and noted.

    Motet's own keys without effect stay, so training refuses them.
    """

    def made() -> RunConfig:
        return make_config(translated.config.data, translated.overrides, translated.config.places)

    config = made()
    dropped = [translated.drop(key.path, key.why) for key in keys_without_effect(config)]
    return made() if any(dropped) else config


def _parser(trainer: str) -> argparse.ArgumentParser:
    examples = MAPORL_EXAMPLES if trainer == "maporl" else COMLRL_EXAMPLES
    parser = argparse.ArgumentParser(
        prog=f"train_{trainer}.py",
        description=(
            f"Train with {trainer} as in the published experiments. experiments/README.md "
            "explains how keys are translated."
        ),
        epilog=EPILOG + examples.format(trainer=trainer),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        help="a config with the keys of the published experiments",
    )
    parser.add_argument(
        "--override",
        nargs="*",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help=(
            "set a key; the value is YAML; can be repeated. motet.KEY=VALUE sets one of Motet's "
            "own keys"
        ),
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show Motet's config and the cost without training"
    )
    if trainer == "maporl":
        parser.add_argument(
            "--reload",
            action="store_true",
            help="resume the last run of this config and these flags",
        )
    parser.set_defaults(reload=False)
    group = parser.add_argument_group("flags")
    for flag, (_, options) in _flags(trainer).items():
        group.add_argument(f"--{flag}", **options)
    return parser


def _flags(trainer: str) -> dict[str, tuple[str, dict[str, Any]]]:
    return MAPORL_FLAGS if trainer == "maporl" else COMLRL_FLAGS


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
    """Return the last of NAME, NAME-2, NAME-3, ... that is a run. Raises ConfigError if none is."""
    from motet.trainer.run_folder import holds_run

    taken = takewhile(lambda one: (runs / one).exists(), _names(name))
    found = [one for one in taken if holds_run(runs / one)]
    if not found:
        raise ConfigError(f"{runs / name} holds no run to reload; start it without --reload")
    return found[-1]


def _free(name: str, runs: Path) -> str:
    """Return the first of NAME, NAME-2, NAME-3, ... that is not a run yet.

    So the same command can be used again.
    """
    return next(one for one in _names(name) if not (runs / one).exists())


def _names(name: str) -> Iterator[str]:
    return (name if number == 1 else f"{name}-{number}" for number in count(1))
