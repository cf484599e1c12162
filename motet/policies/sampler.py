"""Sampling, scoring and publishing where everything lives in this process.

Requests of any mix of policies are answered policy by policy, in batches that are a function of the requests alone.
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

from motet.core import Completion, Fault, OnAnswer, Sampled, SampleRequest, ScoreRequest, Valued, ValueRequest
from motet.errors import ConfigError, SamplerFault
from motet.policies import devices
from motet.policies.backbone import Backbone, Policy
from motet.policies.critic import Critic, appraise, read
from motet.policies.decode import Answer, Spent, Wish, decode
from motet.policies.forward import forward
from motet.policies.memory import asking_for
from motet.policies.padding import Rows, padded
from motet.policies.prompts import OnLongPrompt, TokenizerFault, fit

T = TypeVar("T")


@dataclass(frozen=True)
class _Row:
    """One answer wanted: which request and which of its answers, and what it may need (tokens)."""

    request: int
    index: int
    prompt: tuple[int, ...]
    answer: int


class LocalSampler:
    """A `core.Sampler`, `core.Scorer` and `core.Publisher` in one, because the weights it plays with are those that learn.

    A decoded batch has at most `rows_per_batch` rows and, padded, `tokens_per_batch` tokens of prompt and answer; a scored one
    has `score_tokens`. `references` names what a policy is compared with; an adapter without one is
    compared with its base. `between` is called before every token and every scored batch, and may raise to end the call.
    `versions` counts the publications of each policy, and is part of a checkpoint.
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
        on_long_prompt: OnLongPrompt = "fault",
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._policies = policies
        self._references = references or {}
        self._critics = critics or {}
        self._rows_per_batch = rows_per_batch
        self._tokens_per_batch = tokens_per_batch
        self._score_tokens = score_tokens
        self._on_long_prompt = on_long_prompt
        self._between = between
        # Calls run in threads, so that environments go on meanwhile, but a backbone speaks as one policy at a time.
        self._turn = threading.Lock()
        # Not the loop's own threads: an environment may have them all stand still.
        self._threads = ThreadPoolExecutor(thread_name_prefix="sampler")
        self._spent = Spent()
        self.versions = dict.fromkeys(policies, 0)

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Answers in order. A prompt that does not fit is a Fault in its place, and handed out at once."""
        loop = asyncio.get_running_loop()

        def hand_out(place: int, answer: Sampled | Fault) -> None:
            if on_answer is not None:  # in the order of a loop's callbacks, so all are out before the call returns
                loop.call_soon_threadsafe(on_answer, place, answer)

        return await self._run(self._sample, requests, hand_out if self._beside else lambda place, answer: None)

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        """Log-probabilities (nats, one per token) under each policy's reference. Raises: ConfigError where it has none."""
        return await self._run(self._logprobs, requests)

    async def values(self, requests: Sequence[ValueRequest]) -> list[Valued]:
        """What each request's critic says, in order."""
        return await self._run(self._values, requests)

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """In a thread of its own, so that environments go on meanwhile; or in this one, which learns."""
        if self._beside:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)
        await asyncio.sleep(0)  # nothing below waits, and only where something waits does Ctrl-C come through
        return work(*given)

    @property
    def _beside(self) -> bool:
        # Each thread that computes has OpenMP threads of its own. With more of these than cores, OpenMP lets them sleep between
        # any two kernels, and small models decode 1.4 times slower.
        on_cpu = all(devices.is_cpu(policy.backbone.device) for policy in self._policies.values())
        return not on_cpu or torch.get_num_threads() == 1

    async def publish(self, names: Sequence[str]) -> int:
        """The weights are shared, so only the version moves."""
        version = max(self.versions.values()) + 1
        self.versions |= dict.fromkeys(names, version)
        return version

    def timings(self) -> dict[str, float]:
        """Wall seconds of all sampling so far: `prefill`, prompts made into tokens and read, and `decode`, answers drawn."""
        return asdict(self._spent)

    # ------------------------------------------------------------------------------------------------ sampling

    def _sample(self, requests: Sequence[SampleRequest], hand_out: OnAnswer) -> list[Sampled | Fault]:
        begun = perf_counter()
        prompts = [self._prompt(request) for request in requests]
        self._spent.prefill += perf_counter() - begun
        open_ = _Open(requests, prompts, self.versions, hand_out)
        for names in self._casts(requests):
            room = self._policies[names[0]].backbone.context_length
            rows = [
                _Row(number, index, prompt, min(request.decode.max_new_tokens, room - len(prompt)))
                for number, (request, prompt) in enumerate(zip(requests, prompts, strict=True))
                if request.policy in names and not isinstance(prompt, Fault)
                for index in range(len(request.keys))
            ]
            for batch in self._batches(rows, self._tokens_per_batch):
                self._decode(open_, batch)
        return open_.answers()

    def _casts(self, requests: Sequence[SampleRequest]) -> list[list[str]]:
        """The policies asked, by name. Adapters of one base are one cast and decode together, as that was never measured to be
        slower (docs/performance.md)."""
        casts: dict[object, list[str]] = {}
        for name in sorted({request.policy for request in requests}):
            policy = self._policies[name]
            together = policy.adapter is not None and policy.backbone.mixes_adapters
            casts.setdefault(id(policy.backbone) if together else name, []).append(name)
        return list(casts.values())

    def _prompt(self, request: SampleRequest) -> tuple[int, ...] | Fault:
        backbone = self._policies[request.policy].backbone
        try:
            return fit(
                backbone.tokenizer,
                request.prompt,
                backbone.context_length,
                request.decode.max_new_tokens,
                self._on_long_prompt,
            )
        except SamplerFault as fault:
            return Fault("sampler", fault.cause or type(fault).__name__, f"policy {request.policy}: {fault}")

    def _decode(self, open_: "_Open", rows: Sequence[_Row]) -> None:
        asked = [open_.requests[row.request] for row in rows]
        read = [(request.policy, row.prompt) for row, request in zip(rows, asked, strict=True)]
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(read))}
        wishes = [
            Wish(places[prompt], request.decode, request.keys[row.index], request.greedy)
            for prompt, row, request in zip(read, rows, asked, strict=True)
        ]
        cast = [self._policies[name] for name, _ in places]
        backbone = cast[0].backbone
        # An adapter that is alone is drawn so too: it is faster than PEFT's way.
        mixed = cast[0].adapter is not None and backbone.mixes_adapters
        speakers = [str(policy.adapter) for policy in cast] if mixed else None

        def take(wish: int, answer: Answer) -> None:
            open_.take(rows[wish], answer)

        prompts = [prompt for _, prompt in places]
        width = max(map(len, prompts)) + max(row.answer for row in rows)
        asked_for = f"playing {len(rows)} answers of up to {width} tokens, prompt included"
        knobs = (
            f"lower train.rows_per_batch ({self._rows_per_batch}) or train.tokens_per_batch ({self._tokens_per_batch})"
        )
        active = cast[0].active() if speakers is None else backbone.policy(None)
        with self._turn, asking_for(asked_for, knobs, backbone.device), active:
            decode(
                backbone, prompts, wishes, speakers=speakers, on_answer=take, spent=self._spent, between=self._between
            )

    # ------------------------------------------------------------------------------------------------ scoring

    def _logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        scored: dict[int, tuple[float, ...]] = {}
        for name in sorted({request.policy for request in requests}):
            reference = self._reference(name)
            rows = [
                _Row(number, 0, request.prompt_tokens, len(request.tokens))
                for number, request in enumerate(requests)
                if request.policy == name
            ]
            for batch in self._batches(rows, self._score_tokens):
                self._between()
                with self._turn, self._scoring(batch, reference.backbone), reference.active():
                    logprobs = score_requests(reference.backbone, [requests[row.request] for row in batch])
                scored |= zip((row.request for row in batch), logprobs, strict=True)
        return [scored[number] for number in range(len(requests))]

    def _values(self, requests: Sequence[ValueRequest]) -> list[Valued]:
        said: dict[int, Valued] = {}
        for name in sorted({request.critic for request in requests}):
            critic = self._critics[name]
            asked = {n: read(critic, request) for n, request in enumerate(requests) if request.critic == name}
            rows = [_Row(number, 0, reading.tokens, 0) for number, reading in asked.items()]
            for batch in self._batches(rows, self._score_tokens):
                self._between()
                with self._turn, self._scoring(batch, critic.backbone):
                    found = appraise(critic, [asked[row.request] for row in batch])
                said |= zip((row.request for row in batch), found, strict=True)
        return [said[number] for number in range(len(requests))]

    def _scoring(self, batch: Sequence[_Row], backbone: Backbone) -> AbstractContextManager[None]:
        width = max(len(row.prompt) + row.answer for row in batch)
        knobs = f"lower train.token_budget ({self._score_tokens})"
        return asking_for(f"scoring {len(batch)} texts of up to {width} tokens", knobs, backbone.device)

    def _reference(self, name: str) -> Policy:
        if name in self._references:
            return self._references[name]
        policy = self._policies[name]
        if policy.adapter is None:
            raise ConfigError(
                f"policy {name} is fully trained and has no reference: load a frozen copy, or train an adapter"
            )
        return Policy(f"{name} (reference)", policy.backbone, adapter=None, trainable=False)

    # ------------------------------------------------------------------------------------------------ batches

    def _batches(self, rows: Sequence[_Row], tokens: int) -> Iterator[list[_Row]]:
        """Rows with similar lengths together. A row too large for the budget goes alone."""
        batch: list[_Row] = []
        for row in sorted(rows, key=lambda row: (len(row.prompt), row.answer, row.request, row.index)):
            grown = [*batch, row]
            width = len(row.prompt) + max(other.answer for other in grown)
            if batch and (len(grown) > self._rows_per_batch or len(grown) * width > tokens):
                yield batch
                grown = [row]
            batch = grown
        if batch:
            yield batch


