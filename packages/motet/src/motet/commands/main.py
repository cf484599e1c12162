"""The `motet` command.

Each command calls one function of the Python API. This file only parses arguments; console.py
prints the results. Installed packages add commands of their own.

Exit codes: 0 success; 1 the run failed; 2 the input is wrong and nothing was changed; 130 stopped
by the user.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet import __version__
from motet.commands.console import out, print_cost, print_finished, print_warnings
from motet.commands.evaluation import evaluate, play
from motet.commands.exit_codes import (
    ends_with_one_line,
    new_run_hint,
    resume_hint,
    traceback_shown,
)
from motet.commands.from_api import ApiCall, of_api
from motet.commands.keys import keys
from motet.commands.machine import doctor
from motet.commands.options import ConfigArgument, Overrides, parts_of
from motet.commands.panels import InPanels, panel_of
from motet.commands.starting import examples, init, print_first
from motet.errors import ConfigError
from motet.user_code.installed import EXTRAS, installed, load, missing, package_of

if TYPE_CHECKING:
    from motet import api
    from motet.config.schema import RunConfig

app = typer.Typer(
    cls=InPanels,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="""Train several language models to collaborate, with multi-agent reinforcement learning.

    Start with motet train quickstart, and a game of your own with motet init my_team.

    A config is a YAML file; keys behind it override it, as in optimizer.learning_rate=5e-6.
    A run lives in runs/NAME; evaluate, play and others take its folder.""",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"motet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the command itself. Without a command: what to type first."""
    if context.invoked_subcommand is None:
        print_first()


START_AGAIN = "start again with --overwrite"


