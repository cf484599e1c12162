"""The `motet` command.

Each command calls one function of the Python API. This file only parses arguments; console.py
prints the results.

Exit codes: 0 success; 1 the run failed; 2 the input is wrong and nothing was changed; 130 stopped
by the user.
"""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from motet import __version__
from motet.cli_episodes import episodes
from motet.cli_machine import doctor, plan
from motet.cli_options import AsJson, Overrides, Target, Traceback
from motet.cli_verifier import verifier
from motet.console import (
    out,
    print_comparison,
    print_cost,
    print_episode,
    print_finished,
    print_replay,
    print_tree,
    print_warnings,
)
from motet.console_evaluation import print_baselines, print_crossplay, print_evaluation
from motet.errors import ConfigError, MotetError
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
    add_completion=False,
    pretty_exceptions_enable=False,
    help="""Train several language models to collaborate, with multi-agent reinforcement learning.

    Start with: motet train configs/quickstart.yaml

    A config is a YAML file; keys behind it override it, as in optimizer.learning_rate=5e-6.
    A run lives in runs/NAME; evaluate, play, crossplay and compare take its folder.""",
)

app.add_typer(verifier, name="verifier")
app.command()(episodes)
app.command()(plan)
app.command()(doctor)


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


ConfigArgument = Annotated[Path, typer.Argument(help="A config file (YAML).", show_default=False)]
Runs = Annotated[list[Path], typer.Argument(help="Two or more run folders.", show_default=False)]
Greedy = Annotated[
    bool,
    typer.Option("--greedy", help="Take the most likely token at each step instead of sampling."),
]


class Players(StrEnum):
    """Which team plays in an evaluation."""

    own = "own"
    reference = "reference"


def _check_config(target: Path, overrides: list[str] | None) -> None:
    """Refuse a wrong config before the imports of torch and transformers, which take seconds."""
    from motet.config.load import load_target

    load_target(target, overrides or [])


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
    _check_config(config, overrides)
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
            for seed in _numbers("--seeds", seeds)
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


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len({*map(int, parts)}) < len(parts):
        raise ConfigError(
            f"{option} is {text!r}; expected different whole numbers separated by commas, such as "
            "0,1,2"
        )
    return [int(part) for part in parts]


def print_dry_run(config: "api.ConfigLike", overrides: list[str]) -> None:
    """Print the resolved config, and what a training step samples and how much memory it needs.
    Nothing is started."""
    from motet import api
    from motet.config.load import dump_config

    cost = api.dry_run(config, overrides)
    print(dump_config(api.read_config(config, overrides)))
    print_cost(cost)


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
    _check_config(config, overrides)
    from motet import api

    warm = api.warmup(config, overrides or [], into=into)
    for model, folder in warm.items():
        out.print(f"{model} is in {folder}", soft_wrap=True)
    start = " ".join(
        f"models.{model}.embedded=null models.{model}.path={folder}"
        for model, folder in warm.items()
    )
    out.print(f"train from it with: motet train {config} warmup=null {start}", soft_wrap=True)


Samples = Annotated[
    int | None,
    typer.Option(help="Games per task, instead of evaluation.samples.", show_default=False),
]
PassAt = Annotated[
    str | None,
    typer.Option(
        help="Values of k for pass@k, such as 1,5,10. Default: 1 and the powers of two.",
        show_default=False,
    ),
]
ShuffleTurn = Annotated[
    int | None,
    typer.Option(
        help="After this turn, agents get the replies of another task. This measures whether "
        "messages matter.",
        show_default=False,
    ),
]
Chooser = Annotated[
    str | None,
    typer.Option(
        help="A verifier that chooses among the answers of several games: the address of its "
        "server, or its folder.",
        show_default=False,
    ),
]
BestOf = Annotated[
    str | None,
    typer.Option(
        help="With --verifier: the numbers of games it chooses from, such as 1,2,4,8. The largest "
        "number is played.",
        show_default=False,
    ),
]
Curves = Annotated[
    Path | None,
    typer.Option(
        help="With --verifier: also plot accuracy against tokens to this PNG file.",
        show_default=False,
    ),
]
BaselinesOption = Annotated[
    bool,
    typer.Option(
        "--baselines",
        help="Compare with the untrained team, a single agent, untrained communication, and "
        "best-of-n sampling.",
    ),
]
Single = Annotated[
    str | None,
    typer.Option(
        help="With --baselines: the agent whose policy plays alone. Default: the last agent.",
        show_default=False,
    ),
]
Against = Annotated[
    list[Path] | None,
    typer.Option(
        help="With --baselines: another run on the same tasks. Can be repeated.",
        show_default=False,
    ),
]


