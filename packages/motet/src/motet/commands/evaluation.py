"""The commands that play without training: evaluate, play, replay, crossplay."""

from pathlib import Path
from typing import Annotated

import typer

from motet.commands.console import print_json, print_replay, say_on_stderr
from motet.commands.episodes import print_episode
from motet.commands.evaluation_tables import print_baselines, print_crossplay, print_evaluation
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, Traceback, check_picture
from motet.errors import ConfigError, MotetError

_SAID_OTHERWISE = ("--team", "--shuffle-turn", "--blank-turn", "--traceback")
"""Options that the name of a kept evaluation says, or that change nothing that is played."""


@of_api("motet.api.evaluation:evaluate", "motet.api.comparing:measure_baselines")
def evaluate(
    play: ApiCall,
    compare: ApiCall,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Compare with the untrained team, a single agent, untrained communication, and "
            "best-of-n sampling. --single and --against belong to it.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play the held-out tasks and report metrics. docs/evaluation.md explains every metric.

    Example: motet evaluate runs/relay --samples 8 --pass-at 1,8
    """
    target = play.values["target"]
    _refuse_mixture(play, compare, baselines)
    from motet.api.keeping import Keeper

    keeper, asked = Keeper([target]), compare if baselines else play
    found = asked()
    said = [*asked.words(but=_SAID_OTHERWISE), *play.values["overrides"]]
    kept = keeper.keep("baselines" if baselines else _kind(play), said, found)
    if as_json:
        print_json(found)
    else:
        (print_baselines if baselines else print_evaluation)(target, found)
    say_on_stderr(kept)


def _kind(play: ApiCall) -> str:
    """Return the name under which an evaluation is kept in its run."""
    for how in ("shuffle", "blank"):
        if (turn := play.values[f"{how}_turn"]) is not None:
            return f"{'shuffled' if how == 'shuffle' else how}-turn-{turn}"
    return "reference" if play.values["team"] == "reference" else "evaluation"


def _refuse_mixture(play: ApiCall, compare: ApiCall, baselines: bool) -> None:
    """Raise ConfigError if options of the plain evaluation and of --baselines are mixed."""
    plain = [flag for flag in play.typed if flag not in compare.known]
    compared = [flag for flag in compare.typed if flag not in play.known]
    if baselines and plain:
        raise ConfigError(f"got --baselines and {', '.join(plain)}; expected only one of them")
    if compared and not baselines:
        raise ConfigError(f"got {', '.join(compared)} without --baselines: add --baselines")


@of_api("motet.api.evaluation:play")
def play(call: ApiCall, traceback: Traceback = False) -> None:
    """Show how a team plays one task, or take part: as an agent, or by giving feedback between
    turns.

    Example: motet play runs/quickstart --task 3 --interactive aux
    """
    try:
        episode = call()
    except EOFError as error:
        raise ConfigError(
            "the input ended before the game; expected one line for every turn of "
            f"{call.values['interactive']}"
        ) from error
    print_episode(episode, traceback=traceback)


@of_api("motet.api.replaying:replay")
def replay(call: ApiCall) -> None:
    """Repeat one step of a run exactly, and compare episodes, metrics and weights with the record.

    The replay starts at the last checkpoint before the step. Nothing is written. The exit code is 1
    if anything differs.

    Example: motet replay runs/quickstart --step 12
    """
    again = call()
    if call.values["episode"] is not None:
        print_episode(again.episodes[0])
    print_replay(again)
    if not again.same:
        raise MotetError(
            f"step {again.step} differs from the record: "
            + (
                "the code has changed, as said above"
                if again.code_changed
                else "check whether it was recorded on another machine or with other versions"
            )
        )


@of_api("motet.api.comparing:crossplay", leave_out=("overrides",))
def crossplay(
    call: ApiCall,
    plot: Annotated[
        Path | None, typer.Option(help="Also plot the matrix to this PNG file.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play the first agent of every run with the other agents of every run: which agents can work
    together?

    Example: motet crossplay runs/quickstart-seed0 runs/quickstart-seed1 --plot cross.png
    """
    check_picture(plot)
    from motet.api.keeping import Keeper

    runs = call.values["runs"]
    keeper = Keeper(runs)
    found = call()
    together = len({run.resolve().parent for run in runs}) == 1
    names = [run.resolve().name if together else str(run) for run in runs]
    kept = keeper.keep("crossplay", [*names, *call.words()], found)
    if plot is not None:
        from motet.trainer.plot import cross_matrix

        cross_matrix(
            found.success,
            [Path(run).name for run in found.runs],
            plot,
            (found.agents[0], ", ".join(found.agents[1:])),
        )
    if as_json:
        print_json(found)
    else:
        print_crossplay(found)
    say_on_stderr(kept)
