"""vLLM engines sample, homes learn and score.

A call's prompts are fitted and its completions built by the functions of the local sampler. Rows
are dealt to the engines of a home by their order alone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol

from motet.core import Completion, Fault, OnAnswer, Sampled, SampleRequest
from motet.models.completions import CompletionEnds, stop_ids, with_texts
from motet.models.prompts import fit_request
from motet.models.sampler import CompletionRow, OpenRequests
from motet.models.tool_forms import call_ends, tools_of
from motet_cluster.engine_pool import EnginePool
from motet_cluster.engine_publisher import EnginePolicy
from motet_cluster.remote import together
from motet_cluster.vllm_engine import EngineRow


class Published(Protocol):
    """Engines and the weights that they have: `EnginePublisher`, or `served.ServedTeam`."""

    @property
    def policies(self) -> Mapping[str, EnginePolicy]: ...

    @property
    def pools(self) -> Mapping[str, EnginePool]:
        """Home -> its engines."""
        ...

    @property
    def ends(self) -> Mapping[str, tuple[int, ...]]:
        """Home -> the tokens that end a completion."""
        ...

    @property
    def versions(self) -> Mapping[str, int]: ...

    async def catch_up(self) -> None:
        """Give the engines what they lack."""
        ...


class VllmSampler:
    """A `core.Sampler` with the engines of `publisher`, and the weights that it published."""

    def __init__(self, publisher: Published) -> None:
        self._publisher = publisher
        self._policies = publisher.policies
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="sampler")
        self._seconds = {"prefill": 0.0, "decode": 0.0}

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests.

        Raises: MotetError if too many engines died, or if an engine has other weights than its
        home; TrainingDiverged if the log-probabilities of a policy are finite for none of several
        prompts.
        """
        await self._publisher.catch_up()
        begun = perf_counter()
        prompts = await self._beside(self._fitted, requests)
        fitted = perf_counter()
        open_ = OpenRequests(requests, prompts, on_answer or (lambda place, answer: None))
        asked = []
        for home, pool in self._publisher.pools.items():
            here = {name: one.context for name, one in self._policies.items() if one.home == home}
            rows = open_.rows(here)
            asked += [
                self._ask(pool, number, open_, dealt)
                for number, dealt in enumerate(deal(rows, len(pool)))
                if dealt
            ]
        await together(*asked)
        self._seconds["prefill"] += fitted - begun
        self._seconds["decode"] += perf_counter() - fitted
        return open_.answers()

    def _fitted(self, requests: Sequence[SampleRequest]) -> list[tuple[int, ...] | Fault]:
        return [
            fit_request(policy.tokenizer, request, policy.context)
            for request in requests
            for policy in (self._policies[request.policy],)
        ]

    async def _ask(
        self, pool: EnginePool, number: int, open_: OpenRequests, rows: Sequence[CompletionRow]
    ) -> None:
        """Let one engine sample `rows`, and hand out what it answers."""
        asked = [self._complete(open_.requests[row.request]) for row in rows]
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
                    top_p=request.decode.top_p,
                    top_k=request.decode.top_k,
                    stop_ids=stop_ids(words, request.decode.stop),
                )
                for request, row in zip(asked, rows, strict=True)
                for words in (self._policies[request.policy].tokenizer,)
            ],
            self._publisher.ends[pool.home],
        )
        sampled: dict[str, list[tuple[CompletionRow, Completion, SampleRequest]]] = {}
        for request, row, one in zip(asked, rows, said, strict=True):
            completion = Completion(
                request.policy,
                "",
                "stop" if one.stopped else "length",
                self._publisher.versions[request.policy],
                one.tokens,
                one.logprobs,
                # vLLM's greedy rows have the log-probabilities of temperature 1.
                1.0 if request.greedy else request.decode.temperature,
            )
            sampled.setdefault(request.policy, []).append((row, completion, request))
        for policy, own in sampled.items():
            finished = await self._beside(
                with_texts,
                self._policies[policy].tokenizer,
                [completion for _, completion, _ in own],
                [request.decode for _, _, request in own],
                [row.prompt for row, _, _ in own],
                self._publisher.ends[pool.home],
                [tools_of(request.prompt) for _, _, request in own],
            )
            for (row, _, _), completion in zip(own, finished, strict=True):
                open_.take(row, completion)

    def _complete(self, request: SampleRequest) -> SampleRequest:
        """Return a request with all of its stop strings: a chat also ends where a turn does."""
        policy = self._policies[request.policy]
        ends = CompletionEnds(turn_text=policy.turn_text, calls=call_ends(policy.tokenizer))
        return replace(request, decode=ends.decode_of(request.decode, request.prompt))

    async def _beside(self, work: Any, *given: Any) -> Any:
        """Run `work` in a thread, so that environments can run meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def timings(self) -> dict[str, float]:
        """Return wall seconds of all sampling: tokenizing (`prefill`), and the engines' work."""
        return dict(self._seconds)


def deal(rows: Sequence[CompletionRow], engines: int) -> list[Sequence[CompletionRow]]:
    """Deal rows to engines: one block each, as even as possible, by the order of the rows alone.

    Rows of one prompt lie together, so most prompts are read by one engine.
    """
    bounds = [len(rows) * number // engines for number in range(engines + 1)]
    return [rows[start:end] for start, end in pairwise(bounds)]
