"""ask, chat and serve: ask a trained team."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Unpack, get_args

from motet.api.objects import Objects
from motet.api.setup import (
    ConfigLike,
    Show,
    models_of,
    read_config,
    run_of,
    setup_in_scratch,
    sources_of,
)
from motet.assembly.cluster import cluster
from motet.assembly.endpoints import endpoint_samplers
from motet.assembly.task_setup import TaskSetup, use_threads
from motet.config.schema import RunConfig
from motet.core import Sampler
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.rollout.many_samplers import ManySamplers
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop
from motet_serve.app import create_app
from motet_serve.http.key import key_of
from motet_serve.http.metrics import ServerMetrics
from motet_serve.http.server import reserve, run_app
from motet_serve.settings import SampledBy, TeamServerSettings
from motet_serve.sharing import SharedSampler
from motet_serve.team import AnswerSettings, ChatTeam, OnMessage, TeamAnswer, chats_of
from motet_serve.terminal import converse, typed_lines

PROMPT = "you> "


@contextmanager
def _opened(
    settings: RunConfig,
    target: ConfigLike,
    engine: SampledBy,
    show: Show,
    temperature: float | None = None,
    *,
    whole: bool,
) -> Iterator[tuple[TaskSetup, Sampler]]:
    """Load the team of `target`, after the check that vLLM is there and samples at `temperature`,
    and with `whole` that its environment can be asked."""
    if engine not in get_args(SampledBy):
        raise ConfigError(f"engine is {engine!r}; expected own or vllm")
    if engine == "vllm":
        cluster().check_engines(temperature)
    use_threads(settings)
    with setup_in_scratch(settings, train=False, reads_tasks=False) as (setup, scratch):
        if whole:
            chats_of(setup.environment)
        if engine == "own":
            yield setup, run_loop(models_of(setup, run_of(target), scratch, show)).sampler
            return
        sources = run_loop(sources_of(setup, run_of(target), scratch, show))
        endpoints = endpoint_samplers(settings)
        with cluster().open_engines(setup, *sources) as sampler:
            yield setup, ManySamplers(sampler, endpoints) if endpoints else sampler


@contextmanager
def _asked(
    target: ConfigLike,
    overrides: Sequence[str],
    temperature: float | None,
    max_tokens: int | None,
    seed: int | None,
    engine: SampledBy,
    show: Show,
    objects: Objects,
) -> Iterator[Callable[[str, OnMessage], TeamAnswer]]:
    """Yield a function that asks the team of `target`: (text, on_message) -> its answer.

    The answer to question number k follows from `seed` and k, from 1.
    """
    settings = read_config(target, overrides, **objects)
    first = secrets.randbits(63) if seed is None else seed
    AnswerSettings(first, temperature)  # refuses a temperature before any model is loaded
    with _opened(settings, target, engine, show, temperature, whole=True) as (setup, sampler):
        team = ChatTeam(setup.environment, setup.team, setup.config.rollout, sampler)
        numbers = count(1)

        def answer(text: str, told: OnMessage) -> TeamAnswer:
            chosen = AnswerSettings(derive(first, next(numbers)), temperature, None, max_tokens)
            return run_loop(team.ask(text, chosen, told))

        yield answer


@blocking
def ask(
    target: ConfigLike,
    text: str,
    overrides: Sequence[str] = (),
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    engine: SampledBy = "own",
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> TeamAnswer:
    """Ask the whole team one question, and return its answer with the messages that led to it.

    Each call loads the team; `chat` and `serve` load it once for many questions.

    Args:
        text: the question, as the environment reads it: a line or several.
        temperature, max_tokens: of each message; those of the training by default. Temperature 0
            takes the most likely token.
        seed: the same seed gives the same answer, that of `chat` to its first text. Random by
            default.
        engine: own, or vllm, which needs pip install "motet[cluster]".

    Raises: ConfigError, also if the environment cannot be asked or cannot read the text; Unanswered
    if there was a fault on the way to the answer.
    """
    with _asked(target, overrides, temperature, max_tokens, seed, engine, show, objects) as answer:
        return answer(text, lambda message: None)


@blocking
def chat(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    lines: Iterable[str] | None = None,
    show_messages: bool = False,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    engine: SampledBy = "own",
    write: Callable[[str], None] = print,
    complain: Callable[[str], None] = print,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> int:
    """Answer a person's texts with the whole team, one after the other.

    Return the number of texts that got no answer.

    Args:
        lines: the texts, one a line; lines between two lines of ``` are one text. By default they
            are read from standard input until Ctrl-D or Ctrl-C.
        show_messages: also write what the agents say to each other, as it comes.
        temperature, max_tokens: of each message; those of the training by default. Temperature 0
            takes the most likely token.
        seed: the same seed gives the same conversation. Random by default.
        engine: own, or vllm, which needs pip install "motet[cluster]".
        write, complain: called with each answer, and each error.

    Raises: ConfigError, also if the environment cannot be asked.
    """
    with _asked(target, overrides, temperature, max_tokens, seed, engine, show, objects) as answer:
        given = iter(lines) if lines is not None else typed_lines(PROMPT)
        try:
            return converse(answer, write, complain, show=show_messages, lines=given)
        except KeyboardInterrupt:
            return 0


@blocking
def serve(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    settings: TeamServerSettings | None = None,
    say: Callable[[str], None] = print,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> None:
    """Serve a team in the form of OpenAI's chat API until SIGTERM or SIGINT.

    The model `team` is the whole team, `team/AGENT` one agent. If the environment defines no
    `chat_task` and `chat_answer`, only the agents are served. After the signal it answers open
    requests and returns. Call it in the main thread only; where an event loop runs there, as in
    Jupyter, the stop button ends it.

    Args:
        settings: the address, the key, the limits, and what samples: the options of `motet serve`.
            By default a server without a key only serves this machine.
        say: called with the address when the server listens.

    Raises: ConfigError.
    """
    from motet import __version__

    chosen = settings or TeamServerSettings()
    key, config = key_of(chosen), read_config(target, overrides, **objects)
    with (
        reserve(chosen) as listener,
        _opened(config, target, chosen.engine, show, whole=False) as (setup, sampler),
    ):
        metrics = ServerMetrics("motet_team_")
        shared = SharedSampler(sampler, chosen.max_batch, metrics.batch)
        try:
            team = ChatTeam(setup.environment, setup.team, setup.config.rollout, shared)
            app = create_app(team, __version__, key, chosen, metrics)
            name = target if isinstance(target, str | Path) else config.name
            run_app(
                app, listener, chosen,
                lambda url: say(f"{name} is served at {url}/v1 ({', '.join(team.names)})"),
            )  # fmt: skip
        finally:
            shared.close()
