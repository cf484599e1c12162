"""What environments may request: a sandbox, an expert, a verifier, a person at the terminal."""

import asyncio
import os
import random
import select
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from codejudge import Level, Limits, Sandbox, SandboxError
from motet.clients.endpoint import Endpoint
from motet.clients.reward_server import AnswerVerifier, ConstantScores, Ensemble, RewardServer
from motet.config.schema import RunConfig
from motet.config.sections import (
    ConstantVerifier,
    EndpointConfig,
    McpServer,
    OneVerifier,
    VerifierEnsemble,
    VerifierFolder,
    VerifierPerAgent,
    VerifierServer,
)
from motet.core.seeding import derive
from motet.core.tools import Tool
from motet.errors import ConfigError, EnvironmentFault
from motet.models.devices import resolve_device
from motet.safety.reading import keep_odd_bytes
from motet.safety.visible import visible
from motet.settings import ToolUse
from motet.user_code.installed import load


class PersonLeft(EnvironmentFault):
    """The input at the terminal has ended."""

    cause = "person_left"


class Terminal:
    """Reads lines of feedback from a person, with `read(text)` if given.

    Only one question is asked at a time.
    """

    def __init__(self, read: Callable[[str], str] | None = None) -> None:
        self._read = read or self._typed
        self._turn = threading.Lock()
        self._given_up = threading.Event()

    async def ask(self, question: str) -> str:
        """Return all lines up to an empty one or the end of the input.

        Raises: PersonLeft if the input ends before the first line.
        """
        try:
            return await asyncio.to_thread(self._lines, question)
        except asyncio.CancelledError:
            self._given_up.set()
            raise

    def _lines(self, question: str) -> str:
        lines: list[str] = []
        question = visible(question)
        with self._turn:
            try:
                while line := self._read(f"\n{question}\n> " if not lines else "> ").strip():
                    lines.append(line)
            except EOFError as error:
                if not lines:
                    raise PersonLeft(
                        "the input ended while feedback was expected; expected a line, or an "
                        "empty line: stay at the terminal, or choose another feedback.mode"
                    ) from error
        return "\n".join(lines)

    def _typed(self, prompt: str) -> str:
        """Works like `input`, but can be cancelled while it waits.

        `input` at a terminal returns only at the Enter key, so Ctrl-C would seem to hang.
        """
        keep_odd_bytes(sys.stdin)
        if not someone_is_there():
            return input(prompt)
        print(prompt, end="", flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            if self._given_up.is_set():
                raise EOFError
        return input()


def someone_is_there() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


class Services(Mapping[str, Any]):
    """The services that environments may request by name. Each is created at its first request.

    `expert`, `person` and `verifier` are None if there is none. `turns` is the number of turns of
    the plan. `open_sandbox` is a function that returns the sandbox, for environments that may do
    without one.
    """

    def __init__(self, config: RunConfig, train: bool) -> None:
        self._config, self._train = config, train
        self._makers: dict[str, Callable[[], Any]] = {
            "sandbox": self._sandbox,
            "open_sandbox": lambda: lambda: self["sandbox"],
            "expert": self._expert,
            "person": self._person,
            "verifier": self._verifier,
            "turns": lambda: len(config.rollout.samples),
        }
        self._made: dict[str, Any] = {}
        self._servers: dict[McpServer, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def _sandbox(self) -> Sandbox:
        chosen = self._config.sandbox
        try:
            limits = Limits(
                wall_seconds=chosen.wall_seconds,
                cpu_seconds=chosen.cpu_seconds,
                memory_mb=chosen.memory_mb,
                output_bytes=chosen.output_bytes,
            )
            minimum = Level[chosen.minimum_level.upper()]
            return Sandbox(chosen.workers, minimum, limits, packages=chosen.packages)
        except SandboxError as error:
            raise ConfigError(str(error)) from error

    def _expert(self) -> Endpoint | None:
        return (
            None
            if self._config.expert is None
            else endpoint_of("expert", self._config.expert, self._config.seed)
        )

    def _verifier(self) -> AnswerVerifier | Mapping[str, AnswerVerifier] | None:
        chosen, seed = self._config.verifier, self._config.seed
        if chosen is None:
            return None
        if isinstance(chosen, VerifierPerAgent):
            return {
                agent: verifier_of(one, derive(seed, agent)) for agent, one in chosen.agents.items()
            }
        return verifier_of(chosen, seed)

    def _person(self) -> Terminal | None:
        """Return None in training without a terminal: nobody answers a pipe for hours."""
        return Terminal() if not self._train or someone_is_there() else None

    def check_asked(self, environment: str, others: Collection[str]) -> None:
        """Check that every configured service is used.

        Raises: ConfigError if a config section names a service that neither the environment nor a
        caller in `others` requests.
        """
        for name in ("expert", "verifier"):
            if (
                getattr(self._config, name) is not None
                and name not in self._made
                and name not in others
            ):
                raise ConfigError(
                    f"{name} is set, but environment {environment} does not use it: drop it "
                    f"({name}: null)"
                )

    @property
    def sandbox_level(self) -> str | None:
        return self._made["sandbox"].level.name.lower() if "sandbox" in self._made else None

    def tools_of(
        self, chosen: McpServer, where: str, limits: ToolUse
    ) -> tuple[list[Tool], list[str]]:
        """Return the tools of a server of the Model Context Protocol, and what there is to say
        about it. Agents with the same entry share one server.

        Raises: ConfigError if it does not start, or lists nonsense.
        """
        from motet.clients.mcp import McpClient, outside

        if chosen not in self._servers:
            self._servers[chosen] = McpClient(
                chosen.mcp,
                where,
                chosen.environment,
                chosen.start_seconds,
                limits.timeout_seconds,
                _key(where, chosen),
            )
        return self._servers[chosen].tools(chosen.only, where), outside(chosen.mcp)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        if "sandbox" in self._made:
            self._made["sandbox"].close()


def endpoint_of(section: str, chosen: EndpointConfig, seed: int) -> Endpoint:
    """Return the endpoint that a section of the config describes.

    Raises: ConfigError if its key is missing or not valid.
    """
    return Endpoint(
        chosen.base_url,
        chosen.model,
        key=_key(section, chosen),
        parameters=chosen.parameters,
        timeout_seconds=chosen.timeout_seconds,
        retries=chosen.retries,
        concurrency=chosen.concurrency,
        jitter=random.Random(derive(seed, section)).random,
    )


def verifier_of(chosen: OneVerifier, seed: int) -> AnswerVerifier:
    """Return the scorer of completions. The model of a folder is loaded at the first scoring.

    Raises: ConfigError if a folder holds no complete verifier, or if a key is missing or not valid.
    """
    match chosen:
        case ConstantVerifier():
            return ConstantScores(chosen.constant)
        case VerifierEnsemble():
            members = [
                verifier_of(one, derive(seed, number)) for number, one in enumerate(chosen.ensemble)
            ]
            return Ensemble(members, chosen.combine)
        case VerifierFolder():
            resolve_device(chosen.device)
            scorer: AnswerVerifier = load("verifiers", "folder")(
                chosen.folder,
                device=chosen.device,
                reads=chosen.reads,
                token_budget=chosen.token_budget,
            )
            return scorer
        case VerifierServer():
            return RewardServer(
                chosen.base_url,
                batch_size=chosen.batch_size,
                key=_key("verifier", chosen),
                timeout_seconds=chosen.timeout_seconds,
                retries=chosen.retries,
                concurrency=chosen.concurrency,
                jitter=random.Random(derive(seed, "verifier")).random,
            )


def _key(section: str, chosen: EndpointConfig | VerifierServer | McpServer) -> str | None:
    """Return the key from its environment variable, or None if the server needs no key."""
    if chosen.key_variable is None:
        return None
    address = chosen.mcp if isinstance(chosen, McpServer) else chosen.base_url
    key = os.environ.get(chosen.key_variable, "").strip()
    if not key:
        raise ConfigError(
            f"{section}.key_variable names {chosen.key_variable}, which is not set: put the key "
            f"of {address} in it, or drop key_variable if the server needs no key"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"{chosen.key_variable} does not contain a valid key; expected printable ASCII "
            "characters"
        )
    return key
