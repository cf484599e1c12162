"""The commands `motet plan` and `motet doctor`: what a run needs, and what this machine has."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from motet.commands.options import AsJson, Overrides
from motet.errors import ConfigError

Gpus = Annotated[int, typer.Option(help="The number of GPUs.")]
GpuName = Annotated[
    str, typer.Option("--gpu", help="The kind of GPU, such as h100-80, a100-80 or rtx4090-24.")
]
PerNode = Annotated[int, typer.Option("--gpus-per-node", help="GPUs of one machine.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        help="The number of parameters of the models that are not folders here: 7e9, or NAME=7e9 "
        "for one model. Can be repeated.",
        show_default=False,
    ),
]
PromptTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens of a prompt. Default: measured on a few tasks.", show_default=False
    ),
]
CompletionTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Mean tokens of a completion. Default: decode.max_new_tokens.",
        show_default=False,
    ),
]


def plan(
    config: Annotated[Path, typer.Argument(help="A config file (YAML).", show_default=False)],
    overrides: Overrides = None,
    gpus: Gpus = 8,
    gpu: GpuName = "h100-80",
    gpus_per_node: PerNode = 8,
    parameters: Parameters = None,
    prompt_tokens: PromptTokens = None,
    completion_tokens: CompletionTokens = None,
    as_json: AsJson = False,
) -> None:
    """Compute on paper which GPUs a run needs and how long a step takes. Nothing is loaded.

    Example: motet plan relay --gpus 8 --gpu h100-80
    """
    from motet import api
    from motet.commands.plan_tables import print_plan

    planned = api.plan(
        config,
        overrides or [],
        gpus=gpus,
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        parameters=_parameters(parameters or []),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )
    if as_json:
        print(json.dumps(planned.as_json()))
        return
    print_plan(planned)


def doctor(
    runs: Annotated[Path, typer.Option(help="The folder that contains the run folders.")] = Path(
        "runs"
    ),
    ask_hub: Annotated[
        bool, typer.Option("--hub/--no-hub", help="Whether to send a request to the hub.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Show what this machine has, what each missing thing costs, and the commands that mend it.

    The exit code is 1 if something that Motet needs is broken.
    """
    from motet import api
    from motet.commands.plan_tables import print_findings

    found = api.doctor(runs=runs, ask_hub=ask_hub)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found]))
    else:
        print_findings(found)
    if any(finding.status == "broken" for finding in found):
        raise typer.Exit(1)


def _parameters(said: list[str]) -> dict[str, float] | float | None:
    """`["7e9"]` -> 7e9; `["main=7e9"]` -> {"main": 7e9}. Raises: ConfigError."""
    named: dict[str, float] = {}
    for text in said:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not 0.0 < value < float("inf") or (not name and len(said) > 1):
            raise ConfigError(
                f"--parameters is {text!r}; expected a number such as 7e9, once, or NAME=7e9 for "
                "each model"
            )
        if not name:
            return value
        named[name] = value
    return named or None
