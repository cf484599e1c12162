"""The `motet` command.

Each command calls one function of the Python API. This file only parses arguments; console.py
prints the results.

Exit codes: 0 success; 1 the run failed; 2 the input is wrong and nothing was changed; 130 stopped
by the user.
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.cli_options import AsJson, Overrides, Target
from motet.cli_verifier import verifier
from motet.console import (
    out,
    print_baselines,
    print_comparison,
    print_cost,
    print_crossplay,
    print_episode,
    print_evaluation,
    print_finished,
    print_replay,
    print_tree,
)
from motet.errors import ConfigError, MotetError
from motet.exit_codes import ends_with_one_line, resume_hint

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

ConfigArgument = Annotated[Path, typer.Argument(help="A config file (YAML).", show_default=False)]
Runs = Annotated[list[Path], typer.Argument(help="Two or more run folders.", show_default=False)]
Greedy = Annotated[
    bool, typer.Option("--greedy", help="Take the likeliest tokens instead of sampling.")
]


class Players(StrEnum):
    """Which team plays in an evaluation."""

    own = "own"
    reference = "reference"


@app.command()
def train(
    config: ConfigArgument,
    overrides: Overrides = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything, show the config and the cost, start nothing."
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in runs/NAME from its last checkpoint."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete the run in runs/NAME and start anew.")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(help="Several runs, NAME-seed0 and so on: 0,1,2.", show_default=False),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
) -> None:
    """Run the warm-up, evaluate, train, and evaluate again. All results are in runs/NAME.

    Example: motet train configs/relay.yaml train.steps=100 --seeds 0,1,2
    """
    from motet import api

    if dry:
        print_dry_run(config, overrides or [])
        return
    if seeds is None:
        settled = api.read_config(config, overrides or [])
        with resume_hint(runs, settled.name):
            print_finished(api.train(settled, resume=resume, overwrite=overwrite, runs=runs), runs)
        return
    settings = [
        api.read_config(config, [*(overrides or []), f"seed={seed}"])
        for seed in _numbers("--seeds", seeds)
    ]
    _train_all(settings, runs, resume, overwrite)


def _train_all(settings: Sequence["RunConfig"], runs: Path, resume: bool, overwrite: bool) -> None:
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
            f"{', '.join(taken)} exist; --resume goes on with those runs, --overwrite starts them "
            f"anew"
        )
    for one, folder in zip(named, folders, strict=True):
        begun = resume and (folder / "config.yaml").exists()
        with resume_hint(runs, one.name):
            print_finished(api.train(one, resume=begun, overwrite=overwrite, runs=runs), runs)
    if len(folders) > 1:
        print_comparison(api.compare(folders))


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len({*map(int, parts)}) < len(parts):
        raise ConfigError(
            f"{option} is {text!r}; expected different whole numbers with commas, such as 0,1,2"
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
        typer.Option(help="Where the models go; runs/NAME-warmup unless set.", show_default=False),
    ] = None,
) -> None:
    """Run only the supervised warm-up, on the environment's demonstrations or solutions.

    Example: motet warmup configs/quickstart.yaml warmup.steps=200 --into models/warm
    """
    from motet import api

    warm = api.warmup(config, overrides or [], into=into)
    for model, folder in warm.items():
        out.print(f"{model} is in {folder}", soft_wrap=True)
    start = " ".join(
        f"models.{model}.embedded=null models.{model}.path={folder}"
        for model, folder in warm.items()
    )
    out.print(f"start from there: motet train {config} warmup=null {start}", soft_wrap=True)


Samples = Annotated[
    int | None,
    typer.Option(help="Games per task, in place of evaluation.samples.", show_default=False),
]
PassAt = Annotated[
    str | None,
    typer.Option(
        help="The k of pass@k, such as 1,5,10; 1 and the powers of two unless set.",
        show_default=False,
    ),
]
ShuffleTurn = Annotated[
    int | None,
    typer.Option(
        help="After this turn everyone hears what was said on another task: does the message "
        "matter?",
        show_default=False,
    ),
]
Chooser = Annotated[
    str | None,
    typer.Option(
        help="The address of a verifier's server, or the folder of a verifier: it chooses among "
        "the answers of several games.",
        show_default=False,
    ),
]
BestOf = Annotated[
    str | None,
    typer.Option(
        help="With --verifier: among how many games it chooses, such as 1,2,4,8. As many are "
        "played as the largest needs.",
        show_default=False,
    ),
]
Curves = Annotated[
    Path | None,
    typer.Option(
        help="With --verifier: also draw accuracy against tokens to this PNG.", show_default=False
    ),
]
BaselinesOption = Annotated[
    bool,
    typer.Option(
        "--baselines",
        help="Beside the untrained team, one agent alone, talking untrained, and the best of n "
        "samples.",
    ),
]
Single = Annotated[
    str | None,
    typer.Option(
        help="With --baselines: the agent whose policy plays alone; the last one unless set.",
        show_default=False,
    ),
]
Against = Annotated[
    list[Path] | None,
    typer.Option(
        help="With --baselines: another run on the same tasks; may be given again.",
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
            help="own: the run's or config's team; reference: the environment's own solutions."
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
        raise ConfigError(f"got --baselines and {', '.join(given)}; expected one of them at a time")
    if given:
        raise ConfigError(f"{', '.join(given)} says what to compare with: add --baselines")


def _refuse_choice(verifier: str | None, chosen: dict[str, Any]) -> None:
    given = [option for option, value in chosen.items() if value]
    if given and verifier is None:
        raise ConfigError(f"{', '.join(given)} is about what a verifier chooses: add --verifier")


def _check_picture(path: Path | None) -> None:
    """Check the path of a plot before the evaluation, which may take hours."""
    if path is not None and (path.suffix != ".png" or not path.parent.is_dir()):
        raise ConfigError(
            f"--plot is {path}; expected a file that ends in .png, in a folder that exists"
        )


@app.command()
def play(
    target: Target,
    overrides: Overrides = None,
    task: Annotated[int, typer.Option(help="Which held-out task, from 0.")] = 0,
    greedy: Greedy = False,
    interactive: Annotated[
        str | None,
        typer.Option(
            "--interactive",
            help="Take part: an agent's name, its answers are typed here; or feedback, what "
            "everybody is told between turns is.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show how a team plays one task, or take part: as an agent, or by giving feedback between
    turns.

    Example: motet play runs/quickstart --task 3 --interactive aux
    """
    from motet import api

    try:
        episode = api.play(target, overrides or [], task=task, greedy=greedy, person=interactive)
    except EOFError as error:
        raise ConfigError(
            f"what was typed ended before the game; expected one line for every turn of "
            f"{interactive}"
        ) from error
    print_episode(episode)


