"""The `motet verifier` commands. Each calls one function of the Python API, as in cli.py."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.commands.console import figure, out, print_json, say_on_stderr, titled
from motet.commands.evaluation_tables import counted, print_evaluation
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, check_picture
from motet_serve.http.options import options_of
from motet_verifier.server_settings import VerifierServerSettings

if TYPE_CHECKING:
    from motet_verifier.choosing import SelectionTable

verifier = typer.Typer(
    no_args_is_help=True,
    help="""A verifier: a model that estimates whether an answer is right, without a label.

    docs/verifier.md explains all steps: sample, balance, train, serve.""",
)


@verifier.command()
@of_api("motet_verifier.api_answers:sample_answers")
def sample(call: ApiCall, as_json: AsJson = False) -> None:
    """Sample a team's answers at several temperatures and label them by the gold answer.

    Each line of the file is one answer, and whether it is right. If the command is interrupted, run
    it again to continue: FILE.sampling.json stores the progress.

    Example: motet verifier sample gsm8k_debate --into data/answers.jsonl --tasks 2000
    """
    _print(f"answers in {call.values['into']}", call(), as_json)


@verifier.command()
@of_api("motet_verifier.api_answers:balance_answers")
def balance(call: ApiCall, as_json: AsJson = False) -> None:
    """Select equally many right and wrong answers to every question, so that the question alone
    does not reveal the label.

    Missing answers are taken from the dataset, or written by --writer. A question without enough
    answers is dropped and counted. If many are dropped, use a smaller --each, sample more answers,
    or set --writer.

    Example: motet verifier balance data/answers.jsonl gsm8k_debate --into
    data/balanced.jsonl --writer alice
    """
    _print(f"balanced answers in {call.values['into']}", call(), as_json)


@verifier.command()
@of_api("motet_verifier.api:train_verifier")
def train(call: ApiCall, as_json: AsJson = False) -> None:
    """Train a verifier on a file of answers and measure it on held-out questions.

    auc: probability that a right answer scores higher than a wrong one; .5 is chance. ece: expected
    calibration error, the distance between scores and the share of right answers. Train with
    --question-only first: an auc above .5 then means that the answers are not balanced.

    Example: motet verifier train verifiers/gsm8k data/balanced.jsonl --into
    verifiers/gsm8k
    """
    _print(f"verifier in {call.values['into']}", call(), as_json)


@verifier.command()
@of_api("motet_verifier.api:serve_verifier")
@options_of(VerifierServerSettings)
def serve(call: ApiCall, settings: VerifierServerSettings) -> None:
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
    call(settings=settings, say=lambda line: out.print(line, soft_wrap=True))


@verifier.command()
@of_api("motet_verifier.api_choosing:choose_answers")
def choose(
    call: ApiCall,
    verifier: Annotated[
        str,
        typer.Option(
            help="The verifier: the address of its server, or its folder.", show_default=False
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Also plot accuracy against tokens to this PNG file.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a verifier choose among the answers of several games, and measure how often it is right.

    docs/evaluation.md explains the table.

    Example: motet verifier choose runs/debate --verifier verifiers/gsm8k --best-of 1,2,4,8
    """
    check_picture(plot)
    from motet.api.keeping import Keeper
    from motet_verifier.choosing import selection_curves

    target = call.values["target"]
    keeper = Keeper([target])
    found = call(verifier=verifier)
    said = [*call.words(), f"--verifier {verifier}", *call.values["overrides"]]
    kept = keeper.keep("chosen", said, found)
    if plot is not None:
        selection_curves(found.selection.turns, plot)
    if as_json:
        print_json(found)
    else:
        print_evaluation(target, found)
        _print_selection(found.selection)
    say_on_stderr(kept)


def _print_selection(found: "SelectionTable") -> None:
    """Print how often the answer chosen from k games is right."""
    from motet_verifier.choosing import METHODS, SUBSETS

    for number, rows in enumerate(found.turns, start=1):
        table = titled(
            f"chosen from k games after turn {number}",
            ["k", "tasks", "tokens", *METHODS.values()],
        )
        for row in rows:
            tokens = "-" if row.tokens_per_task is None else f"{row.tokens_per_task:,.1f}"
            means = [None if one is None else one.mean for one in row.accuracy.values()]
            table.add_row(str(row.k), str(row.tasks), tokens, *map(figure, means))
        out.print(table)
    notes = {
        "best of k": f"the answer with the highest score; the verifier scored {found.scored:,} "
        f"answers",
        "weighted vote": "scores of equal answers are added; a tie counts as wrong",
        "any right": "the choice of a perfect verifier",
    }
    if not all(row.all_subsets for rows in found.turns for row in rows):
        notes["votes"] = (
            f"with more than {SUBSETS} subsets of k games, the mean of {SUBSETS} random subsets"
        )
    if found.causes:
        notes[f"{found.left_out} games excluded"] = (
            f"answers that could not be scored: {counted(found.causes)}"
        )
    for name, text in notes.items():
        out.print(f"  {name}: {text}", soft_wrap=True)


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
