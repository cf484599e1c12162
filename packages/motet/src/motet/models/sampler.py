"""Sampling, scoring and publishing when all models are in this process.

A call may mix requests for several policies. They are answered one group of policies after another,
in batches that depend on the requests only.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, TypeVar

import torch

from motet.core import (
    Completion,
    Fault,
    OnAnswer,
    Sampled,
    SampleRequest,
    ScoreRequest,
    ValueEstimate,
    ValueRequest,
)
from motet.errors import ConfigError
from motet.models import devices
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic, compute_values, read
from motet.models.decode import DecodeRequest, Timings, decode
from motet.models.forward import score_requests
from motet.models.memory import oom_hint
from motet.models.prompts import fit_request
from motet.models.shards import Shards, gathered
from motet.models.tool_forms import tools_of


@dataclass(frozen=True)
class CompletionRow:
    """One completion to sample or to score: its request, its index there, and its prompt."""

    request: int
    index: int
    prompt: tuple[int, ...]
    answer: int
    """The most tokens of the completion."""


def batches(
    rows: Sequence[CompletionRow], rows_per_batch: int, tokens_per_batch: int
) -> Iterator[list[CompletionRow]]:
    """Put rows of similar length together.

    A batch has at most `rows_per_batch` rows and, with padding, `tokens_per_batch` tokens of prompt
    and completion. A row above the token limit gets its own batch.
    """
    batch: list[CompletionRow] = []
    for row in sorted(rows, key=lambda row: (len(row.prompt), row.answer, row.request, row.index)):
        grown = [*batch, row]
        width = len(row.prompt) + max(other.answer for other in grown)
        if batch and (len(grown) > rows_per_batch or len(grown) * width > tokens_per_batch):
            yield batch
            grown = [row]
        batch = grown
    if batch:
        yield batch


class OpenRequests:
    """The requests of one call and their samples so far.

    A request is passed on when all of its keys have a completion.
    """

    def __init__(
        self,
        requests: Sequence[SampleRequest],
        prompts: Sequence[tuple[int, ...] | Fault],
        hand_out: OnAnswer,
    ) -> None:
        self.requests = requests
        self._prompts, self._hand_out = prompts, hand_out
        self._drawn: list[dict[int, Completion | Fault]] = [{} for _ in requests]
        self._answers: dict[int, Sampled | Fault] = {}
        for number, prompt in enumerate(prompts):
            if isinstance(prompt, Fault):
                self._end(number, prompt)

    def take(self, row: CompletionRow, answer: Completion | Fault) -> None:
        drawn = self._drawn[row.request]
        drawn[row.index] = answer
        if len(drawn) < len(self.requests[row.request].keys):
            return
        answers = [drawn[index] for index in range(len(drawn))]
        faults = [one for one in answers if isinstance(one, Fault)]
        completions = tuple(one for one in answers if isinstance(one, Completion))
        self._end(row.request, faults[0] if faults else Sampled(row.prompt, completions))

    def rows(self, contexts: Mapping[str, int]) -> list[CompletionRow]:
        """Return a row for each completion that is asked of some policies, if its prompt fits.

        Args:
            contexts: policy -> the most tokens of a prompt and its completion together.
        """
        return [
            CompletionRow(
                number,
                index,
                prompt,
                min(request.decode.max_new_tokens, contexts[request.policy] - len(prompt)),
            )
            for number, (request, prompt) in enumerate(
                zip(self.requests, self._prompts, strict=True)
            )
            if request.policy in contexts and not isinstance(prompt, Fault)
            for index in range(len(request.keys))
        ]

    def answers(self) -> list[Sampled | Fault]:
        """Return all results in the order of the requests, after the last was sampled."""
        return [self._answers[number] for number in range(len(self.requests))]

    def _end(self, number: int, answer: Sampled | Fault) -> None:
        self._answers[number] = answer
        self._hand_out(number, answer)


T = TypeVar("T")


class LocalSampler:
    """A `core.Sampler`, `core.Scorer` and `core.Publisher` in one.

    It samples with the weights that are trained. A decoding batch has at most `rows_per_batch` rows
    and, with padding, `tokens_per_batch` tokens of prompt and completion; a scoring batch has
    `score_tokens`. `references` maps a policy to its reference; an adapter without one uses its
    base. `between` is called before every token and every scoring batch, and may raise to end the
    call. `versions` counts the publications of each policy, and is part of a checkpoint.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        references: Mapping[str, Policy] | None = None,
        critics: Mapping[str, Critic] | None = None,
        rows_per_batch: int = 256,
        tokens_per_batch: int = 65536,
        score_tokens: int = 16384,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._policies = policies
        self._references = references or {}
        self._critics = critics or {}
        self._rows_per_batch = rows_per_batch
        self._tokens_per_batch = tokens_per_batch
        self._score_tokens = score_tokens
        self._between = between
        # Calls run in threads, so that environments can run at the same time. A backbone computes
        # as one policy at a time.
        self._turn = threading.Lock()
        # Not the event loop's default threads: an environment may block all of them.
        self._threads = ThreadPoolExecutor(thread_name_prefix="sampler")
        self._timings = Timings()
        self.versions = dict.fromkeys(policies, 0)

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests.

        A prompt that does not fit gives a Fault in its place, which is passed on at once.
        """
        loop = asyncio.get_running_loop()

        def hand_out(place: int, answer: Sampled | Fault) -> None:
            if on_answer is not None:
                # The event loop runs callbacks in order, so all have run before the call returns.
                loop.call_soon_threadsafe(on_answer, place, answer)

        return await self._run(
            self._sample, requests, hand_out if self._beside else lambda place, answer: None
        )

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        """Return log-probabilities (nats, one per token) under each policy's reference.

        Raises: ConfigError if a policy has no reference.
        """
        shards = [policy.backbone.shards for policy in self._references.values()]
        return await self._run(self._gathered, shards, self._logprobs, requests)

    async def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]:
        """Return the values from each request's critic, in order."""
        shards = [critic.backbone.shards for critic in self._critics.values()]
        return await self._run(self._gathered, shards, self._values, requests)

    def _gathered(
        self, shards: Sequence[Shards | None], work: Callable[..., T], requests: Sequence[Any]
    ) -> T:
        with gathered(shards):
            return work(requests)

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """Run `work` in a separate thread, or in this one, which also learns.

        With a separate thread, environments can run meanwhile. `_beside` decides.
        """
        if self._beside:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)
        # Ctrl-C is only handled at an await, and `work` has none.
        await asyncio.sleep(0)
        return work(*given)

    @property
    def _beside(self) -> bool:
        # Each thread that computes has its own OpenMP threads. If they outnumber the cores, OpenMP
        # lets them sleep between any two kernels, and small models decode 1.4 times slower.
        on_cpu = all(devices.is_cpu(policy.backbone.device) for policy in self._policies.values())
        return not on_cpu or torch.get_num_threads() == 1

    async def publish(self, names: Sequence[str]) -> int:
        """Raise the version only: the weights are shared."""
        version = max(self.versions.values()) + 1
        self.versions |= dict.fromkeys(names, version)
        return version

    def timings(self) -> dict[str, float]:
        """Return wall-clock seconds of all sampling so far.

        `prefill` is tokenizing and reading prompts, `decode` is sampling completions.
        """
        return asdict(self._timings)

    # ------------------------------------------------------------------------------------- sampling

    def _sample(
        self, requests: Sequence[SampleRequest], hand_out: OnAnswer
    ) -> list[Sampled | Fault]:
        begun = perf_counter()
        prompts = [self._prompt(request) for request in requests]
        self._timings.prefill += perf_counter() - begun
        open_ = OpenRequests(requests, prompts, hand_out)
        with gathered(policy.backbone.shards for policy in self._policies.values()):
            for names in self._adapter_groups(requests):
                backbone = self._policies[names[0]].backbone
                rows = open_.rows(dict.fromkeys(names, backbone.context_length))
                for batch in batches(rows, self._rows_per_batch, self._tokens_per_batch):
                    self._decode(open_, batch)
                devices.give_back(backbone.device)
        return open_.answers()

    def _adapter_groups(self, requests: Sequence[SampleRequest]) -> list[list[str]]:
        """Group the requested policies, by name.

        Adapters on one base are one group and decode together: this was never measured to be slower
        (docs/performance.md).
        """
        groups: dict[object, list[str]] = {}
        for name in sorted({request.policy for request in requests}):
            policy = self._policies[name]
            together = policy.adapter is not None and policy.backbone.mixes_adapters
            groups.setdefault(id(policy.backbone) if together else name, []).append(name)
        return list(groups.values())

    def _prompt(self, request: SampleRequest) -> tuple[int, ...] | Fault:
        backbone = self._policies[request.policy].backbone
        return fit_request(backbone.tokenizer, request, backbone.context_length)

    def _decode(self, open_: OpenRequests, rows: Sequence[CompletionRow]) -> None:
        asked = [open_.requests[row.request] for row in rows]
        read = [(request.policy, row.prompt) for row, request in zip(rows, asked, strict=True)]
        ends = self._policies[asked[0].policy].backbone.ends
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(read))}
        requests = [
            DecodeRequest(
                request.policy,
                places[prompt],
                ends.decode_of(request.decode, request.prompt),
                request.keys[row.index],
                request.greedy,
                self.versions[request.policy],
                tools_of(request.prompt),
            )
            for prompt, row, request in zip(read, rows, asked, strict=True)
        ]
        policies = [self._policies[name] for name, _ in places]
        backbone = policies[0].backbone
        # A single adapter also goes this way, which is faster than PEFT's.
        mixed = policies[0].adapter is not None and backbone.mixes_adapters
        adapters = [str(policy.adapter) for policy in policies] if mixed else None
        prompts = [prompt for _, prompt in places]
        width = max(map(len, prompts)) + max(row.answer for row in rows)
        asked_for = f"sampling {len(rows)} answers of up to {width} tokens, prompt included"
        knobs = (
            f"lower train.rows_per_batch ({self._rows_per_batch}) or train.tokens_per_batch "
            f"({self._tokens_per_batch})"
        )
        active = policies[0].active() if adapters is None else backbone.policy(None)
        with self._turn, oom_hint(asked_for, knobs, backbone.device), active:
            decode(
                backbone,
                prompts,
                requests,
                adapters=adapters,
                on_completion=lambda request, answer: open_.take(rows[request], answer),
                timings=self._timings,
                between=self._between,
            )

    # -------------------------------------------------------------------------------------- scoring

    def _logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        scored: dict[int, tuple[float, ...]] = {}
        for name in sorted({request.policy for request in requests}):
            reference = self._reference(name)
            rows = [
                CompletionRow(number, 0, request.prompt_tokens, len(request.tokens))
                for number, request in enumerate(requests)
                if request.policy == name
            ]
            for batch in batches(rows, self._rows_per_batch, self._score_tokens):
                self._between()
                with self._turn, self._scoring(batch, reference.backbone), reference.active():
                    logprobs = score_requests(
                        reference.backbone, [requests[row.request] for row in batch]
                    )
                scored |= zip((row.request for row in batch), logprobs, strict=True)
        return [scored[number] for number in range(len(requests))]

    def _values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]:
        said: dict[int, ValueEstimate] = {}
        for name in sorted({request.critic for request in requests}):
            critic = self._critics[name]
            asked = {
                n: read(critic, request)
                for n, request in enumerate(requests)
                if request.critic == name
            }
            rows = [
                CompletionRow(number, 0, reading.tokens, 0) for number, reading in asked.items()
            ]
            for batch in batches(rows, self._rows_per_batch, self._score_tokens):
                self._between()
                with self._turn, self._scoring(batch, critic.backbone):
                    found = compute_values(critic, [asked[row.request] for row in batch])
                said |= zip((row.request for row in batch), found, strict=True)
        return [said[number] for number in range(len(requests))]

    def _scoring(
        self, batch: Sequence[CompletionRow], backbone: Backbone
    ) -> AbstractContextManager[None]:
        width = max(len(row.prompt) + row.answer for row in batch)
        knobs = f"lower train.token_budget ({self._score_tokens})"
        return oom_hint(
            f"scoring {len(batch)} texts of up to {width} tokens", knobs, backbone.device
        )

    def _reference(self, name: str) -> Policy:
        if name in self._references:
            return self._references[name]
        policy = self._policies[name]
        if policy.adapter is None:
            raise ConfigError(
                f"policy {name} has train: full and no reference; expected one: load a frozen "
                "copy of the model, or use train: lora"
            )
        return Policy(f"{name} (reference)", policy.backbone, adapter=None, trainable=False)
