"""The `motet` command. Each command is one function of the Python API; this file only reads words and prints tables.

Exit codes: 0 done; 1 the run could not go on; 2 the input is wrong and nothing was touched; 130 stopped by the person.
"""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from motet.errors import ConfigError, MotetError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="""Train several language models to collaborate, with multi-agent reinforcement learning.

    Start with: motet train configs/quickstart.yaml

    A config is a YAML file; every key can be overridden behind it, as in optimizer.learning_rate=5e-6.
    A run lives in runs/NAME; evaluate, play, crossplay and compare take its folder.""",
)
out = Console()

Config = Annotated[Path, typer.Argument(help="A config file (YAML).", show_default=False)]
Target = Annotated[
    Path, typer.Argument(help="A run folder, or a config file for the team it starts with.", show_default=False)
]
Runs = Annotated[list[Path], typer.Argument(help="Two or more run folders.", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Overrides: key.key=value, the value as in YAML.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


class Players(StrEnum):
    """Who plays an evaluation."""

    own = "own"
    reference = "reference"


@app.command()
def train(
    config: Config,
    overrides: Overrides = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the config and the cost, start nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in runs/NAME from its last checkpoint.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete the run in runs/NAME and start anew.")] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Several runs, NAME-seed0 and so on: 0,1,2.", show_default=False)
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
) -> None:
    """Warm up, evaluate, train and evaluate again; everything is in runs/NAME."""
    from motet import api

    if dry:
        _dry_run(config, overrides or [])
        return
    if seeds is None:
        _finished(api.train(config, overrides or [], resume=resume, overwrite=overwrite, runs=runs), runs)
        return
    settings = [api.read_config(config, [*(overrides or []), f"seed={seed}"]) for seed in _numbers(seeds)]
    named = [one.model_copy(update={"name": f"{one.name}-seed{one.seed}"}) for one in settings]
    taken = [str(runs / one.name) for one in named if (runs / one.name).exists() and not (resume or overwrite)]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)} exist; --resume goes on with them, --overwrite deletes them and starts anew"
        )
    for one in named:
        _finished(api.train(one, resume=resume and (runs / one.name).exists(), overwrite=overwrite, runs=runs), runs)
    _compared([runs / one.name for one in named])


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise ConfigError(f"--seeds is {text!r}; expected whole numbers with commas, such as 0,1,2")
    return [int(part) for part in parts]


def _finished(summary: dict[str, Any], runs: Path) -> None:
    table = _table(str(runs / summary["name"]), ["held out", "success", "reward", "faults"])
    for when, figures in summary["heldout"].items():
        table.add_row(when, _figure(figures["success"]), _figure(figures["reward"]), str(figures["faults"]))
    out.print(table)
    for agent, labels in _settled(summary["heldout"]).items():
        out.print(f"  {agent} settled on {labels}")
    out.print(
        f"  {summary['steps']} steps, {summary['tokens']:,} tokens at {summary['tokens_per_second']:,.0f}/s, "
        f"{summary['wall_seconds']:.0f} s ({summary['cpu_seconds']:.0f} CPU-seconds)\n"
        f"  curve: {runs / summary['name'] / 'curve.png'}   watch: motet play {runs / summary['name']}"
    )


def _settled(heldout: dict[str, Any]) -> dict[str, str]:
    named = heldout["after"]["conventions"] if "after" in heldout and "conventions" in heldout["after"] else {}
    commonest = {agent: next(iter(labels.items()), None) for agent, labels in named.items()}
    return {agent: f"{pair[0]!r} ({pair[1]:.0%})" for agent, pair in commonest.items() if pair is not None}


def _dry_run(config: Path, overrides: list[str]) -> None:
    from motet import api, survey
    from motet.config.load import dump_config

    cost = survey.dry_run(config, overrides)
    out.print(escape(dump_config(api.read_config(config, overrides))))
    table = _table("one training step", ["what", "count"])
    table.add_row("rounds (nodes)", f"{cost.rounds:,}")
    table.add_row("joint actions = reward calls", f"{cost.joint_actions:,}")
    table.add_row("completions", f"{cost.completions:,}")
    table.add_row("tokens at most", f"{cost.longest_completions:,}")
    table.add_row("steps of the run", f"{cost.steps:,}")
    out.print(table)
    table = _table("memory, estimated", ["part", "GiB"])
    for part, size in cost.memory.items():
        table.add_row(part, f"{size / 2**30:.3f}")
    out.print(table)


@app.command()
def warmup(
    config: Config,
    overrides: Overrides = None,
    into: Annotated[
        Path | None, typer.Option(help="Where the models go; runs/NAME/models unless set.", show_default=False)
    ] = None,
) -> None:
    """Only the supervised warm-up, on the environment's demonstrations or solutions."""
    from motet import api

    for model, folder in api.warmup(config, overrides or [], into=into).items():
        out.print(f"{model}: {folder}")


