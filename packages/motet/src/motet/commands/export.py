"""The command `motet export`: a trained team as one folder that others can use."""

import json
from pathlib import Path
from typing import Annotated

import typer

from motet.commands.console import out
from motet.commands.options import AsJson, Overrides
from motet.commands.shell_completion import complete_run

Exported = Annotated[
    Path,
    typer.Argument(
        help="A run folder, RUN/best, or a checkpoint such as RUN/checkpoints/step-000050.",
        show_default=False,
        autocompletion=complete_run,
    ),
]
Into = Annotated[Path, typer.Option("--into", help="The new folder.", show_default=False)]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge", help="Merge every adapter into its base: each policy is a whole model."
    ),
]
Baselines = Annotated[
    bool,
    typer.Option(
        "--baselines", help="Play the baselines of motet evaluate --baselines for the model card."
    ),
]
Push = Annotated[
    str | None,
    typer.Option(
        help="Also upload the folder to USER/NAME on the Hugging Face Hub.", show_default=False
    ),
]
Public = Annotated[
    bool,
    typer.Option(
        "--public", help="With --push: create a public repository. Default: a private one."
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier export in this folder.")
]


def export(
    run: Exported,
    overrides: Overrides = None,
    *,
    into: Into,
    merge: Merge = False,
    baselines: Baselines = False,
    push: Push = None,
    public: Public = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained team as one folder for transformers, PEFT, vLLM and Motet, with a model card.

    Example: motet export runs/quickstart --into teams/quickstart
    """
    from motet import api

    found = api.export(
        run,
        into,
        overrides or [],
        merge=merge,
        baselines=baselines,
        push=push,
        public=public,
        overwrite=overwrite,
    )
    if as_json:
        print(json.dumps(found))
        return
    for policy, folder in found["policies"].items():
        out.print(f"{policy} is {folder or 'its base model, unchanged'}", soft_wrap=True)
    for line in (*found["copied"], *found["left_out"]):
        out.print(line, soft_wrap=True)
    card = f"{found['folder']}/README.md"
    out.print(f"the model card is {card}: read it before you share the folder", soft_wrap=True)
    if found["url"] is not None:
        out.print(f"pushed to {found['url']}", soft_wrap=True)
    out.print(f"play it with: motet play {found['folder']}", soft_wrap=True)