@app.command()
@of_api("motet.api.training:train")
def train(
    call: ApiCall,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the config and show its cost, without training."),
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Train one run per seed, in runs/NAME-seed0 and so on. For example 0,1,2.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the warm-up, evaluate, train, and evaluate again. All results are in runs/NAME.

    Example: motet train relay train.steps=100 --seeds 0,1,2
    """
    from motet import api

    config, overrides = call.values["config"], call.values["overrides"]
    with traceback_shown(call.values["traceback"]):
        if dry:
            print_dry_run(config, overrides)
        elif seeds is None:
            _train_one(call, api.read_config(config, overrides))
        else:
            numbers = parts_of("--seeds", seeds, int)
            _train_all(
                call, [api.read_config(config, [*overrides, f"seed={seed}"]) for seed in numbers]
            )


def _train_one(call: ApiCall, settings: "RunConfig", *, resume: bool | None = None) -> None:
    runs = call.values["runs"]
    resume = call.values["resume"] if resume is None else resume
    with resume_hint(runs, settings.name), new_run_hint(START_AGAIN):
        print_finished(call(config=settings, overrides=(), resume=resume), runs)


def _train_all(call: ApiCall, settings: Sequence["RunConfig"]) -> None:
    """Train several runs one after the other. Their names contain their seeds."""
    resume, overwrite = call.values["resume"], call.values["overwrite"]
    if resume and overwrite:
        raise ConfigError("got --resume and --overwrite, expected at most one of them")
    named = [one.model_copy(update={"name": f"{one.name}-seed{one.seed}"}) for one in settings]
    folders = [call.values["runs"] / one.name for one in named]
    taken = [str(folder) for folder in folders if folder.exists() and not (resume or overwrite)]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)} exist; expected new names: --resume continues these runs, "
            "--overwrite deletes them and starts again"
        )
    for one, folder in zip(named, folders, strict=True):
        _train_one(call, one, resume=resume and (folder / "config.yaml").exists())
    if len(folders) > 1:
        together = " ".join(map(str, folders))
        out.print(f"the statistics over seeds: motet compare {together}", soft_wrap=True)


def print_dry_run(config: "api.ConfigLike", overrides: Sequence[str]) -> None:
    """Print the resolved config, and what a training step samples and how much memory it needs.
    Nothing is started."""
    from motet import api
    from motet.config.load import dump_config

    cost = api.dry_run(config, overrides)
    print(dump_config(api.read_config(config, overrides)))
    print_cost(cost)


@app.command()
@of_api("motet.api.training:warmup")
def warmup(call: ApiCall) -> None:
    """Run only the supervised warm-up, on the environment's demonstrations or solutions.

    Example: motet warmup quickstart warmup.steps=200 --into models/warm
    """
    warm = call()
    for model, folder in warm.items():
        out.print(f"{model} is in {folder}", soft_wrap=True)
    start = " ".join(f"models.{model}.path={folder}" for model, folder in warm.items())
    out.print(
        f"train from it with: motet train {call.values['config']} warmup=null {start}",
        soft_wrap=True,
    )


@app.command()
@of_api("motet.api.distillation:distill")
def distill(call: ApiCall) -> None:
    """Train one policy to play all agents of a trained team as the team does, for a single model to
    deploy.

    Example: motet distill runs/quickstart
    """
    with traceback_shown(call.values["traceback"]), new_run_hint(START_AGAIN):
        print_finished(call(), call.values["runs"])


for command in (init, examples, keys, evaluate, play, doctor):
    app.command()(command)


@app.command()
def configs(
    name: Annotated[str | None, typer.Argument(help="Print this config.")] = None,
) -> None:
    """List the configs that are installed, or print one, to copy and change.

    Example: motet configs quickstart > mine.yaml
    """
    from motet.config.paths import named_configs
    from motet.user_code.plugins import nearest

    there = named_configs()
    if name is not None:
        if name not in there:
            raise ConfigError(
                f"{name!r} is no installed config"
                f"{missing('configs', name) or nearest(name, there)}; motet configs lists them"
            )
        print(there[name].read_text(), end="")
        return
    width = max(map(len, there))
    for each, path in there.items():
        out.print(f"{each:{width}}  {_first_comment(path)}", soft_wrap=True)


def _first_comment(path: Path) -> str:
    """Return the first sentence of the comment at the top of a config."""
    lines = path.read_text().splitlines()
    comment = " ".join(
        line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines)
    )
    return comment.partition(". ")[0]


@app.command()
def show(config: ConfigArgument, overrides: Overrides = None) -> None:
    """Print the resolved config with all defaults. Saved as a file, it describes the same run.

    Nothing that it names is loaded.

    Example: motet show relay train.steps=100
    """
    from motet.config.load import dump_config, load_recorded

    print(dump_config(load_recorded(config, overrides or [])), end="")


@app.command()
@of_api("motet.api.dry_runs:check")
def check(call: ApiCall) -> None:
    """Check a config: run two steps with tiny models in place of the real ones.

    Example: motet check relay
    """
    traceback = call.values["traceback"]
    with traceback_shown(traceback):
        found = call(show="auto" if traceback else "silent")
    seconds = f"{found.summary.wall_seconds:.0f} s"
    out.print(f"{call.values['config']}: two steps with tiny models succeeded ({seconds})")
    for part, instead in found.stand_ins.items():
        out.print(f"replaced {part}: {instead}")
    for line in found.notes:
        out.print(line, soft_wrap=True)
    print_warnings(found.warnings)


@cache
def whole_app() -> typer.Typer:
    """Return the command line with the commands of installed packages.

    One that cannot be loaded says why when it is used, and so does one whose package is missing.
    Raises: ConfigError if two packages register one command, or one registers a command of Motet.
    """
    own = {one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands}
    absent = {
        name: f"motet {name} is not installed{why}"
        for groups in EXTRAS.values()
        for name in groups.get("commands", ())
        if (why := missing("commands", name))
    }
    for name, point in installed("commands").items():
        if name in own:
            raise ConfigError(
                f"{package_of(point)} registers the command {name!r}, which Motet has itself; "
                "expected another name: uninstall the package, or ask its authors to rename it"
            )
        try:
            command = load("commands", name)
        except ConfigError as error:
            absent[name] = str(error)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    for one in app.registered_commands:
        one.rich_help_panel = panel_of(str(one.name or getattr(one.callback, "__name__", "")))
    for group in app.registered_groups:
        group.rich_help_panel = panel_of(str(group.name))
    for name, why in absent.items():
        app.command(
            name,
            hidden=True,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_refusing(why))
    return app


def _refusing(text: str) -> Callable[[typer.Context], None]:
    def refuse(context: typer.Context) -> None:
        raise ConfigError(text)

    return refuse


def main() -> None:
    """The command `motet`."""
    ends_with_one_line(_run)


def _run() -> None:
    """Run the command. A wrong option or argument is an error of one line, like all others."""
    try:
        code = whole_app()(prog_name="motet", standalone_mode=False)
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
