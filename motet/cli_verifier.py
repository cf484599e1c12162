"""The `motet verifier` commands. Each is one function of the Python API, as in cli.py."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from motet.tables import out
from motet.verifier.limits import Limits

verifier = typer.Typer(
    no_args_is_help=True,
    help="""A verifier: a model that says how likely an answer is right, where no label is.

    Start with: motet verifier serve FOLDER""",
)

Folder = Annotated[Path, typer.Argument(help="The folder of a verifier.", show_default=False)]


@verifier.command()
def serve(
    folder: Folder,
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 is every one of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one; it is printed.")] = 8000,
    device: Annotated[str, typer.Option(help="auto (cuda, else mps, else cpu), cpu, cuda, cuda:1, ...")] = "auto",
    key_variable: Annotated[
        str | None,
        typer.Option(
            help="The environment variable that holds the key: requests then need Authorization: Bearer KEY.",
            show_default=False,
        ),
    ] = None,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Listen where others reach it, and let in all of them.")
    ] = False,
    token_budget: Annotated[
        int, typer.Option(min=1, help="Tokens of a batch, padding included. More is faster, and takes more memory.")
    ] = Limits.token_budget,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Answers that may be open at a time; beyond, requests get status 429.")
    ] = Limits.max_queue,
    max_body_mb: Annotated[
        float, typer.Option(help="Size of one request, in MiB; beyond, it gets status 413.")
    ] = Limits.max_body_mb,
    request_seconds: Annotated[
        float, typer.Option(help="Time one request has; beyond, it gets status 503.")
    ] = Limits.request_seconds,
) -> None:
    """Serve a verifier: POST /predict scores answers, /health, /model and /metrics say how it is.

    Requests of all callers are joined into batches. Ctrl-C or SIGTERM answers what is open, and ends.

    A run asks it with  verifier: {base_url: http://localhost:8000}  in its config; by hand, it is asked so:

    curl localhost:8000/predict -d '{"query_responses":
    [[{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]]}'

    Example: motet verifier serve verifiers/gsm8k --port 8001 --key-variable VERIFIER_KEY
    """
    from motet import api

    limits = Limits(
        token_budget=token_budget, max_queue=max_queue, max_body_mb=max_body_mb, request_seconds=request_seconds
    )
    api.serve_verifier(
        folder,
        host=host,
        port=port,
        device=device,
        key_variable=key_variable,
        without_key=without_key,
        limits=limits,
        say=lambda line: out.print(escape(line), soft_wrap=True),
    )
