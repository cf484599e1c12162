"""vLLM engines sample, homes learn and score.

A call's prompts are fitted and its completions built by the functions of the local sampler. Rows
are dealt to the engines of a home by their order alone. `publish` gives new weights to all engines
of a home, and verifies them (`verification.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.cluster.engine_pool import EnginePool, Restarts, gathered
from motet.cluster.remote import Process
from motet.cluster.verification import (
    Difference,
    ProbeRecord,
    against_record,
    check_probe,
    check_rehearsal,
    difference,
    probe_rows,
    worst,
)
from motet.cluster.vllm_engine import EngineAnswer, EngineRow
from motet.core import Fault, OnAnswer, Sampled, SampleRequest, ScoreRequest
from motet.models.completions import SampledAnswer, completions_of
from motet.models.prompts import OnLongPrompt, fit_request
from motet.models.sampler_rows import CompletionRow, OpenRequests
from motet.settings import Decode


@dataclass(frozen=True)
class EnginePolicy:
    """A policy as its engines see it."""

    name: str
    home: str
    tokenizer: PreTrainedTokenizerBase
    context: int
    dtype: str
    adapter: bool
    trained: bool

    @property
    def sent(self) -> bool:
        """Whether engines need its weights. A frozen base is what they load."""
        return self.adapter or self.trained


class VllmSampler:
    """A `core.Sampler` and a `core.Publisher`.

    `versions` counts the publications of each policy, and is part of a checkpoint. `homes` maps
    names of homes to their processes.
    """

    def __init__(
        self,
        policies: Sequence[EnginePolicy],
        homes: Mapping[str, Process],
        *,
        on_long_prompt: OnLongPrompt,
        restarts: Restarts,
    ) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._homes = homes
        self._on_long_prompt = on_long_prompt
        self.pools: dict[str, EnginePool] = {}
        """Home -> its engines. Set before the first call."""
        self.restarts = restarts
        self.versions = {policy.name: 0 for policy in policies}
        self._published: dict[str, tuple[str, Any]] = {}
        """Policy -> (label, weights) that its engines have."""
        self._records: dict[str, ProbeRecord] = {}
        self._floors: dict[str, float] = {}
        """Trained policy -> the mean difference that rounding explains."""
        self._behind = {policy.name for policy in policies if policy.sent}
        self._ends: dict[str, tuple[int, ...]] = {}
        """Home -> the tokens that end a completion."""
        self._turn = asyncio.Lock()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="sampler")
        self._seconds = {"prefill": 0.0, "decode": 0.0}
        self._measured: dict[str, float] = {}

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests.

        Raises: MotetError if too many engines died, or if an engine has other weights than its
        home; TrainingDiverged if a log-probability is not finite.
        """
        await self._catch_up()
        begun = perf_counter()
        prompts = await self._beside(self._fitted, requests)
        fitted = perf_counter()
        open_ = OpenRequests(requests, prompts, on_answer or (lambda place, answer: None))
        asked = []
        for home, pool in self.pools.items():
            rows = [
                CompletionRow(
                    number,
                    index,
                    prompt,
                    min(
                        request.decode.max_new_tokens,
                        self._policies[request.policy].context - len(prompt),
                    ),
                )
                for number, (request, prompt) in enumerate(zip(requests, prompts, strict=True))
                if not isinstance(prompt, Fault) and self._policies[request.policy].home == home
                for index in range(len(request.keys))
            ]
            asked += [
                self._ask(pool, number, open_, dealt)
                for number, dealt in enumerate(deal(rows, len(pool)))
                if dealt
            ]
        await gathered(asked)
        self._seconds["prefill"] += fitted - begun
        self._seconds["decode"] += perf_counter() - fitted
        return open_.answers()

    def _fitted(self, requests: Sequence[SampleRequest]) -> list[tuple[int, ...] | Fault]:
        return [
            fit_request(policy.tokenizer, request, policy.context, self._on_long_prompt)
            for request in requests
            for policy in (self._policies[request.policy],)
        ]

    async def _ask(
        self, pool: EnginePool, number: int, open_: OpenRequests, rows: list[CompletionRow]
    ) -> None:
        """Let one engine sample `rows`, and hand out what it answers."""
        asked = [open_.requests[row.request] for row in rows]
        said = await pool.ask(
            number,
            "generate",
            [
                EngineRow(
                    request.policy,
                    row.prompt,
                    row.answer,
                    request.decode.temperature,
                    request.decode.stop,
                    request.keys[row.index],
                    request.greedy,
                )
                for request, row in zip(asked, rows, strict=True)
            ],
            self._ends[pool.home],
        )
        answers: dict[str, list[tuple[CompletionRow, SampledAnswer]]] = {}
        for request, row, one in zip(asked, rows, said, strict=True):
            answer = SampledAnswer(
                request.policy,
                _noted(request),
                self.versions[request.policy],
                one.tokens,
                one.logprobs,
                one.stopped,
            )
            answers.setdefault(request.policy, []).append((row, answer))
        for policy, own in answers.items():
            built = await self._beside(
                completions_of, self._policies[policy].tokenizer, [answer for _, answer in own]
            )
            for (row, _), completion in zip(own, built, strict=True):
                open_.take(row, completion)

    async def _beside(self, work: Any, *given: Any) -> Any:
        """Run `work` in a thread, so that environments can run meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def timings(self) -> dict[str, float]:
        """Return wall seconds of all sampling: tokenizing (`prefill`), and the engines' work."""
        return dict(self._seconds)

    def metrics(self) -> dict[str, float]:
        """Return what the last publication measured (docs/metrics.md, `publish/`)."""
        return {**self._measured, "publish/engines_replaced": float(self.restarts.used)}

    # --------------------------------------------------------------------------------- publishing

    async def publish(self, names: Sequence[str]) -> int:
        """Give the engines the weights of these policies, and verify them.

        Raises: MotetError if an engine then samples with other weights than its home.
        """
        await self._catch_up()
        version = max(self.versions.values()) + 1
        self.versions |= dict.fromkeys(names, version)
        async with self._turn:
            await self._send(names)
            await self._verify(names)
        return version

    def loaded(self, versions: Mapping[str, int]) -> None:
        """Note that the homes have other weights now, of these versions: from a checkpoint.

        The engines get them before the next call.
        """
        self.versions |= versions
        self._behind = {name for name, policy in self._policies.items() if policy.sent}

    async def load(self) -> None:
        """Load the base models in all engines. Raises: ConfigError if vLLM cannot load one."""
        await gathered([pool.load() for pool in self.pools.values()])

    async def _catch_up(self) -> None:
        """Rehearse, and send the engines what the homes have, if that is not done yet."""
        async with self._turn:
            if not self._ends:
                ends = await gathered([self._homes[home].call("ends") for home in self.pools])
                self._ends = dict(zip(self.pools, ends, strict=True))
            behind, self._behind = sorted(self._behind), set()
            if not behind:
                return
            await self._send(behind)
            trained = [name for name in behind if self._policies[name].trained]
            if trained and not self._floors:
                await self._rehearse(trained)
            await self._verify(behind)

    async def _send(self, names: Sequence[str], suffix: str = "") -> None:
        await gathered([self._send_one(name, f"{self.versions[name]}{suffix}") for name in names])

    async def _send_one(self, name: str, label: str) -> None:
        policy = self._policies[name]
        # A reference, which Ray resolves where it is used: weights do not pass the driver.
        [weights] = await self._homes[policy.home].call("export", name)
        self._published[name] = (label, weights)
        verb, given = self._sending(name)
        await self.pools[policy.home].ask_all(verb, *given)

    def _sending(self, name: str) -> tuple[str, tuple[Any, ...]]:
        """Return the call that gives an engine the published weights of a policy."""
        label, weights = self._published[name]
        if self._policies[name].adapter:
            return "load_adapter", (name, label, weights)
        return "load_weights", (label, weights)

    async def restore(self, pool: EnginePool, number: int) -> None:
        """Give a new engine the published weights, and compare its probe with the record."""
        for name in [name for name in self._published if self._policies[name].home == pool.home]:
            verb, given = self._sending(name)
            await pool.ask_now(number, verb, *given)
        for name, record in self._records.items():
            policy = self._policies[name]
            if policy.home == pool.home:
                said = await pool.ask_now(number, "generate", *self._probe_of(policy))
                self._check(policy, number, against_record(said, record))

    # ------------------------------------------------------------------------------- verification

    async def _verify(self, names: Sequence[str]) -> None:
        found = await self._probe(names)
        self._measured = {
            "publish/probe_max": worst(found).largest,
            "publish/probe_mean": worst(found).mean,
        }

    async def _rehearse(self, names: Sequence[str]) -> None:
        """Publish known noise on the trained weights, compare, and publish the weights again."""
        homes = [(self._homes[self._policies[name].home], name) for name in names]
        try:
            await gathered([home.call("disturb", name) for home, name in homes])
            before = await self._differences(names)
            await self._send(names, "-rehearsal")
            after = await self._differences(names)
        finally:
            await gathered([home.call("undisturb", name) for home, name in homes])
        for name in names:
            dtype = self._policies[name].dtype
            who = f"the engine of policy {name}"
            self._floors[name] = check_rehearsal(who, before[name], after[name], dtype)
        await self._send(names)

    async def _probe(self, names: Sequence[str]) -> dict[str, Difference]:
        """Check the engines of these policies, and keep the records for later engines."""
        found = await self._differences(names, keep=True)
        for name in names:
            self._check(self._policies[name], None, found[name])
        return found

    def _check(self, policy: EnginePolicy, number: int | None, found: Difference) -> None:
        which = "an engine" if number is None else f"the new engine {number}"
        who = f"version {self._published[policy.name][0]} of policy {policy.name}: {which}"
        if policy.dtype == "float32" or policy.name in self._floors:
            floor = self._floors[policy.name] if policy.name in self._floors else 0.0
            check_probe(who, found, policy.dtype, floor)

    async def _differences(self, names: Sequence[str], keep: bool = False) -> dict[str, Difference]:
        """Let every engine of these policies answer the probe, and the homes score it."""
        found = await gathered([self._difference(self._policies[name], keep) for name in names])
        return dict(zip(names, found, strict=True))

    async def _difference(self, policy: EnginePolicy, keep: bool) -> Difference:
        rows, ends = self._probe_of(policy)
        pool = self.pools[policy.home]
        said: list[list[EngineAnswer]] = await pool.ask_all("generate", rows, ends)
        answers = [answer for own in said for answer in own]
        scored = await self._homes[policy.home].call(
            "present_logprobs",
            [
                ScoreRequest(policy.name, row.prompt, answer.tokens, row.temperature)
                for own in said
                for row, answer in zip(rows, own, strict=True)
            ],
        )
        if keep:
            first = tuple(said[0])
            self._records[policy.name] = ProbeRecord(first, tuple(scored[: len(first)]))
        return difference(answers, scored)

    def _probe_of(self, policy: EnginePolicy) -> tuple[list[EngineRow], tuple[int, ...]]:
        """Return what `VllmEngine.generate` takes."""
        return probe_rows(policy.name, len(policy.tokenizer)), self._ends[policy.home]


def deal(rows: Sequence[CompletionRow], engines: int) -> list[Sequence[CompletionRow]]:
    """Deal rows to engines: one block each, as even as possible, by the order of the rows alone.

    Rows of one prompt lie together, so most prompts are read by one engine.
    """
    bounds = [len(rows) * number // engines for number in range(engines + 1)]
    return [rows[start:end] for start, end in pairwise(bounds)]


def _noted(request: SampleRequest) -> Decode:
    """Return the settings to note in the completions: vLLM's greedy rows have the log-probabilities
    of temperature 1."""
    return (
        request.decode.model_copy(update={"temperature": 1.0}) if request.greedy else request.decode
    )
