"""The sections of a run config for services: expert, verifier, comparator and sandbox."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from motet.config.parts import AtOnce, known_device
from motet.settings import Settings


def _web_address(url: str) -> str:
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.port == 0
        or parts.query
    ):
        raise ValueError(f"got {url!r}, expected an address such as http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "got an address that contains a password, which would be recorded: put the key in an "
            "environment variable and set key_variable"
        )
    return url


class EndpointConfig(Settings):
    """A model behind any endpoint of the OpenAI chat protocol."""

    base_url: Annotated[str, AfterValidator(_web_address)]
    """The part of the URL before /chat/completions, such as https://api.openai.com/v1 or
    http://localhost:8000/v1."""
    model: str
    """The name of the model on the server."""
    key_variable: str | None = None
    """The environment variable that holds the API key, such as OPENAI_API_KEY. By default no key is
    sent. The key itself is never written anywhere."""
    timeout_seconds: PositiveFloat = 60.0
    """Timeout of one attempt, from connecting to the end of the answer."""
    retries: NonNegativeInt = 3
    """Retries after a lost connection or a status of 408, 409, 429 or 5xx. The wait between
    attempts doubles each time, up to timeout_seconds."""
    concurrency: PositiveInt = 8
    """Maximum number of concurrent requests."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature. The default is that of the server, and of a comparator that of the
    agent."""
    max_tokens: PositiveInt | None = None
    """Maximum number of tokens of an answer. The default is that of the server, and of a comparator
    `decode.max_new_tokens`."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request, as the server names them, such as {max_completion_tokens:
    800}."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields of the request besides the model and the messages."""
        said = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {**self.extra, **{name: value for name, value in said.items() if value is not None}}

    @model_validator(mode="after")
    def _extra_is_more(self) -> Self:
        taken = {"model", "messages", "stream", "temperature", "max_tokens"} & set(self.extra)
        if taken:
            raise ValueError(
                f"extra sets {', '.join(sorted(taken))}; expected other fields, because Motet "
                "sets these itself"
            )
        return self


class ComparatorConfig(Settings):
    """Who gives the second half of the answers to a problem, with `compare: halves`.

    Exactly one of the three. Without this section both halves are those of the present team.
    Source: comlrl 1.4.3, `comparator_policy` of its iterative trainers.
    """

    history: PositiveInt | None = None
    """The team itself, with the weights of this many iterations ago; in the first iterations with
    its initial weights. A frozen copy of every policy holds them, and checkpoints hold the weights
    of the iterations since then."""
    team: dict[str, str] = Field(default_factory=dict)
    """Agent -> a frozen policy of this run, such as a saved team or a larger model."""
    endpoint: EndpointConfig | None = None
    """A model behind a chat endpoint, which answers the prompts of all agents. Unless it says
    otherwise, requests have the agent's temperature, top_p and max_new_tokens."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) not in (None, {})]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'none'} of history, team and endpoint; expected "
                "exactly one"
            )
        return self


_READ_BY: Mapping[str, tuple[str, ...]] = {
    "base_url": ("key_variable", "timeout_seconds", "retries", "concurrency", "batch_size"),
    "folder": ("device", "token_budget", "reads"),
    "constant": (),
    "ensemble": ("combine",),
    "agents": (),
}
"""Kind of verifier -> the settings that it reads."""


class VerifierConfig(Settings):
    """A model that predicts how likely a completion is right.

    It runs behind a server (POST BASE_URL/predict), in this process, or as an ensemble.
    """

    base_url: Annotated[str, AfterValidator(_web_address)] | None = None
    """The part of the URL before /predict, such as http://localhost:8000."""
    folder: str | None = None
    """Alternative: a folder that motet verifier train wrote. The model is loaded in this
    process."""
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """With folder: the device of its model."""
    token_budget: PositiveInt = 16384
    """With folder: maximum number of tokens scored at the same time, padding included."""
    reads: Literal["end", "mean", "lowest"] = "end"
    """With folder: how the score of a completion is computed. end: the value after the whole
    completion. mean, lowest: the mean or the minimum of the values after each line, so that every
    step of a solution counts; use them with verifiers trained with loss: every. A server decides
    this itself."""
    constant: float | None = Field(default=None, ge=0.0, le=1.0)
    """Alternative: no model, and this score for every completion. Use it to test everything
    else."""
    ensemble: tuple["VerifierConfig", ...] = ()
    """Alternative: several verifiers, two or more."""
    combine: Literal["mean", "minimum"] = "mean"
    """With ensemble: how the scores of one completion are combined. The minimum is harder to
    fool."""
    agents: dict[str, "VerifierConfig"] = Field(default={})
    """Alternative: a verifier for each agent, by the agent's name, such as one per model family."""
    key_variable: str | None = None
    """The environment variable that holds the API key. By default no key is sent. The key itself is
    never written anywhere."""
    timeout_seconds: PositiveFloat = 60.0
    """Timeout of one attempt, from connecting to the end of the answer."""
    retries: NonNegativeInt = 3
    """Retries after a lost connection or a status of 408, 409, 429 or 5xx. The wait between
    attempts doubles each time, up to timeout_seconds."""
    concurrency: PositiveInt = 8
    """Maximum number of concurrent requests."""
    batch_size: PositiveInt = 64
    """Maximum number of completions in one request."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in _READ_BY if getattr(self, name) not in (None, (), {})]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'none'} of base_url, folder, constant, ensemble and "
                "agents; expected exactly one"
            )
        if any(one.agents for one in (*self.ensemble, *self.agents.values())):
            raise ValueError("got agents inside ensemble or agents; expected it at the top")
        if len(self.ensemble) == 1:
            raise ValueError(
                "ensemble has one verifier; expected two or more: set it without ensemble"
            )
        kind = given[0]
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name != kind and name not in _READ_BY[kind] and value != field.default:
                readers = [one for one, keys in _READ_BY.items() if name in keys]
                raise ValueError(
                    f"got {name} {value}, which {kind} does not read: drop it, or use "
                    f"{readers[0]} instead"
                )
        return self


class SandboxConfig(Settings):
    """The sandbox that runs code written by models, and its resource limits."""

    workers: AtOnce | None = None
    """Maximum number of programs that run in parallel. The default is one per core."""
    minimum_level: Literal["limits", "seccomp", "landlock", "namespaces"] = "seccomp"
    """The minimum protection level. Motet refuses to run programs with less."""
    wall_seconds: PositiveFloat = 5.0
    """Wall-clock time limit of one program."""
    cpu_seconds: PositiveInt = 3
    """CPU time limit of one program."""
    memory_mb: PositiveInt = 512
    """Address space limit of one program, in MiB."""
    packages: tuple[str, ...] = ()
    """Packages that programs may import besides the standard library, such as numpy, together with
    the packages that these import."""
