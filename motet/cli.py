"""The `motet` command.

Each command calls one function of the Python API. This file only parses arguments; console.py
prints the results.

Exit codes: 0 success; 1 the run failed; 2 the input is wrong and nothing was changed; 130 stopped
by the user.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from motet import __version__
from motet.cli_compare import compare
from motet.cli_episodes import episodes
from motet.cli_evaluation import crossplay, evaluate, play, replay
from motet.cli_export import export
from motet.cli_machine import doctor, plan
from motet.cli_options import ConfigArgument, Overrides, Traceback, check_config, numbers
from motet.cli_serve import chat, serve
from motet.cli_verifier import verifier
from motet.cli_view import view
from motet.console import out, print_cost, print_finished, print_warnings
from motet.console_comparison import print_comparison
from motet.errors import ConfigError
from motet.exit_codes import (
    ends_with_one_line,
    new_run_hint,
    resume_hint,
    traceback_shown,
)

if TYPE_CHECKING:
    from motet import api
    from motet.config.schema import RunConfig

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="""Train several language models to collaborate, with multi-agent reinforcement learning.

    Start with: motet train configs/quickstart.yaml

    A config is a YAML file; keys behind it override it, as in optimizer.learning_rate=5e-6.
    A run lives in runs/NAME; evaluate, play, export, crossplay and compare take its folder.""",
)

app.add_typer(verifier, name="verifier")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"motet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the command itself."""


START_AGAIN = "start again with --overwrite"


@app.command()
def train(
    config: ConfigArgument,
    overrides: Overrides = None,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the config and show its cost, without training."),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume the run in runs/NAME from its last checkpoint."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete the run in runs/NAME and start again.")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Train one run per seed, in runs/NAME-seed0 and so on. For example 0,1,2.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="The folder that contains the run folders.")] = Path(
        "runs"
    ),
    traceback: Traceback = False,
) -> None:
    """Run the warm-up, evaluate, train, and evaluate again. All results are in runs/NAME.

    Example: motet train configs/relay.yaml train.steps=100 --seeds 0,1,2
    """
    check_config(config, overrides)
    from motet import api

    with traceback_shown(traceback):
        if dry:
            print_dry_run(config, overrides or [])
            return
        if seeds is None:
            settled = api.read_config(config, overrides or [])
            _train_one(settled, runs, resume, overwrite, traceback)
            return
        settings = [
            api.read_config(config, [*(overrides or []), f"seed={seed}"])
            for seed in numbers("--seeds", seeds)
        ]
        _train_all(settings, runs, resume, overwrite, traceback)


def _train_one(
    settings: "RunConfig", runs: Path, resume: bool, overwrite: bool, traceback: bool
) -> None:
    from motet import api

    with resume_hint(runs, settings.name), new_run_hint(START_AGAIN):
        summary = api.train(
            settings, resume=resume, overwrite=overwrite, runs=runs, traceback=traceback
        )
        print_finished(summary, runs)


def _train_all(
    settings: Sequence["RunConfig"], runs: Path, resume: bool, overwrite: bool, traceback: bool
) -> None:
    """Train several runs one after the other and print their comparison. Their names contain their
    seeds."""
    from motet import api

    if resume and overwrite:
        raise ConfigError("got --resume and --overwrite, expected at most one of them")
    named = [one.model_copy(update={"name": f"{one.name}-seed{one.seed}"}) for one in settings]
    folders = [runs / one.name for one in named]
    taken = [str(folder) for folder in folders if folder.exists() and not (resume or overwrite)]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)} exist; expected new names: --resume continues these runs, "
            "--overwrite deletes them and starts again"
        )
    for one, folder in zip(named, folders, strict=True):
        begun = resume and (folder / "config.yaml").exists()
        _train_one(one, runs, begun, overwrite, traceback)
    if len(folders) > 1:
        print_comparison(api.compare(folders))


def print_dry_run(config: "api.ConfigLike", overrides: list[str]) -> None:
    """Print the resolved config, and what a training step samples and how much memory it needs.
    Nothing is started."""
    from motet import api
    from motet.config.load import dump_config
    from motet.console_plan import print_expected

    cost = api.dry_run(config, overrides)
    print(dump_config(api.read_config(config, overrides)))
    print_cost(cost)
    if cost.expected is not None:
        print_expected(cost.expected)


@app.command()
def warmup(
    config: ConfigArgument,
    overrides: Overrides = None,
    into: Annotated[
        Path | None,
        typer.Option(
            help="The folder for the models. Default: runs/NAME-warmup.", show_default=False
        ),
    ] = None,
) -> None:
    """Run only the supervised warm-up, on the environment's demonstrations or solutions.

    Example: motet warmup configs/quickstart.yaml warmup.steps=200 --into models/warm
    """
    check_config(config, overrides)
    from motet import api

    warm = api.warmup(config, overrides or [], into=into)
    for model, folder in warm.items():
        out.print(f"{model} is in {folder}", soft_wrap=True)
    start = " ".join(
        f"models.{model}.embedded=null models.{model}.path={folder}"
        for model, folder in warm.items()
    )
    out.print(f"train from it with: motet train {config} warmup=null {start}", soft_wrap=True)


for command in (
    evaluate, play, compare, episodes, view, replay, crossplay, chat, serve, export, plan, doctor
):  # fmt: skip
    app.command()(command)


@app.command()
def show(config: ConfigArgument, overrides: Overrides = None) -> None:
    """Print the resolved config with all defaults. Saved as a file, it describes the same run.

    Nothing that it names is loaded.

    Example: motet show configs/relay.yaml train.steps=100
    """
    from motet.config.load import dump_config, load_recorded

    print(dump_config(load_recorded(config, overrides or [])), end="")


@app.command()
def check(
    config: ConfigArgument, overrides: Overrides = None, traceback: Traceback = False
) -> None:
    """Check a config: run two steps with tiny models in place of the real ones.

    Example: motet check configs/relay.yaml
    """
    check_config(config, overrides)
    from motet import api

    with traceback_shown(traceback):
        shown: Literal["auto", "silent"] = "auto" if traceback else "silent"
        summary = api.check(config, overrides or [], shown, traceback)
    out.print(f"{config}: two steps with tiny models succeeded ({summary['wall_seconds']:.0f} s)")
    for part, instead in summary["stand_ins"].items():
        out.print(f"replaced {part}: {instead}")
    for line in summary["notes"]:
        out.print(line, soft_wrap=True)
    print_warnings(summary["warnings"])


def main() -> None:
    """The command `motet`."""
    ends_with_one_line(_run)


def _run() -> None:
    """Run the command. A wrong option or argument is an error of one line, like all others."""
    try:
        code = app(prog_name="motet", standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(2)
        command = error.ctx.command_path if error.ctx is not None else "motet"
        said = error.format_message().rstrip(".")
        raise ConfigError(f"{said}: see {command} --help") from error
    sys.exit(code if isinstance(code, int) else 0)


_UsageError: Any = typer.BadParameter.__mro__[1]
"""The base class of wrong options and arguments. typer has it from click, or from a copy of it."""