class _Open:
    """The requests of one call and what has been drawn for them. Each is handed out when all of its keys are answered."""

    def __init__(
        self,
        requests: Sequence[SampleRequest],
        prompts: Sequence[tuple[int, ...] | Fault],
        versions: Mapping[str, int],
        hand_out: OnAnswer,
    ) -> None:
        self.requests = requests
        self._versions, self._hand_out = versions, hand_out
        self._drawn: list[dict[int, Answer]] = [{} for _ in requests]
        self._answers: dict[int, Sampled | Fault] = {}
        for number, prompt in enumerate(prompts):
            if isinstance(prompt, Fault):
                self._end(number, prompt)

    def take(self, row: _Row, answer: Answer) -> None:
        request, drawn = self.requests[row.request], self._drawn[row.request]
        drawn[row.index] = answer
        if len(drawn) == len(request.keys):
            unread = [drawn[index].unread for index in range(len(drawn)) if drawn[index].unread]
            if unread:
                message = f"policy {request.policy}: the tokenizer failed at an answer: {unread[0]}"
                self._end(row.request, Fault("sampler", TokenizerFault.cause, message))
                return
            completions = (self._completion(request, drawn[index]) for index in range(len(drawn)))
            self._end(row.request, Sampled(row.prompt, tuple(completions)))

    def answers(self) -> list[Sampled | Fault]:
        """All of them, in the order of the requests, after the last was drawn."""
        return [self._answers[number] for number in range(len(self.requests))]

    def _completion(self, request: SampleRequest, answer: Answer) -> Completion:
        return Completion(
            policy=request.policy,
            text=answer.text,
            stop=answer.stop,
            version=self._versions[request.policy],
            tokens=answer.tokens,
            logprobs=answer.logprobs,
            temperature=request.decode.temperature,
        )

    def _end(self, number: int, answer: Sampled | Fault) -> None:
        self._answers[number] = answer
        self._hand_out(number, answer)


@torch.no_grad()
def score_requests(backbone: Backbone, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
    """Log-probabilities of each request's tokens by the policy that is active on the backbone, in one batch."""
    places = {
        prompt: place for place, prompt in enumerate(dict.fromkeys(request.prompt_tokens for request in requests))
    }
    rows = Rows(
        *padded(list(places), backbone.pad_id, "left", backbone.device),
        torch.tensor([places[request.prompt_tokens] for request in requests], device=backbone.device),
        *padded([request.tokens for request in requests], backbone.pad_id, "right", backbone.device),
    )
    temperature_B = torch.tensor([request.temperature for request in requests], device=backbone.device)
    logp_BL, _ = forward(backbone, rows, temperature_B, want_entropy=False)
    return [tuple(row[: len(request.tokens)]) for row, request in zip(logp_BL.tolist(), requests, strict=True)]
