"""The commands `motet compare`, `motet baselines`, `motet diagnose`, `motet messages`,
`motet crossplay` and `motet replay`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.text import Text

from motet.commands.console import (
    figure,
    out,
    print_conventions,
    print_json,
    say_on_stderr,
    titled,
)
from motet.commands.episodes import print_episode
from motet.commands.evaluation_tables import (
    counted,
    estimated,
    print_evaluation,
    print_influence,
    span,
)
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, check_picture
from motet.errors import ConfigError, MotetError

if TYPE_CHECKING:
    from motet_compare.baselines import BaselineTable
    from motet_compare.contributions import Contributions
    from motet_compare.cross_play import CrossplayResult
    from motet_compare.diagnosis import Diagnosis
    from motet_compare.many_runs import ComparedRun
    from motet_compare.messages import ComparedMessages
    from motet_compare.over_seeds import OverSeeds
    from motet_compare.replaying import ReplayResult


AsCsv = Annotated[
    bool, typer.Option("--csv", help="Print CSV: one line per config, statistics over its seeds.")
]
AsLatex = Annotated[bool, typer.Option("--latex", help="Print the same as a LaTeX table.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Also plot a metric over training, with a band over seeds, to this PNG file.",
        show_default=False,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="With --plot: a metric of docs/metrics.md. Default: play/success, or play/reward.",
        show_default=False,
    ),
]
BandOption = Annotated[
    Literal["interval", "std"] | None,
    typer.Option(
        help="With --plot: interval (95 % interval of the mean, the default), or std.",
        show_default=False,
    ),
]


@of_api("motet_compare.many_runs:compare")
def compare(
    call: ApiCall,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    as_latex: AsLatex = False,
    plot: Plot = None,
    metric: Metric = None,
    band: BandOption = None,
) -> None:
    """Compare runs: results, mean and deviation over seeds, and how their configs differ.

    Example: motet compare runs/quickstart-seed* runs/quickstart_frozen --plot compared.png
    """
    _refuse_mixtures(
        {"--json": as_json, "--csv": as_csv, "--latex": as_latex},
        plot,
        {"--metric": metric, "--band": band},
    )
    rows = call()
    if plot is not None or as_csv or as_latex:
        from motet_compare.many_runs import runs

        loaded = runs(call.values["runs"])
    if plot is not None:
        loaded.plot(plot, metric, band or "interval")
    if as_json:
        print_json(rows)
    elif as_csv or as_latex:
        print(loaded.statistics.to_csv() if as_csv else loaded.to_latex(), end="")
    else:
        print_comparison(rows)


def _refuse_mixtures(
    formats: dict[str, bool], plot: Path | None, of_plot: dict[str, object]
) -> None:
    given = [option for option, value in formats.items() if value]
    if len(given) > 1:
        raise ConfigError(f"got {' and '.join(given)}; expected at most one of them")
    without = [option for option, value in of_plot.items() if value is not None]
    if without and plot is None:
        raise ConfigError(f"got {', '.join(without)} without --plot: add --plot")
    check_picture(plot)


def told_apart(runs: Sequence[str]) -> list[str]:
    """Return the last part of each path, or the whole one where others end so too."""
    names = Counter(Path(run).name for run in runs)
    return [Path(run).name if names[Path(run).name] == 1 else str(run) for run in runs]


def print_comparison(rows: Sequence["ComparedRun"]) -> None:
    """Print the rows of `motet_compare.compare`, and the statistics of groups with several runs."""
    table = titled(
        "held-out success of runs", ["run", "seed", "steps", "before", "after", "reward", "seconds"]
    )
    for name, row in zip(told_apart([row.run for row in rows]), rows, strict=True):
        table.add_row(
            name,
            str(row.seed),
            str(row.steps) if row.finished else f"{row.steps} (stopped)",
            figure(row.before),
            figure(row.after),
            figure(row.reward),
            "-" if row.wall_seconds is None else f"{row.wall_seconds:.0f}",
        )
    out.print(table)
    _print_groups(rows)
    first = rows[0].group
    for name, row in {row.group: row for row in rows}.items():
        if row.differs:
            out.print(f"  {name} differs from {first}: {', '.join(row.differs)}", soft_wrap=True)


def _print_groups(rows: Sequence["ComparedRun"]) -> None:
    # Imported here because it loads the config and torch, which take seconds.
    from motet_compare.many_runs import COMPARED, differences, grouped
    from motet_compare.over_seeds import CONFIDENCE_OF_SEEDS, unseen

    groups = grouped(rows)
    if len(groups) == len(rows):
        return
    table = titled("over seeds: mean ± standard deviation", ["runs", "seeds", *COMPARED.values()])
    table.show_lines = True
    for row in groups:
        seeds = ", ".join(map(str, row.seeds))
        figures = (_over_seeds(getattr(row, name), row.runs) for name in COMPARED)
        table.add_row(row.group, seeds, *figures)
    out.print(table)
    out.print(
        f"  in the second line: {CONFIDENCE_OF_SEEDS:.0%} interval of the mean (Student's t)",
        soft_wrap=True,
    )
    most = max((row.after.runs for row in groups if row.after is not None), default=0)
    if most:
        out.print(
            f"  it cannot see what none of the runs did: {unseen(most):.0%} of the runs may end in "
            f"a way that {most} runs do not show",
            soft_wrap=True,
        )
    for row in groups:
        there = 0 if row.after is None else row.after.runs
        if there < row.runs:
            out.print(
                f"  {row.group}: {row.runs - there} of {row.runs} runs have no success after "
                "training, and are in no mean of it",
                soft_wrap=True,
            )
    for row in differences(rows):
        found = row.after
        if found is not None and found.std is not None:
            out.print(
                f"  {row.group} − {groups[0].group}, success after, {found.runs} pairs of "
                f"one seed: {found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})",
                soft_wrap=True,
            )


def _over_seeds(found: "OverSeeds | None", runs: int) -> str:
    if found is None:
        return "-"
    lines = [figure(found.mean)]
    if found.std is not None:
        ends = f"{found.low:.3f} to {found.high:.3f}"
        lines = [f"{found.mean:.3f} ± {found.std:.3f}", ends]
    if found.runs < runs:
        lines.append(f"{found.runs} of {runs} runs")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------- baselines


@of_api("motet_compare.api:measure_baselines")
def baselines(call: ApiCall, as_json: AsJson = False) -> None:
    """Compare a team with the untrained team, a single agent, untrained communication, and best of
    n samples.

    Example: motet baselines runs/relay --samples 4
    """
    from motet.api.keeping import Keeper

    target = call.values["target"]
    keeper = Keeper([target])
    found = call()
    kept = keeper.keep("baselines", [*call.words(), *call.values["overrides"]], found)
    if as_json:
        print_json(found)
    else:
        print_baselines(target, found)
    say_on_stderr(kept)


def print_baselines(target: Path, found: "BaselineTable") -> None:
    rows, first = found.rows, found.rows[0].protocol
    table = titled(
        f"{target}: {found.tasks} held-out tasks",
        ["protocol", "success", "reward", "behind", "n", "tokens", "seconds"],
    )
    # Without borders the table fits 80 columns, so that intervals are not broken.
    table.box, table.show_edge, table.show_lines = box.HORIZONTALS, False, True
    table.pad_edge, table.padding = False, (0, 1, 0, 0)
    table.columns[0].overflow = "fold"
    compared = "reward" if rows[0].success is None else "success"
    for row in rows:
        tokens = row.tokens_per_task
        table.add_row(
            row.protocol,
            estimated(row.success),
            estimated(row.reward),
            estimated(row.lead[compared]) if row.lead else "-",
            str(row.n),
            f"{tokens:,.1f}" if tokens < 1000 else f"{tokens:,.0f}",
            f"{row.time['seconds_per_task']:.3f}",
        )
    out.print(table)
    notes = {row.protocol: row.note for row in rows if row.note}
    notes |= {
        f"{row.protocol}: {row.faults} faults": counted(row.causes) for row in rows if row.faults
    }
    notes |= {f"no {protocol}": why for protocol, why in found.left_out.items()}
    notes |= {
        "behind": f"{compared} of the {first} minus {compared} of this row, mean over tasks",
        "tokens, seconds": "per answer, which takes n samples",
        f"{found.confidence:.0%}": "success by Wilson and Newcombe, reward by "
        f"{found.resamples:,} bootstrap resamples",
    }
    for name, text in notes.items():
        out.print(f"  {name}: {text}", soft_wrap=True)


# --------------------------------------------------------------------------------------- diagnosis


@of_api("motet_compare.api:diagnose")
def diagnose(call: ApiCall, as_json: AsJson = False) -> None:
    """Find out which agent contributes what, which messages matter, and who rides free.

    Example: motet diagnose runs/relay
    """
    from motet.api.keeping import Keeper

    target = call.values["target"]
    keeper = Keeper([target])
    found = call()
    kept = keeper.keep("diagnosis", [*call.words(), *call.values["overrides"]], found)
    if as_json:
        print_json(found)
    else:
        print_diagnosis(target, found)
    say_on_stderr(kept)


_FEW_COMPLETIONS = 20
"""With fewer the interval of a correlation says nothing, and is sometimes empty."""


def print_diagnosis(target: Path, found: "Diagnosis") -> None:
    for one in found.contributions:
        _print_contributions(target, found.measure, one)
    out.print(f"  {found.games} games of each team, with 95 % intervals over tasks")
    for name, causes in found.left_out.items():
        out.print(f"  faults, left out, of {name}: {counted(causes)}", soft_wrap=True)
    if found.messages:
        table = titled(
            f"{found.measure} lost if others read something else in place of a message",
            ["from", "turn", "nothing", "another one of the same task", "that of another task"],
        )
        table.show_lines = True
        effects = {(one.sender, one.turn, one.replaced): one.lost for one in found.messages}
        for sender, turn in dict.fromkeys((one.sender, one.turn) for one in found.messages):
            cells = (
                estimated(effects.get((sender, turn, how)))
                for how in ("blank", "resampled", "shuffled")
            )
            table.add_row(sender, str(turn), *cells)
        out.print(table)
    else:
        out.print(f"  no messages: {found.without_messages}", soft_wrap=True)
    if found.information:
        table = titled(
            "bits that an answer shares with a message",
            ["from", "turn", "to", "turn", "bits", "by chance", "if another task's is read"],
        )
        for bits in found.information:
            unread = "-" if bits.unread is None else f"{bits.unread:.2f}"
            ends = (bits.sender, str(bits.turn), bits.reader, str(bits.answered))
            table.add_row(*ends, f"{bits.bits:.2f}", span(*bits.by_chance), unread)
        out.print(table)
    elif found.messages:
        out.print("  no bits: too many different messages or answers for so few games")
    for agent, others in found.distances.items():
        far = ", ".join(f"{other} {estimate.mean:.2f}" for other, estimate in others.items())
        said = f"  {agent} answers unlike (nats per answer, 0 if they answer alike): {far}"
        out.print(said, soft_wrap=True)
    for agent, share in found.unearned.items():
        if share is not None:
            said = f"  {agent} would still get {share:.0%} of its reward if it said nothing"
            out.print(said, soft_wrap=True)
    if found.without_fidelity:
        said = f"  no fidelity of credit: the advantages need {found.without_fidelity}"
        out.print(said, soft_wrap=True)
    if found.fidelity is not None and found.fidelity.completions < _FEW_COMPLETIONS:
        out.print(
            f"  no fidelity of credit: {found.fidelity.completions} completions are too few, play "
            "more tasks (evaluation.tasks)",
            soft_wrap=True,
        )
    elif found.fidelity is not None and found.fidelity.all is not None:
        each = {"all": found.fidelity.all, **found.fidelity.agents}
        told = ", ".join(
            f"{name} {estimated(one).replace(chr(10), ', ')}" for name, one in each.items()
        )
        out.print(
            f"  correlation of advantages with what {found.fidelity.completions} completions "
            f"change: {told}",
            soft_wrap=True,
        )
    elif found.fidelity is not None:
        out.print(
            "  no fidelity of credit: the advantages, or what the completions change, are all "
            "equal",
            soft_wrap=True,
        )
    if found.fidelity is not None:
        told = ", ".join(
            f"{name} {one.mean:.0%}" for name, one in found.fidelity.own.items() if one is not None
        )
        if told:
            said = (
                f"  share of an agent's returns that its own completion decides: {told} (the "
                "rest is what others say, and what comes later)"
            )
            out.print(said, soft_wrap=True)
    if found.idle:
        out.print(
            f"no contribution shows of {', '.join(found.idle)}: no interval lies above 0",
            style="bold",
        )
    if found.influence is not None:
        print_influence(found.influence)


def _print_contributions(target: Path, measure: str, found: "Contributions") -> None:
    from motet_compare.contributions import STAND_INS

    table = titled(
        f"{target}: {measure}, beside agents {STAND_INS[found.stand_in]}",
        ["agent", "contributes", "lost without it", "gained by it alone"],
    )
    table.show_lines = True
    for agent, one in found.agents.items():
        table.add_row(agent, *map(estimated, (one.shapley, one.lost, one.alone)))
    out.print(table)
    nobody, whole = (estimated(one).replace("\n", ", ") for one in (found.replaced, found.whole))
    out.print(f"  {measure} with all agents replaced: {nobody}", soft_wrap=True)
    out.print(f"  {measure} of the team: {whole}", soft_wrap=True)


# --------------------------------------------------------------------------------------- messages


@of_api("motet_compare.api:compare_messages")
def messages(call: ApiCall, as_json: AsJson = False) -> None:
    """Compare a team with itself, reading the messages of another task or empty ones: do its
    messages matter?

    Example: motet messages runs/relay --shuffle-turn 1
    """
    from motet.api.keeping import Keeper

    target = call.values["target"]
    keeper = Keeper([target])
    found = call()
    said = [*call.words(but=("--shuffle-turn", "--blank-turn")), *call.values["overrides"]]
    kept = keeper.keep(f"{found.messages.are}-turn-{found.messages.turn}", said, found)
    if as_json:
        print_json(found)
    else:
        print_evaluation(target, found)
        print_messages(found)
    say_on_stderr(kept)


def print_messages(found: "ComparedMessages") -> None:
    """Print the same team with its real messages beside the control."""
    are, turn, real = found.messages.are, found.messages.turn, found.messages.real
    table = titled(f"real and {are} messages", ["messages", "success", "reward"])
    for name, one in (("as they are", real), (f"{are} after turn {turn}", found)):
        ends = one.interval or {}
        table.add_row(name, *(_with_ends(getattr(one, what), ends[what]) for what in ends))
    table.add_row("difference", *map(estimated, found.messages.difference.values()))
    table.show_lines = True
    out.print(table)


def _with_ends(value: float | None, ends: Sequence[float] | None) -> str:
    return figure(value) if ends is None else f"{figure(value)}\n{span(*ends)}"


# -------------------------------------------------------------------------------------- crossplay


@of_api("motet_compare.api:crossplay", leave_out=("overrides",))
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
        from motet_compare.plots import cross_matrix

        cross_matrix(
            found.success,
            told_apart(found.runs),
            plot,
            (found.agents[0], ", ".join(found.agents[1:])),
        )
    if as_json:
        print_json(found)
    else:
        _print_crossplay(found)
    say_on_stderr(kept)


def _print_crossplay(found: "CrossplayResult") -> None:
    """Print the success rate of the first agent of each run with the other agents of each run."""
    first, others = found.agents[0], " and ".join(found.agents[1:])
    names = told_apart(found.runs)
    table = titled(f"success: {first} of the row with {others} of the column", ["", *names])
    for name, row, ends in zip(names, found.success, found.intervals, strict=True):
        cells = (f"{figure(v)}\n{span(*e)}" for v, e in zip(row, ends, strict=True))
        table.add_row(name, *cells)
    out.print(table)
    fewest, most = (of(of(row) for row in found.games) for of in (min, max))
    games = str(most) if fewest == most else f"{fewest} to {most}"
    out.print(f"{games} games per cell, with 95 % intervals")
    for name, beside in zip(names, found.faults, strict=True):
        for partner, causes in zip(names, beside, strict=True):
            if causes:
                said = f"  faults, left out, of {name} with {partner}: {counted(causes)}"
                out.print(said, soft_wrap=True)
    for name, rating in zip(names, found.ratings or (), strict=False):
        out.print(f"  {name}: rating {rating.elo:+.0f} ± {rating.error:.0f} (Elo, standard error)")
    for name, named in zip(names, found.conventions, strict=False):
        out.print(name, style="bold")
        print_conventions(named)


# ----------------------------------------------------------------------------------------- replay


@of_api("motet_compare.api_replay:replay")
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
                "the code or a package has changed, as said above"
                if again.code_changed
                else "check whether it was recorded on another machine or with other versions"
            )
        )


def print_replay(again: "ReplayResult") -> None:
    """Print whether a replayed step equals the recorded one."""
    begun = f"the checkpoint of step {again.start}" if again.start else "the start of the run"
    out.print(f"step {again.step}, from {begun}")
    for line in again.code_changed:
        out.print(f"  {line}")
    verdict = {
        True: Text("the same", "green"),
        False: Text("different", "red"),
        None: Text("not recorded"),
    }
    if again.sampled:
        out.print(Text.assemble("  episodes sampled again: ", verdict[again.same_episodes]))
    else:
        out.print(f"  trained on {len(again.episodes)} recorded episodes")
    if again.compared:
        out.print(
            f"  metrics: {again.compared - len(again.different)} of {again.compared} the same"
        )
    for name, (then, now) in again.different.items():
        out.print(f"    {name} was {then!r} and is {now!r}")
    if again.same_weights is not None:
        beside = "  weights and optimizers, compared with the checkpoint of this step: "
        out.print(Text.assemble(beside, verdict[again.same_weights]))
