"""The commands that play without training: evaluate, play, replay, crossplay."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from motet.commands.console import print_episode, print_replay, print_tree
from motet.commands.evaluation_tables import print_baselines, print_crossplay, print_evaluation
from motet.commands.options import (
    Against,
    AsJson,
    BaselinesOption,
    BestOf,
    BlankTurn,
    Chooser,
    Curves,
    Greedy,
    Overrides,
    PassAt,
    Players,
    RunArgument,
    Runs,
    Samples,
    ShuffleTurn,
    Single,
    Target,
    TeamOption,
    Traceback,
    check_config,
    check_picture,
    numbers,
)
from motet.errors import ConfigError, MotetError
from motet.safety.visible import visible

_SAID_OTHERWISE = ("--team", "--shuffle-turn", "--blank-turn", "--plot", "--traceback")


def evaluate(
    target: Target,
    overrides: Overrides = None,
    team: TeamOption = Players.own,
    greedy: Greedy = False,
    samples: Samples = None,
    pass_at: PassAt = None,
    shuffle_turn: ShuffleTurn = None,
    blank_turn: BlankTurn = None,
    verifier: Chooser = None,
    best_of: BestOf = None,
    plot: Curves = None,
    baselines: BaselinesOption = False,
    single: Single = None,
    against: Against = None,
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """Play the held-out tasks and report metrics. docs/evaluation.md explains every metric.

    Example: motet evaluate runs/relay --samples 8 --pass-at 1,8
    """
    check_config(target, overrides)
    from motet.api.keeping import Keeper

    asked = {
        "--team": team is not Players.own,
        "--greedy": greedy,
        "--samples": samples,
        "--pass-at": pass_at,
        "--shuffle-turn": shuffle_turn,
        "--blank-turn": blank_turn,
        "--verifier": verifier,
        "--best-of": best_of,
        "--plot": plot,
        "--single": single,
        "--against": against,
        "--traceback": traceback,
    }
    _refuse_mixture(baselines, asked)
    keeper = Keeper([target])
    figures = _figures(target, overrides or [], baselines, asked)
    kept = keeper.keep(_kind(baselines, asked), [*_given(asked), *(overrides or [])], figures)
    _plot_selection(figures, plot)
    if as_json:
        print(json.dumps(figures))
    else:
        (print_baselines if baselines else print_evaluation)(target, figures)
    _say(kept)


def _figures(
    target: Path, overrides: list[str], baselines: bool, asked: dict[str, Any]
) -> dict[str, Any]:
    from motet import api

    if baselines:
        return api.measure_baselines(
            target,
            overrides,
            samples=asked["--samples"],
            single=asked["--single"],
            against=asked["--against"] or [],
        )
    return api.evaluate(
        target,
        overrides,
        team="reference" if asked["--team"] else "own",
        greedy=asked["--greedy"],
        samples=asked["--samples"],
        pass_at=_counts("--pass-at", asked["--pass-at"]),
        shuffle_turn=asked["--shuffle-turn"],
        blank_turn=asked["--blank-turn"],
        verifier=asked["--verifier"],
        best_of=_counts("--best-of", asked["--best-of"]),
        traceback=asked["--traceback"],
    )


def _kind(baselines: bool, asked: dict[str, Any]) -> str:
    """Return the name under which an evaluation is kept in its run."""
    for how in ("shuffle", "blank"):
        if (turn := asked[f"--{how}-turn"]) is not None:
            return f"{'shuffled' if how == 'shuffle' else how}-turn-{turn}"
    return "reference" if asked["--team"] else "baselines" if baselines else "evaluation"


def _given(options: dict[str, Any]) -> list[str]:
    """Return the options that were given and change what is played, as they are typed."""
    said = []
    for name, value in options.items():
        if value and name not in _SAID_OTHERWISE:
            values = value if isinstance(value, list) else [value]
            said += [name if one is True else f"{name} {one}" for one in values]
    return said


def _say(lines: list[str]) -> None:
    """Print lines on standard error, so that --json stays one object."""
    for line in lines:
        print(visible(line), file=sys.stderr)


def _plot_selection(figures: dict[str, Any], plot: Path | None) -> None:
    if plot is not None:
        from motet.trainer.plot import selection_curves

        selection_curves(figures["selection"]["turns"], plot)


def _counts(option: str, text: str | None) -> list[int] | None:
    return None if text is None else numbers(option, text)


def _refuse_mixture(baselines: bool, asked: dict[str, Any]) -> None:
    """Raise ConfigError if options of the plain evaluation and of --baselines are mixed, or if
    --plot or --best-of have no verifier."""
    check_picture(asked["--plot"])
    given = [option for option, value in asked.items() if value and option != "--samples"]
    compared = [option for option in given if option in ("--single", "--against")]
    plain = [option for option in given if option not in compared]
    chosen = [option for option in given if option in ("--best-of", "--plot")]
    if baselines and plain:
        raise ConfigError(f"got --baselines and {', '.join(plain)}; expected only one of them")
    if compared and not baselines:
        raise ConfigError(f"got {', '.join(compared)} without --baselines: add --baselines")
    if chosen and asked["--verifier"] is None:
        raise ConfigError(f"got {', '.join(chosen)} without --verifier: add --verifier")


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
    traceback: Traceback = False,
) -> None:
    """Show how a team plays one task, or take part: as an agent, or by giving feedback between
    turns.

    Example: motet play runs/quickstart --task 3 --interactive aux
    """
    check_config(target, overrides)
    from motet import api

    try:
        episode = api.play(target, overrides or [], task=task, greedy=greedy, person=interactive)
    except EOFError as error:
        raise ConfigError(
            f"the input ended before the game; expected one line for every turn of {interactive}"
        ) from error
    print_episode(episode, traceback)


def replay(
    run: RunArgument,
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
            f"step {again.step} differs from the record: "
            + (
                "the code has changed, as said above"
                if again.code_changed
                else "check whether it was recorded on another machine or with other versions"
            )
        )


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
    from motet.api.keeping import Keeper
    from motet.trainer.plot import cross_matrix

    check_picture(plot)
    keeper = Keeper(runs)
    found = api.crossplay(runs, [] if tasks is None else [f"evaluation.tasks={tasks}"])
    together = len({run.resolve().parent for run in runs}) == 1
    names = [run.resolve().name if together else str(run) for run in runs]
    kept = keeper.keep("crossplay", [*names, *_given({"--tasks": tasks})], asdict(found))
    if plot is not None:
        cross_matrix(
            found.success,
            [Path(run).name for run in found.runs],
            plot,
            (found.agents[0], ", ".join(found.agents[1:])),
        )
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        print_crossplay(found)
    _say(kept)
