"""Publishing to vLLM engines: new weights reach all engines of a home, and are verified there."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import ScoreRequest
from motet_cluster.engine_pool import EnginePool, Restarts
from motet_cluster.remote import Process, together
from motet_cluster.verification import (
    Difference,
    ProbeRecord,
    against_record,
    check_probe,
    check_rehearsal,
    difference,
    probe_rows,
    worst,
)
from motet_cluster.vllm_engine import EngineAnswer, EngineRow


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
    turn_text: tuple[str, ...] = ()
    """Strings with which the chat template ends a turn: they end completions of chats."""
    nccl_gpus: int = 0
    """GPUs of each engine, if the home broadcasts the weights by NCCL. 0: they travel as files."""

    @property
    def sent(self) -> bool:
        """Whether engines need its weights. A frozen base is what they load."""
        return self.adapter or self.trained


class EnginePublisher:
    """A `core.Publisher` to engines.

    `versions` counts the publications of each policy, and is part of a checkpoint. `homes` maps
    names of homes to their processes.
    """

    def __init__(
        self, policies: Sequence[EnginePolicy], homes: Mapping[str, Process], restarts: Restarts
    ) -> None:
        self.policies = {policy.name: policy for policy in policies}
        self._homes = homes
        self.pools: dict[str, EnginePool] = {}
        """Home -> its engines. Set before the first call."""
        self.ends: dict[str, tuple[int, ...]] = {}
        """Home -> the tokens that end a completion. Known after `catch_up`."""
        self.restarts = restarts
        self.versions = {policy.name: 0 for policy in policies}
        self._published: dict[str, tuple[str, Any]] = {}
        """Policy -> (label, weights) that its engines have."""
        self._records: dict[str, ProbeRecord] = {}
        self._floors: dict[str, float] = {}
        """Trained policy -> the mean difference that rounding explains."""
        self._behind = {policy.name for policy in policies if policy.sent}
        self._turn = asyncio.Lock()
        self._measured: dict[str, float] = {}

    async def publish(self, names: Sequence[str]) -> int:
        """Give the engines the weights of these policies, and verify them.

        Raises: MotetError if an engine then samples with other weights than its home.
        """
        await self.catch_up()
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
        self._behind = {name for name, policy in self.policies.items() if policy.sent}

    def metrics(self) -> dict[str, float]:
        """Return what the last publication measured (docs/metrics.md, `publish/`)."""
        return {**self._measured, "publish/engines_replaced": float(self.restarts.used)}

    async def load(self) -> None:
        """Load the base models in all engines. Raises: ConfigError if vLLM cannot load one."""
        await together(*(pool.load() for pool in self.pools.values()))

    async def catch_up(self) -> None:
        """Rehearse, and send the engines what the homes have, if that is not done yet."""
        async with self._turn:
            if not self.ends:
                ends = await together(*(self._homes[home].call("ends") for home in self.pools))
                self.ends = dict(zip(self.pools, ends, strict=True))
            behind, self._behind = sorted(self._behind), set()
            if not behind:
                return
            await self._send(behind)
            trained = [name for name in behind if self.policies[name].trained]
            if trained and not self._floors:
                await self._rehearse(trained)
            await self._verify(behind)

    async def _send(self, names: Sequence[str], suffix: str = "") -> None:
        await together(*(self._send_one(name, f"{self.versions[name]}{suffix}") for name in names))

    async def _send_one(self, name: str, label: str) -> None:
        policy = self.policies[name]
        pool = self.pools[policy.home]
        self._records.pop(name, None)  # of the older weights
        if policy.nccl_gpus:
            self._published[name] = (label, None)
            await self._broadcast(policy, pool)
            return
        # A reference, which Ray resolves where it is used: weights do not pass the driver.
        [weights] = await self._homes[policy.home].call("export", name)
        self._published[name] = (label, weights)
        verb, given = self._sending(name)
        await pool.ask_all(verb, *given)

    async def _broadcast(self, policy: EnginePolicy, pool: EnginePool) -> None:
        """Let the home send its present weights to all engines, or replace those that died."""
        before = list(pool.engines)
        handles = [engine.handle for engine in before]
        try:
            await self._homes[policy.home].call("broadcast", policy.name, handles, policy.nccl_gpus)
        except Exception:
            await pool.ask_all("ready")  # replaces dead engines, and `restore` sends to all
            if pool.engines == before:
                raise

    def _sending(self, name: str) -> tuple[str, tuple[Any, ...]]:
        """Return the call that gives an engine the published weights of a policy."""
        label, weights = self._published[name]
        if self.policies[name].adapter:
            return "load_adapter", (name, label, weights)
        return "load_weights", (label, weights)

    async def restore(self, pool: EnginePool, number: int) -> None:
        """Give a new engine the published weights, and compare its probe with the record.

        A publication that is under way has no record yet: all engines are probed at its end.
        """
        for name in [name for name in self._published if self.policies[name].home == pool.home]:
            if self.policies[name].nccl_gpus:
                # NCCL connects all engines anew. If the home has learned since it published, the
                # comparison below finds that.
                handles = [engine.handle for engine in pool.engines]
                home, gpus = self._homes[pool.home], self.policies[name].nccl_gpus
                await home.call("broadcast", name, handles, gpus)
                continue
            verb, given = self._sending(name)
            await pool.ask_now(number, verb, *given)
        for name, record in self._records.items():
            policy = self.policies[name]
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
        homes = [(self._homes[self.policies[name].home], name) for name in names]
        try:
            await together(*(home.call("disturb", name) for home, name in homes))
            before = await self._differences(names)
            await self._send(names, "-rehearsal")
            after = await self._differences(names)
        finally:
            await together(*(home.call("undisturb", name) for home, name in homes))
        for name in names:
            dtype = self.policies[name].dtype
            who = f"the engine of policy {name}"
            self._floors[name] = check_rehearsal(who, before[name], after[name], dtype)
        await self._send(names)

    async def _probe(self, names: Sequence[str]) -> dict[str, Difference]:
        """Check the engines of these policies, and keep the records for later engines."""
        found = await self._differences(names, keep=True)
        for name in names:
            self._check(self.policies[name], None, found[name])
        return found

    def _check(self, policy: EnginePolicy, number: int | None, found: Difference) -> None:
        which = "an engine" if number is None else f"the new engine {number}"
        who = f"version {self._published[policy.name][0]} of policy {policy.name}: {which}"
        if policy.dtype == "float32" or policy.name in self._floors:
            floor = self._floors[policy.name] if policy.name in self._floors else 0.0
            check_probe(who, found, policy.dtype, floor)

    async def _differences(self, names: Sequence[str], keep: bool = False) -> dict[str, Difference]:
        """Let every engine of these policies answer the probe, and the homes score it."""
        found = await together(*(self._difference(self.policies[name], keep) for name in names))
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
        return probe_rows(policy.name, len(policy.tokenizer)), self.ends[policy.home]