@app.command()
def evaluate(
    target: Target,
    overrides: Overrides = None,
    team: Annotated[
        Players,
        typer.Option(
            help="own: the team of the run or config. reference: the solutions of the environment."
        ),
    ] = Players.own,
    greedy: Greedy = False,
    samples: Samples = None,
    pass_at: PassAt = None,
    shuffle_turn: ShuffleTurn = None,
    verifier: Chooser = None,
    best_of: BestOf = None,
    plot: Curves = None,
    baselines: BaselinesOption = False,
    single: Single = None,
    against: Against = None,
    as_json: AsJson = False,
) -> None:
    """Play the held-out tasks and report metrics. docs/evaluation.md explains every metric.

    Example: motet evaluate runs/relay --samples 8 --pass-at 1,8
    """
    _check_config(target, overrides)
    from motet import api

    chosen = {"--best-of": best_of, "--plot": plot}
    plain = {
        "--team": team is not Players.own,
        "--greedy": greedy,
        "--pass-at": pass_at,
        "--shuffle-turn": shuffle_turn,
    }
    _refuse_mixture(
        baselines,
        {**plain, "--verifier": verifier, **chosen},
        {"--single": single, "--against": against},
    )
    _refuse_choice(verifier, chosen)
    _check_picture(plot)
    if baselines:
        figures = api.measure_baselines(
            target, overrides or [], samples=samples, single=single, against=against or []
        )
    else:
        figures = api.evaluate(
            target,
            overrides or [],
            team=team.value,
            greedy=greedy,
            samples=samples,
            pass_at=None if pass_at is None else _numbers("--pass-at", pass_at),
            shuffle_turn=shuffle_turn,
            verifier=verifier,
            best_of=None if best_of is None else _numbers("--best-of", best_of),
        )
    if plot is not None:
        from motet.trainer.plot import selection_curves

        selection_curves(figures["selection"]["turns"], plot)
    if as_json:
        print(json.dumps(figures))
    elif baselines:
        print_baselines(target, figures)
    else:
        print_evaluation(target, figures)


def _refuse_mixture(baselines: bool, plain: dict[str, Any], compared: dict[str, Any]) -> None:
    """Raise ConfigError if options of the plain evaluation and of --baselines are mixed."""
    given = [option for option, value in (plain if baselines else compared).items() if value]
    if given and baselines:
        raise ConfigError(f"got --baselines and {', '.join(given)}; expected only one of them")
    if given:
        raise ConfigError(f"got {', '.join(given)} without --baselines: add --baselines")


def _refuse_choice(verifier: str | None, chosen: dict[str, Any]) -> None:
    given = [option for option, value in chosen.items() if value]
    if given and verifier is None:
        raise ConfigError(f"got {', '.join(given)} without --verifier: add --verifier")


def _check_picture(path: Path | None) -> None:
    """Check the path of a plot before the evaluation, which may take hours."""
    if path is not None and (path.suffix != ".png" or not path.parent.is_dir()):
        raise ConfigError(
            f"--plot is {path}; expected a file that ends in .png, in an existing folder"
        )


