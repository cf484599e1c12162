"""Policies behind endpoints: their samplers, and what a user should know about them."""

from motet.assembly.services import endpoint_of
from motet.clients.http_client import is_loopback
from motet.config.schema import RunConfig, RunKeys
from motet.core import Sampler
from motet.rollout.answer_file import AnswerFile
from motet.rollout.endpoint_sampler import EndpointSampler


def endpoint_samplers(config: RunConfig, answers: AnswerFile | None = None) -> dict[str, Sampler]:
    """Return policy -> its sampler, for every policy behind an endpoint. No server is asked yet.

    Raises: ConfigError if the key of an endpoint is missing or not valid.
    """
    return {
        name: EndpointSampler(
            endpoint_of(f"policies.{name}.endpoint", chosen, config.seed), answers
        )
        for name, chosen in config.endpoints.items()
    }


def endpoint_notes(config: RunKeys) -> list[str]:
    """Return one line for each policy behind an endpoint: where its prompts go."""
    return [
        f"policy {name} is model {chosen.model} at {chosen.base_url}: "
        + (
            "its prompts stay on this machine"
            if is_loopback(chosen.base_url)
            else "its prompts leave this machine"
        )
        for name, chosen in config.endpoints.items()
    ]


def endpoint_warnings(config: RunKeys) -> list[str]:
    """Return a warning for each agent whose settings its endpoint is not told."""
    return [
        f"top_k of agent {agent} is not sent to the endpoint of policy {name}, because the "
        f"protocol has none: set policies.{name}.endpoint.extra={{top_k: ...}} if its server "
        "knows it"
        for agent, player in config.team.items()
        for name in dict.fromkeys(player.policy)
        if name in config.endpoints
        and config.decode_of(agent).top_k
        and "top_k" not in config.endpoints[name].extra
    ]
