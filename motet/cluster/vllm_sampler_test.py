"""Routing, publishing and verification with engines and homes that are plain objects."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from motet.cluster.engine_pool import EnginePool, Restarts
from motet.cluster.engine_publisher import EnginePolicy, EnginePublisher
from motet.cluster.gated import GatedHome
from motet.cluster.vllm_engine import EngineAnswer, EngineRow
from motet.cluster.vllm_sampler import VllmSampler, deal
from motet.core import Fault, Sampled, SampleRequest, ScoreRequest
from motet.errors import MotetError, ProcessLost
from motet.models.sampler_rows import CompletionRow
from motet.models.tiny import EOS, PAD, byte_level_bpe
from motet.settings import Decode

CONTEXT = 12
ENDS = (1,)
GPUS = 2


def logprob(weight: float, token: int) -> float:
    """The fake policy: any function of weight and token."""
    return -weight - 0.01 * token


@dataclass
class FakeEngine:
    """Draws tokens from the key of a row, with log-probabilities of the weights it was sent."""

    stale: bool = False
    """Keeps its first weights: a broken transfer."""
    dies_at: int = -1
    """The number of the `generate` call at which it dies."""
    dead: bool = False
    weights: dict[str, float] = field(default_factory=dict)
    asked: list[list[EngineRow]] = field(default_factory=list)

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        await asyncio.sleep(0)
        return getattr(self, verb)(*given)

    @property
    def handle(self) -> "FakeEngine":
        return self

    def end(self) -> None:
        pass

    def ready(self) -> None:
        if self.dead:
            raise ProcessLost("killed")

    def load(self, settings: object) -> None:
        pass

    def load_adapter(self, policy: str, label: str, files: dict[str, float]) -> None:
        self.ready()
        if not self.stale or policy not in self.weights:
            self.weights[policy] = files["weight"]

    def generate(self, rows: list[EngineRow], eos: tuple[int, ...]) -> list[EngineAnswer]:
        assert eos == ENDS
        self.asked.append(rows)
        if len(self.asked) == self.dies_at:
            raise ProcessLost("killed")
        return [self._answer(row) for row in rows]

    def _answer(self, row: EngineRow) -> EngineAnswer:
        tokens = tuple(2 + (row.key + place) % 90 for place in range(row.tokens))
        weight = self.weights[row.policy]
        return EngineAnswer(tokens, tuple(logprob(weight, token) for token in tokens), False)


@dataclass
class FakeHome:
    weights: dict[str, float]
    asked: list[str] = field(default_factory=list)
    broadcasts: int = 0

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        self.asked.append(verb)
        return getattr(self, verb)(*given)

    def call_now(self, verb: str, *given: Any) -> Any:
        return getattr(self, verb)(*given)

    def notify(self, verb: str) -> None:
        pass

    def ends(self) -> tuple[int, ...]:
        return ENDS

    def export(self, policy: str) -> list[dict[str, float]]:
        return [{"weight": self.weights[policy]}]

    def broadcast(self, policy: str, engines: list[FakeEngine], gpus: int) -> None:
        """NCCL reaches all engines or none."""
        self.broadcasts += 1
        if any(engine.dead for engine in engines) or gpus != GPUS:
            raise RuntimeError("NCCL failed")
        for engine in engines:
            engine.weights[policy] = self.weights[policy]

    def present_logprobs(self, requests: list[ScoreRequest]) -> list[tuple[float, ...]]:
        return [
            tuple(logprob(self.weights[one.policy], token) for token in one.tokens)
            for one in requests
        ]

    def accumulate(self, policy: str) -> None:
        self.weights[policy] += 0.3

    def disturb(self, policy: str) -> None:
        self.weights[policy] += 0.5

    def undisturb(self, policy: str) -> None:
        self.weights[policy] -= 0.5


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    trained = byte_level_bpe(["a b c"], 300, special_tokens=(PAD, EOS))
    return PreTrainedTokenizerFast(tokenizer_object=trained, pad_token=PAD, eos_token=EOS)


@dataclass
class Stage:
    sampler: VllmSampler
    publisher: EnginePublisher
    home: FakeHome
    engines: list[FakeEngine]


@pytest.fixture
def stage(tokenizer: PreTrainedTokenizerFast) -> Any:
    """Return a function that builds a sampler of two adapters on one home."""

    def build(
        *engines: FakeEngine, replicas: int = 1, dtype: str = "float32", nccl_gpus: int = 0
    ) -> Stage:
        home = FakeHome({"p": 1.0, "q": 2.0})
        policies = [
            EnginePolicy(
                name,
                "h",
                tokenizer,
                CONTEXT,
                dtype,
                adapter=not nccl_gpus,
                trained=True,
                nccl_gpus=nccl_gpus,
            )
            for name in home.weights
        ]
        waiting, used = list(engines), []

        def start(number: int) -> FakeEngine:
            used.append(waiting.pop(0) if waiting else FakeEngine())
            return used[-1]

        publisher = EnginePublisher(policies, {"h": home}, Restarts(1))
        publisher.pools["h"] = EnginePool(
            "h", replicas, start, None, 60.0, publisher.restarts, publisher.restore
        )
        return Stage(VllmSampler(publisher, "fault"), publisher, home, used)

    return build


def request(number: int, policy: str, prompt: str, *keys: int, **more: Any) -> SampleRequest:
    return SampleRequest((number,), policy, prompt, Decode(max_new_tokens=3), keys, **more)


REQUESTS = [
    request(0, "p", "a b", 1, 2, 3),
    request(1, "q", "c", 4),
    request(2, "p", "a b c " * 9, 5),
    request(3, "q", "b", 6, 7),
]


def sampled(stage: Stage) -> list[Sampled | Fault]:
    return asyncio.run(stage.sampler.sample(REQUESTS))


def test_answers_have_the_order_of_the_requests_and_the_weights_of_their_policies(
    stage: Any,
) -> None:
    answers = sampled(stage())
    for asked, answer, weight in zip(REQUESTS, answers, (1.0, 2.0, None, 2.0), strict=True):
        if weight is None:
            assert isinstance(answer, Fault)
            assert answer.cause == "long_prompt"
            continue
        assert isinstance(answer, Sampled)
        assert len(answer.completions) == len(asked.keys)
        for key, completion in zip(asked.keys, answer.completions, strict=True):
            assert completion.policy == asked.policy
            assert completion.tokens[0] == 2 + key % 90
            assert completion.logprobs[0] == logprob(weight, completion.tokens[0])
            assert (completion.stop, completion.version) == ("length", 0)


def test_the_number_of_engines_changes_no_answer(stage: Any) -> None:
    assert sampled(stage(replicas=3)) == sampled(stage())


def test_every_engine_gets_its_share_of_the_rows(stage: Any) -> None:
    found = stage(replicas=3)
    sampled(found)
    # 3 + 1 + 2 rows; the long prompt is not asked for.
    assert [len(engine.asked[-1]) for engine in found.engines] == [2, 2, 2]


def test_rows_are_dealt_in_even_blocks() -> None:
    rows = [CompletionRow(number, 0, (1,), 1) for number in range(7)]
    assert [[row.request for row in block] for block in deal(rows, 3)] == [
        [0, 1],
        [2, 3],
        [4, 5, 6],
    ]
    assert [len(block) for block in deal(rows[:1], 3)] == [0, 0, 1]


def test_each_request_is_handed_out_once(stage: Any) -> None:
    handed: list[int] = []
    found = stage(replicas=2)
    asyncio.run(found.sampler.sample(REQUESTS, lambda place, answer: handed.append(place)))
    assert sorted(handed) == [0, 1, 2, 3]


def test_greedy_completions_note_the_temperature_of_their_log_probabilities(stage: Any) -> None:
    decode = Decode(max_new_tokens=2, temperature=0.5)
    asked = [
        SampleRequest((0,), "p", "a", decode, (1,), greedy=True),
        SampleRequest((1,), "p", "a", decode, (1,)),
    ]
    answers = asyncio.run(stage().sampler.sample(asked))
    temperatures = [one.completions[0].temperature for one in answers if isinstance(one, Sampled)]
    assert temperatures == [1.0, 0.5]


def test_published_weights_are_sampled_with_from_then_on(stage: Any) -> None:
    found = stage()
    sampled(found)
    found.home.weights["q"] = 5.0
    assert asyncio.run(found.publisher.publish(["q"])) == 1
    answer = sampled(found)[1]
    assert isinstance(answer, Sampled)
    [completion] = answer.completions
    assert completion.version == 1
    assert completion.logprobs[0] == logprob(5.0, completion.tokens[0])
    assert found.publisher.versions == {"p": 0, "q": 1}
    assert found.publisher.metrics() == {
        "publish/probe_max": 0.0,
        "publish/probe_mean": 0.0,
        "publish/engines_replaced": 0.0,
    }


def test_weights_of_a_checkpoint_reach_the_engines_before_the_next_call(stage: Any) -> None:
    found = stage()
    sampled(found)
    found.home.weights["p"] = 7.0
    found.publisher.loaded({"p": 4, "q": 3})
    answer = sampled(found)[0]
    assert isinstance(answer, Sampled)
    assert answer.completions[0].version == 4
    assert answer.completions[0].logprobs[0] == logprob(7.0, answer.completions[0].tokens[0])


def test_a_home_learns_after_its_engines_have_the_weights_of_the_checkpoint(stage: Any) -> None:
    found = stage()
    found.publisher.loaded({"p": 4, "q": 3})
    home = GatedHome(found.home, found.publisher.catch_up)

    async def beside() -> Any:
        """Play while the home learns, as with max_lag 1."""
        _, answers = await asyncio.gather(
            home.call("accumulate", "p"), found.sampler.sample(REQUESTS)
        )
        return answers

    answer = asyncio.run(beside())[0]
    assert answer.completions[0].logprobs[0] == logprob(1.0, answer.completions[0].tokens[0])
    assert found.home.weights["p"] == 1.3
    assert found.home.asked.index("undisturb") < found.home.asked.index("accumulate")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rehearsal_finds_an_engine_that_keeps_its_weights(stage: Any, dtype: str) -> None:
    found = stage(FakeEngine(stale=True), dtype=dtype)
    with pytest.raises(MotetError, match="policy p did not take all weights in the rehearsal"):
        sampled(found)
    # The homes train on with their own weights.
    assert found.home.weights == {"p": 1.0, "q": 2.0}


def test_the_rehearsal_leaves_the_published_weights(stage: Any) -> None:
    found = stage()
    sampled(found)
    assert found.home.weights == found.engines[0].weights == {"p": 1.0, "q": 2.0}


def test_the_probe_finds_weights_that_were_not_transferred(stage: Any) -> None:
    found = stage()
    sampled(found)
    found.engines[0].stale = True
    found.home.weights["p"] += 0.002
    with pytest.raises(MotetError, match=r"version 1 of policy p: an engine samples with other"):
        asyncio.run(found.publisher.publish(["p"]))


def test_a_killed_engine_is_replaced_and_the_answers_are_the_same(stage: Any) -> None:
    # Calls of generate: 2 policies x (2 probes of the rehearsal, 1 of the weights), the rows.
    found = stage(FakeEngine(dies_at=7))
    assert sampled(found) == sampled(stage())
    assert len(found.engines) == 2
    assert found.publisher.metrics()["publish/engines_replaced"] == 1.0


def test_a_new_engine_with_other_weights_is_refused(stage: Any) -> None:
    wrong = FakeEngine(stale=True, weights={"p": 1.1, "q": 2.0})
    with pytest.raises(MotetError, match="policy p: the new engine 0 samples with other weights"):
        sampled(stage(FakeEngine(dies_at=7), wrong))


def test_a_new_engine_is_compared_with_the_publication_not_with_a_home_that_learns(
    stage: Any,
) -> None:
    found = stage()
    sampled(found)
    found.engines[0].dies_at = len(found.engines[0].asked) + 1
    found.home.weights["p"] += 0.3  # an optimizer step, not yet published
    assert sampled(found) == sampled(stage())


def test_an_engine_that_dies_while_it_is_given_new_weights_is_replaced(stage: Any) -> None:
    found = stage()
    sampled(found)
    found.engines[0].dead = True
    found.home.weights["q"] = 5.0
    asyncio.run(found.publisher.publish(["q"]))
    assert found.engines[1].weights == {"p": 1.0, "q": 5.0}


def test_the_run_stops_when_engines_die_again_and_again(stage: Any) -> None:
    with pytest.raises(MotetError, match=r"cluster\.restarts \(1\)"):
        sampled(stage(FakeEngine(dies_at=7), FakeEngine(dies_at=1)))


def test_by_nccl_the_home_sends_to_all_engines_itself(stage: Any) -> None:
    found = stage(replicas=2, nccl_gpus=GPUS)
    assert sampled(found) == sampled(stage())
    found.home.weights["q"] = 5.0
    before = found.home.broadcasts
    asyncio.run(found.publisher.publish(["q"]))
    assert found.home.broadcasts == before + 1
    assert [engine.weights["q"] for engine in found.engines] == [5.0, 5.0]


def test_an_engine_that_dies_in_a_broadcast_is_replaced_and_all_get_the_weights(
    stage: Any,
) -> None:
    found = stage(replicas=2, nccl_gpus=GPUS)
    sampled(found)
    found.engines[1].dead = True
    found.home.weights["q"] = 5.0
    asyncio.run(found.publisher.publish(["q"]))
    assert len(found.engines) == 3
    assert [found.engines[place].weights["q"] for place in (0, 2)] == [5.0, 5.0]


def test_a_broadcast_that_fails_with_all_engines_alive_stops_the_run(stage: Any) -> None:
    with pytest.raises(RuntimeError, match="NCCL failed"):
        sampled(stage(nccl_gpus=GPUS + 1))


def test_by_nccl_a_new_engine_with_weights_that_were_not_published_is_refused(stage: Any) -> None:
    found = stage(nccl_gpus=GPUS)
    sampled(found)
    found.engines[0].dies_at = len(found.engines[0].asked) + 1
    found.home.weights["p"] += 0.3  # the home has learned since
    with pytest.raises(MotetError, match="policy p: the new engine 0 samples with other weights"):
        sampled(found)
