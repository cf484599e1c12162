"""The `motet verifier` commands. Each calls one function of the Python API, as in cli.py."""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from motet.commands.console import figure, out, titled
from motet.commands.options import (
    AsJson,
    ClientSeconds,
    DeviceOption,
    GraceSeconds,
    HostOption,
    KeyVariable,
    MaxBodyMb,
    MaxConnections,
    MaxHeldMb,
    MaxPerAddress,
    MaxQueue,
    Overrides,
    PortOption,
    ReadsChoice,
    ReadsOption,
    RequestSeconds,
    Target,
    TokenBudgetOption,
    WithoutKey,
)
from motet.errors import ConfigError
from motet_verifier.defaults import EACH, GAMES, TEMPERATURES, TRIES, WRITING_TEMPERATURE
from motet_verifier.limits import ScoringLimits

verifier = typer.Typer(
    no_args_is_help=True,
    help="""A verifier: a model that estimates whether an answer is right, without a label.

    docs/verifier.md explains all steps: sample, balance, train, serve.""",
)

VerifierConfigArgument = Annotated[
    Path, typer.Argument(help="A config of a verifier's training (YAML).", show_default=False)
]
AnswersArgument = Annotated[
    Path, typer.Argument(help="A file of answers (JSON lines).", show_default=False)
]
Folder = Annotated[Path, typer.Argument(help="The folder of a verifier.", show_default=False)]


class SplitChoice(StrEnum):
    """Which split of the tasks is used."""

    train = "train"
    eval = "eval"


