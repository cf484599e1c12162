"""Requests to the models, and the protocols of those that answer: Sampler, Scorer, Publisher."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from motet.core.episodes import Completion, Fault, Prompt, Restriction
from motet.settings import Decode


@dataclass(frozen=True)
class SampleRequest:
    """A request for `len(keys)` completions of one policy for one prompt.

    `id` defines the order of requests within a wave. Each completion has its own key, which seeds
    its sampling.
    """

    id: tuple[Any, ...]
    policy: str
    prompt: Prompt
    decode: Decode
    keys: tuple[int, ...]
    greedy: bool = False


@dataclass(frozen=True)
class Sampled:
    """The tokens of the prompt, and its completions in the order of the request's keys."""

    prompt_tokens: tuple[int, ...]
    completions: tuple[Completion, ...]


OnAnswer: TypeAlias = Callable[[int, Sampled | Fault], None]
"""Callback: receives the index of a request within its call, and the result of that request."""


class Sampler(Protocol):
    """Samples completions for a list of requests, which may name different policies.

    Results have the order of the requests. If a request fails, its result is a Fault.

    A sampler may report results early: it calls `on_answer` in the event loop's thread, at most
    once per request and before `sample` returns. The returned list is complete in every case, so a
    sampler may also never call `on_answer`.
    """

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]: ...


@dataclass(frozen=True)
class ScoreRequest:
    """A request for the log-probabilities of `tokens` under the reference model of `policy`.

    `temperature` is the one that the tokens were sampled at. `forced` and
    `restriction` are those of the completion.
    """

    policy: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    temperature: float
    forced: tuple[int, int] | None = None
    restriction: Restriction | None = None


@dataclass(frozen=True)
class ValueRequest:
    """A request for values of a critic. There are two kinds.

    `prompt`: one value at the end of the prompt, which the critic encodes with its own tokenizer.
    `prompt_tokens` and `completion`: one value before each token of the completion. The critic must
    then have the same tokenizer as the policy.
    """

    critic: str
    prompt: Prompt | None = None
    prompt_tokens: tuple[int, ...] = ()
    completion: tuple[int, ...] = ()


@dataclass(frozen=True)
class ValueEstimate:
    """Values of a critic: `values[k]` is read after `tokens[positions[k]]`, that token included."""

    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    values: tuple[float, ...]
    cut: int = 0
    """Number of tokens cut off at the beginning because the critic's context is too short."""


class Scorer(Protocol):
    """Computes the reference log-probabilities per token and the critics' values that
    credit needs."""

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]: ...

    async def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]: ...


class Publisher(Protocol):
    """Copies new weights to the sampler.

    `publish` returns the version number that completions have from now on.
    """

    async def publish(self, names: Sequence[str]) -> int: ...
