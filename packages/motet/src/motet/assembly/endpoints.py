"""Policies behind endpoints: their samplers, and what a user should know about them."""

from collections.abc import Mapping
from typing import Any

from motet.assembly.services import endpoint_of
from motet.clients.endpoint import ChatAnswer, Endpoint
from motet.clients.http_client import is_loopback
from motet.config.schema import RunConfig, RunKeys
from motet.config.sections import EndpointConfig
from motet.core import Sampler
from motet.errors import ConfigError
from motet.rollout.answer_file import AnswerFile
from motet.rollout.endpoint_sampler import EndpointSampler
from motet.settings import Decode


def endpoint_samplers(config: RunConfig, answers: AnswerFile | None = None) -> dict[str, Sampler]:
    """Return policy -> its sampler, for every policy behind an endpoint. No server is asked yet.

    If `answers` are only read, as in a replay, they may be all that is needed. Then a missing key
    is an error when a server has to be asked.

    Raises: ConfigError if the key of an endpoint is missing or not valid.
    """
    return {
        name: EndpointSampler(
            _opened(name, chosen, config.seed, answers is not None and not answers.writes), answers
        )
        for name, chosen in config.endpoints.items()
    }


def _opened(name: str, chosen: EndpointConfig, seed: int, perhaps_unused: bool) -> Endpoint:
    try:
        return endpoint_of(f"policies.{name}.endpoint", chosen, seed)
    except ConfigError as error:
        if not perhaps_unused:
            raise
        return _WithoutKey(chosen, error)


class _WithoutKey(Endpoint):
    """An endpoint whose key is missing: whoever asks it gets the error that says so."""

    def __init__(self, chosen: EndpointConfig, why: ConfigError) -> None:
        super().__init__(
            chosen.base_url,
            chosen.model,
            parameters=chosen.parameters,
            timeout_seconds=chosen.timeout_seconds,
            retries=0,
            concurrency=1,
            jitter=float,
        )
        self._why = why

    async def answer(self, request: Mapping[str, Any]) -> ChatAnswer:
        raise self._why


def endpoint_notes(config: RunKeys) -> list[str]:
    """Return one line for each policy behind an endpoint: where its prompts go."""
    return [
        f"policy {name} is model {chosen.model} at {chosen.base_url}"
        + (
            ", an address of this machine"
            if is_loopback(chosen.base_url)
            else ": its prompts leave this machine"
        )
        for name, chosen in config.endpoints.items()
    ]


def endpoint_warnings(config: RunKeys) -> list[str]:
    """Return a warning for each agent whose settings its endpoint is not told."""
    return [
        f"{key} of agent {agent} is not sent to the endpoint of policy {name}, because the "
        f"protocol has none: set policies.{name}.endpoint.extra={{{known}: ...}} if its server "
        "knows it"
        for agent, player in config.team.items()
        for name in dict.fromkeys(player.policy)
        if name in config.endpoints
        for key, known in _untold(config.decode_of(agent)).items()
        if known not in config.endpoints[name].extra
    ]


def _untold(decode: Decode) -> dict[str, str]:
    """Return the settings of an agent that the protocol lacks, and what servers call them."""
    limit = None if decode.thinking is None else decode.thinking.max_tokens
    return {
        key: known
        for key, known, chosen in (
            ("top_k", "top_k", decode.top_k),
            ("format", "response_format", decode.format),
            ("template", "chat_template_kwargs", decode.template),
            ("thinking.max_tokens", "thinking_token_budget", limit),
        )
        if chosen
    }