@verifier.command()
def sample(
    target: Target,
    overrides: Overrides = None,
    into: Annotated[Path, typer.Option(help="The file of answers to write (JSON lines).")] = Path(
        "answers.jsonl"
    ),
    temperatures: Annotated[
        str,
        typer.Option(
            help="Sampling temperatures, separated by commas. High ones give more kinds of errors."
        ),
    ] = ",".join(map(str, TEMPERATURES)),
    games: Annotated[int, typer.Option(help="Games per task and temperature.")] = GAMES,
    agents: Annotated[
        str | None,
        typer.Option(
            help="Agents whose answers are written, separated by commas. Default: all agents.",
            show_default=False,
        ),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(help="Number of tasks. Default: all tasks.", show_default=False)
    ] = None,
    split: Annotated[
        SplitChoice, typer.Option(help="Use the training tasks or the held-out tasks.")
    ] = SplitChoice.train,
    argue: Annotated[
        bool,
        typer.Option(
            "--argue",
            help="Also sample an argument for each label (for few labels, as in anli).",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sample a team's answers at several temperatures and label them by the gold answer.

    Each line of the file is one answer, and whether it is right. If the command is interrupted, run
    it again to continue: FILE.sampling.json stores the progress.

    Example: motet verifier sample gsm8k_debate --into data/answers.jsonl --tasks 2000
    """
    from motet_verifier import api_answers

    figures = api_answers.sample_answers(
        target,
        into,
        overrides or [],
        temperatures=_temperatures(temperatures),
        games=games,
        agents=[] if agents is None else [agent.strip() for agent in agents.split(",")],
        tasks=tasks,
        split=split.value,
        argued=argue,
    )
    _print(f"answers in {into}", figures, as_json)


@verifier.command()
def balance(
    answers: AnswersArgument,
    target: Target,
    overrides: Overrides = None,
    into: Annotated[Path, typer.Option(help="The file to write. It must not exist.")] = Path(
        "balanced.jsonl"
    ),
    each: Annotated[
        int, typer.Option(help="Number of right answers per question, and of wrong answers.")
    ] = EACH,
    tries: Annotated[
        int, typer.Option(help="How often the writer is asked for each missing answer.")
    ] = TRIES,
    writer: Annotated[
        str | None,
        typer.Option(
            help="Who writes missing answers: an agent of the team, or expert. Default: nobody.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(help="Sampling temperature of an agent that writes. An expert uses its own."),
    ] = WRITING_TEMPERATURE,
    split: Annotated[
        SplitChoice, typer.Option(help="The split of the tasks of these answers.")
    ] = SplitChoice.train,
    as_json: AsJson = False,
) -> None:
    """Select equally many right and wrong answers to every question, so that the question alone
    does not reveal the label.

    Missing answers are taken from the dataset, or written by --writer. A question without enough
    answers is dropped and counted. If many are dropped, use a smaller --each, sample more answers,
    or set --writer.

    Example: motet verifier balance data/answers.jsonl gsm8k_debate --into
    data/balanced.jsonl --writer alice
    """
    from motet_verifier import api_answers

    figures = api_answers.balance_answers(
        answers,
        target,
        into,
        overrides or [],
        each=each,
        tries=tries,
        writer=writer,
        temperature=temperature,
        split=split.value,
    )
    _print(f"balanced answers in {into}", figures, as_json)


@verifier.command()
def train(
    config: VerifierConfigArgument,
    answers: AnswersArgument,
    overrides: Overrides = None,
    into: Annotated[Path, typer.Option(help="The folder to write. It must not exist.")] = Path(
        "verifier"
    ),
    question_only: Annotated[
        bool,
        typer.Option(
            "--question-only",
            help="Train without answers. This measures what the questions alone reveal.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a verifier on a file of answers and measure it on held-out questions.

    auc: probability that a right answer scores higher than a wrong one; .5 is chance. ece: expected
    calibration error, the distance between scores and the share of right answers. Train with
    --question-only first: an auc above .5 then means that the answers are not balanced.

    Example: motet verifier train verifiers/gsm8k data/balanced.jsonl --into
    verifiers/gsm8k
    """
    from motet_verifier import api

    figures = api.train_verifier(
        config, answers, into, overrides or [], question_only=question_only
    )
    _print(f"verifier in {into}", figures, as_json)


@verifier.command()
def serve(
    folder: Folder,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    device: DeviceOption = "auto",
    reads: ReadsOption = ReadsChoice.end,
    key_variable: KeyVariable = None,
    without_key: WithoutKey = False,
    token_budget: TokenBudgetOption = ScoringLimits.token_budget,
    max_queue: MaxQueue = ScoringLimits.max_queue,
    max_body_mb: MaxBodyMb = ScoringLimits.max_body_mb,
    max_held_mb: MaxHeldMb = ScoringLimits.max_held_mb,
    request_seconds: RequestSeconds = ScoringLimits.request_seconds,
    max_connections: MaxConnections = ScoringLimits.max_connections,
    max_connections_per_address: MaxPerAddress = ScoringLimits.max_connections_per_address,
    client_seconds: ClientSeconds = ScoringLimits.client_seconds,
    grace_seconds: GraceSeconds = ScoringLimits.grace_seconds,
) -> None:
    """Serve a verifier over HTTP: POST /predict scores answers; /health, /model and /metrics report
    its status.

    Requests of all clients are joined into batches. After Ctrl-C or SIGTERM the server answers open
    requests and stops; a second one stops it at once.

    To use it in a run, write  verifier: {base_url: http://localhost:8000}  in the config. To call
    it by hand:

    curl localhost:8000/predict --json '{"query_responses":
    [[{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]]}'

    Example: motet verifier serve verifiers/gsm8k --port 8001 --key-variable VERIFIER_KEY
    """
    from motet_verifier import api

    limits = ScoringLimits(
        token_budget=token_budget,
        max_queue=max_queue,
        max_body_mb=max_body_mb,
        max_held_mb=max_held_mb,
        request_seconds=request_seconds,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        client_seconds=client_seconds,
        grace_seconds=grace_seconds,
    )
    api.serve_verifier(
        folder,
        host=host,
        port=port,
        device=device,
        reads=reads.value,
        key_variable=key_variable,
        without_key=without_key,
        limits=limits,
        say=lambda line: out.print(line, soft_wrap=True),
    )


def _temperatures(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"--temperatures is {text!r}; expected numbers separated by commas, such as 0.7,1.0,1.3"
        ) from error


def _print(title: str, figures: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    table = titled(title, ["", ""])
    for name, value in figures.items():
        if name == "by_ease":
            for ease, found in value.items():
                table.add_row(
                    f"auc where {ease} of the sampled answers are right", figure(found["auc"])
                )
        elif isinstance(value, Mapping):
            for kind, count in value.items():
                table.add_row(f"{name}: {kind}", str(count))
        elif value is None or isinstance(value, int | float):
            table.add_row(name, figure(value))
    out.print(table)