@app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    step: Annotated[
        int | None,
        typer.Option(
            help="Which step, from 1; the last one on record unless set.", show_default=False
        ),
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Learn from the episodes on record; sample nothing.")
    ] = False,
    episode: Annotated[
        str | None,
        typer.Option(
            help="Only sample again the waves that made this episode, and show it.",
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
            f"step {again.step} came out differently: was it recorded on another machine, or with "
            f"other versions?"
        )


@app.command()
def crossplay(
    runs: Runs,
    tasks: Annotated[
        int | None, typer.Option(help="Only the first so many held-out tasks.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the matrix to this PNG.", show_default=False)
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
    from motet import api
    from motet.config.load import dump_config

    print(dump_config(api.read_config(config, overrides or [])), end="")


@app.command()
def check(config: ConfigArgument, overrides: Overrides = None) -> None:
    """Check a config: run two steps with tiny models in place of the real ones.

    Example: motet check configs/relay.yaml
    """
    from motet import api

    summary = api.check(config, overrides or [])
    out.print(
        f"{config}: two steps with tiny models went through ({summary['wall_seconds']:.0f} s)"
    )
    for part, instead in summary["stand_ins"].items():
        out.print(f"in place of the {part}: {instead}")


def main() -> None:
    """The command `motet`."""
    ends_with_one_line(lambda: app(prog_name="motet"))
