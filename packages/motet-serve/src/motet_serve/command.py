"""The commands that put a trained team to work: chat, serve, export."""

import sys
from typing import Annotated

import typer

from motet.commands.console import out, print_json
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, Overrides, Target, check_config
from motet.safety.visible import visible
from motet_serve.http.options import options_of
from motet_serve.settings import SAMPLED_BY, SampledBy, TeamServerSettings

ShowMessages = Annotated[
    bool,
    typer.Option("--show", help="Also print what the agents write to each other, as it comes."),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Sampling temperature; 0 takes the most likely token. Default: as trained.",
        show_default=False,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Limit of each message in tokens. Default: as trained.", show_default=False
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="The same seed gives the same answers. Default: random.", show_default=False),
]
EngineOption = Annotated[SampledBy, typer.Option(help=SAMPLED_BY)]


def chat(
    target: Target,
    overrides: Overrides = None,
    show: ShowMessages = False,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    engine: EngineOption = "own",
) -> None:
    """Talk to a team: each line goes through the team's own protocol and gets the team's answer.

    Lines between two lines of ``` are one text. Ctrl-D or Ctrl-C ends the conversation. Questions
    can also be piped in; the exit code is 1 if one of them got no answer.

    Example: motet chat runs/debate_tiny --show
    """
    check_config(target, overrides)
    from motet_serve import api

    unanswered = api.chat(
        target,
        overrides or [],
        show_messages=show,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        engine=engine,
        write=lambda text: print(visible(text), flush=True),
        complain=lambda text: print(visible(text), file=sys.stderr, flush=True),
    )
    if unanswered and not sys.stdin.isatty():
        raise typer.Exit(1)


@of_api("motet_serve.api:serve")
@options_of(TeamServerSettings)
def serve(call: ApiCall, settings: TeamServerSettings) -> None:
    """Serve a team in the form of OpenAI's chat API: the model `team` is the whole team,
    `team/AGENT` one agent.

    Requests of all clients are joined into batches. After Ctrl-C or SIGTERM the server answers open
    requests and stops; a second one stops it at once. docs/serving.md has examples.

    curl localhost:8000/v1/chat/completions --json '{"model": "team",
    "messages": [{"role": "user", "content": "12+39"}]}'

    Example: motet serve runs/debate_tiny --port 8001 --key-variable TEAM_KEY
    """
    call(settings=settings, say=lambda line: out.print(line, soft_wrap=True))


@of_api("motet_serve.exporting:export_team")
def export(call: ApiCall, as_json: AsJson = False) -> None:
    """Write a trained team as one folder for transformers, PEFT, vLLM and Motet, with a model card.

    Example: motet export runs/quickstart --into teams/quickstart
    """
    found = call()
    if as_json:
        print_json(found)
        return
    for policy, folder in found.policies.items():
        out.print(f"{policy} is {folder or 'its base model, unchanged'}", soft_wrap=True)
    for line in (*found.copied, *found.left_out):
        out.print(line, soft_wrap=True)
    card = f"{found.folder}/README.md"
    out.print(f"the model card is {card}: read it before you share the folder", soft_wrap=True)
    if found.url is not None:
        out.print(f"pushed to {found.url}", soft_wrap=True)
    out.print(f"play it with: {found.play}", soft_wrap=True)