@app.command()
def evaluate(
    target: Target,
    overrides: Overrides = None,
    team: Annotated[
        Players, typer.Option(help="own: the run's or config's team; reference: the environment's own solutions.")
    ] = Players.own,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest tokens instead of sampling.")] = False,
    shuffle_turn: Annotated[
        int | None,
        typer.Option(
            help="After this turn everyone hears what was said on another task: does the message matter?",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play the held-out tasks and say how it went."""
    from motet import api

    figures = api.evaluate(target, overrides or [], team=team.value, greedy=greedy, shuffle_turn=shuffle_turn)
    if as_json:
        print(json.dumps(figures))
        return
    table = _table(str(target), ["figure", "value"])
    for name in ("episodes", "faults", "reward", "final_reward", "success", "turns", "tokens"):
        table.add_row(name, _figure(figures[name]))
    for name, value in figures["terms"].items():
        table.add_row(f"  {name}", _figure(value))
    for cause, count in figures["causes"].items():
        table.add_row(f"  fault {cause}", str(count))
    out.print(table)
    if "conventions" in figures:
        _conventions(figures["conventions"])


def _conventions(named: dict[str, dict[str, float]]) -> None:
    for agent, labels in named.items():
        out.print(f"  {agent}: " + escape(", ".join(f"{label} {share:.0%}" for label, share in labels.items())))


@app.command()
def play(
    target: Target,
    overrides: Overrides = None,
    task: Annotated[int, typer.Option(help="Which held-out task, from 0.")] = 0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest tokens instead of sampling.")] = False,
    interactive: Annotated[
        str | None,
        typer.Option(
            "--interactive", help="Take part: an agent's name; its answers are typed here.", show_default=False
        ),
    ] = None,
) -> None:
    """Watch a team play one task, or take part."""
    from motet import api
    from motet.trainer.notable import shown

    episode = api.play(target, overrides or [], task=task, greedy=greedy, person=interactive)
    out.print(f"[bold]task[/bold] {escape(episode.task.id)}")
    if episode.fault is not None:
        out.print(f"[red]fault[/red] {episode.fault.where}/{episode.fault.cause}: {escape(episode.fault.message)}")
    round_ = episode.root
    while round_ is not None:
        outcome = round_.outcomes[0]
        out.print(f"[bold]turn {round_.turn + 1}[/bold]")
        for agent, prompt in round_.prompts.items():
            out.print(f"[cyan]{agent}[/cyan] is asked:\n{escape(shown(prompt))}\n[cyan]{agent}[/cyan] says:")
            out.print(escape(round_.samples[agent][0].text), style="green")
        if outcome.fault is not None:
            out.print(f"[red]fault[/red] {outcome.fault.where}/{outcome.fault.cause}: {escape(outcome.fault.message)}")
        else:
            terms = "  ".join(f"{name} {value:g}" for name, value in outcome.terms.items())
            out.print("rewards " + "  ".join(f"{a} {r:g}" for a, r in outcome.rewards.items()) + f"   {terms}")
        round_ = outcome.next


@app.command()
def crossplay(
    runs: Runs,
    tasks: Annotated[
        int | None, typer.Option(help="Only the first so many held-out tasks.", show_default=False)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the matrix to this PNG.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Play every run's first agent with every run's others: who can work with whom?"""
    from dataclasses import asdict

    from motet import survey
    from motet.trainer.plot import cross_matrix

    found = survey.crossplay(runs, [] if tasks is None else [f"evaluation.tasks={tasks}"])
    if plot is not None:
        cross_matrix(
            found.success, [Path(run).name for run in found.runs], plot, (found.agents[0], ", ".join(found.agents[1:]))
        )
    if as_json:
        print(json.dumps(asdict(found)))
        return
    first, others = found.agents[0], " and ".join(found.agents[1:])
    table = _table(
        f"success: {first} of the row with {others} of the column", ["", *(Path(run).name for run in found.runs)]
    )
    for run, row in zip(found.runs, found.success, strict=True):
        table.add_row(Path(run).name, *(_figure(value) for value in row))
    out.print(table)
    for run, named in zip(found.runs, found.conventions, strict=False):
        out.print(f"[bold]{escape(Path(run).name)}[/bold]")
        _conventions(named)


@app.command()
def compare(runs: Runs, as_json: AsJson = False) -> None:
    """Runs side by side: figures, and in what their configs differ from the first."""
    from motet import survey

    if as_json:
        print(json.dumps(survey.compare(runs)))
        return
    _compared(runs)


def _compared(runs: list[Path]) -> None:
    from motet import survey

    rows = survey.compare(runs) if len(runs) > 1 else []
    table = _table("runs", ["run", "seed", "steps", "before", "after", "reward", "seconds", "differs in"])
    for row in rows:
        table.add_row(
            Path(row["run"]).name,
            str(row["seed"]),
            str(row["steps"]),
            _figure(row["before"]),
            _figure(row["after"]),
            _figure(row["reward"]),
            f"{row['wall_seconds']:.0f}",
            escape(", ".join(row["differs"])),
        )
    if rows:
        out.print(table)


@app.command()
def show(config: Config, overrides: Overrides = None) -> None:
    """The resolved config, every default written out."""
    from motet import api
    from motet.config.load import dump_config

    print(dump_config(api.read_config(config, overrides or [])), end="")


@app.command()
def check(config: Config, overrides: Overrides = None) -> None:
    """Two steps of the run with tiny models in place of its own: does everything fit together?"""
    from motet import survey

    summary = survey.check(config, overrides or [])
    out.print(f"{config}: two steps with tiny models went through ({summary['wall_seconds']:.0f} s)")


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 or column.startswith("differs") else "right")
    return table


def _figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def main() -> None:
    """The command, with every expected failure as one clear line."""
    errors = Console(stderr=True)
    try:
        app()
    except ConfigError as error:
        errors.print(f"[red]error[/red]: {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except MotetError as error:
        interrupted = type(error).__name__ == "Interrupted"
        errors.print(
            f"{'' if interrupted else '[red]error[/red]: '}{escape(str(error))}", soft_wrap=True, highlight=False
        )
        sys.exit(130 if interrupted else 1)
    except KeyboardInterrupt:
        errors.print("stopped; what was recorded is kept. Go on with the same command and --resume")
        sys.exit(130)