@app.command()
def play(
    target: Target,
    overrides: Overrides = None,
    task: Annotated[int, typer.Option(help="The number of the held-out task, from 0.")] = 0,
    greedy: Greedy = False,
    interactive: Annotated[
        str | None,
        typer.Option(
            "--interactive",
            help="Take part by typing: the name of an agent to write its answers, or feedback to "
            "write the feedback between turns.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show how a team plays one task, or take part: as an agent, or by giving feedback between
    turns.

    Example: motet play runs/quickstart --task 3 --interactive aux
    """
    _check_config(target, overrides)
    from motet import api

    try:
        episode = api.play(target, overrides or [], task=task, greedy=greedy, person=interactive)
    except EOFError as error:
        raise ConfigError(
            f"the input ended before the game; expected one line for every turn of {interactive}"
        ) from error
    print_episode(episode)


@app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    step: Annotated[
        int | None,
        typer.Option(help="The step, from 1. Default: the last recorded one.", show_default=False),
    ] = None,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded", help="Train on the recorded episodes instead of sampling again."
        ),
    ] = False,
    episode: Annotated[
        str | None,
        typer.Option(
            help="Only sample this episode again, and show it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Repeat one step of a run exactly, and compare episodes, metrics and weights with the record.

    The replay starts at the last checkpoint before the step. Nothing is written. The exit code is 1
    if anything differs.

    Example: motet replay runs/quickstart --step 12
    """
    from motet import api

    again = api.replay(run, step=step, recorded=recorded, episode=episode)
    if episode is not None:
        print_tree(again.episodes[0])
    print_replay(again)
    if not again.same:
        raise MotetError(
            f"step {again.step} differs from the record: check whether it was recorded on another "
            "machine or with other versions"
        )


@app.command()
def crossplay(
    runs: Runs,
    tasks: Annotated[
        int | None,
        typer.Option(
            help="Number of held-out tasks. Default: evaluation.tasks.", show_default=False
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also plot the matrix to this PNG file.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play the first agent of every run with the other agents of every run: which agents can work
    together?

    Example: motet crossplay runs/quickstart-seed0 runs/quickstart-seed1 --plot cross.png
    """
    from dataclasses import asdict

    from motet import api
    from motet.trainer.plot import cross_matrix

    _check_picture(plot)
    found = api.crossplay(runs, [] if tasks is None else [f"evaluation.tasks={tasks}"])
    if plot is not None:
        cross_matrix(
            found.success,
            [Path(run).name for run in found.runs],
            plot,
            (found.agents[0], ", ".join(found.agents[1:])),
        )
    if as_json:
        print(json.dumps(asdict(found)))
        return
    print_crossplay(found)


@app.command()
def compare(runs: Runs, as_json: AsJson = False) -> None:
    """Compare runs: their metrics, and how their configs differ from the first one.

    Example: motet compare runs/quickstart runs/quickstart_frozen
    """
    from motet import api

    if as_json:
        print(json.dumps(api.compare(runs)))
        return
    print_comparison(api.compare(runs))


@app.command()
def show(config: ConfigArgument, overrides: Overrides = None) -> None:
    """Print the resolved config with all defaults. Saved as a file, it describes the same run.

    Example: motet show configs/relay.yaml train.steps=100
    """
    from motet.config.load import dump_config, load_target

    print(dump_config(load_target(config, overrides or [])), end="")


@app.command()
def check(
    config: ConfigArgument, overrides: Overrides = None, traceback: Traceback = False
) -> None:
    """Check a config: run two steps with tiny models in place of the real ones.

    Example: motet check configs/relay.yaml
    """
    _check_config(config, overrides)
    from motet import api

    with traceback_shown(traceback):
        shown: Literal["auto", "silent"] = "auto" if traceback else "silent"
        summary = api.check(config, overrides or [], shown, traceback)
    out.print(f"{config}: two steps with tiny models succeeded ({summary['wall_seconds']:.0f} s)")
    for part, instead in summary["stand_ins"].items():
        out.print(f"replaced {part}: {instead}")
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
