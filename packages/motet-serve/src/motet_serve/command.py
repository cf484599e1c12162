"""The commands that let a person or a program ask a trained team: chat, serve."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from motet.commands.console import out
from motet.commands.options import Overrides, Target, check_config
from motet.safety.visible import visible
from motet_serve.http.options import (
    ClientSeconds,
    GraceSeconds,
    HostOption,
    KeyVariable,
    MaxBodyMb,
    MaxConnections,
    MaxHeldMb,
    MaxPerAddress,
    MaxQueue,
    PortOption,
    RequestSeconds,
    WithoutKey,
)
from motet_serve.limits import ChatLimits

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


class EngineChoice(StrEnum):
    """What samples the messages."""

    own = "own"
    vllm = "vllm"


EngineOption = Annotated[
    EngineChoice,
    typer.Option(help="Motet's own sampler, or vLLM engines, which need the extra cluster."),
]
MaxBatch = Annotated[
    int, typer.Option(min=1, help="Maximum number of requests to models that one batch joins.")
]


def chat(
    target: Target,
    overrides: Overrides = None,
    show: ShowMessages = False,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    engine: EngineOption = EngineChoice.own,
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
        engine=engine.value,
        write=lambda text: print(visible(text), flush=True),
        complain=lambda text: print(visible(text), file=sys.stderr, flush=True),
    )
    if unanswered and not sys.stdin.isatty():
        raise typer.Exit(1)


def serve(
    target: Target,
    overrides: Overrides = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    key_variable: KeyVariable = None,
    without_key: WithoutKey = False,
    engine: EngineOption = EngineChoice.own,
    max_batch: MaxBatch = ChatLimits.max_batch,
    max_queue: MaxQueue = ChatLimits.max_queue,
    max_body_mb: MaxBodyMb = ChatLimits.max_body_mb,
    max_held_mb: MaxHeldMb = ChatLimits.max_held_mb,
    request_seconds: RequestSeconds = ChatLimits.request_seconds,
    max_connections: MaxConnections = ChatLimits.max_connections,
    max_connections_per_address: MaxPerAddress = ChatLimits.max_connections_per_address,
    client_seconds: ClientSeconds = ChatLimits.client_seconds,
    grace_seconds: GraceSeconds = ChatLimits.grace_seconds,
) -> None:
    """Serve a team in the form of OpenAI's chat API: the model `team` is the whole team,
    `team/AGENT` one agent.

    Requests of all clients are joined into batches. After Ctrl-C or SIGTERM the server answers open
    requests and stops; a second one stops it at once. docs/serving.md has examples.

    curl localhost:8000/v1/chat/completions --json '{"model": "team",
    "messages": [{"role": "user", "content": "12+39"}]}'

    Example: motet serve runs/debate_tiny --port 8001 --key-variable TEAM_KEY
    """
    check_config(target, overrides)
    from motet_serve import api

    limits = ChatLimits(
        max_batch=max_batch,
        max_queue=max_queue,
        max_body_mb=max_body_mb,
        max_held_mb=max_held_mb,
        request_seconds=request_seconds,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        client_seconds=client_seconds,
        grace_seconds=grace_seconds,
    )
    api.serve(
        target,
        overrides or [],
        host=host,
        port=port,
        key_variable=key_variable,
        without_key=without_key,
        engine=engine.value,
        limits=limits,
        say=lambda line: out.print(line, soft_wrap=True),
    )
