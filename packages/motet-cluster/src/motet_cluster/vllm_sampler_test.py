"""Requests reach the engines and answers come back in order. The engines are plain objects."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from motet.core import Completion, Fault, Message, Sampled, SampleRequest, ToolCall, ToolSchema
from motet.models.loading import load_tokenizer
from motet.models.prompts import encode
from motet.models.sampler import CompletionRow
from motet.models.tiny import byte_level_bpe
from motet.settings import Decode
from motet_cluster.engine_publisher import EnginePolicy
from motet_cluster.vllm_engine import EngineAnswer, EngineRow
from motet_cluster.vllm_sampler import VllmSampler, deal
from tests.fixtures.fake_engines import REQUESTS, logprob, sampled, staged
from tests.fixtures.model_folders import make_model_folder


def test_answers_have_the_order_of_the_requests_and_the_weights_of_their_policies() -> None:
    answers = sampled(staged())
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


def test_the_number_of_engines_changes_no_answer() -> None:
    assert sampled(staged(replicas=3)) == sampled(staged())


def test_every_engine_gets_its_share_of_the_rows() -> None:
    found = staged(replicas=3)
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


def test_each_request_is_handed_out_once() -> None:
    handed: list[int] = []
    found = staged(replicas=2)
    asyncio.run(found.sampler.sample(REQUESTS, lambda place, answer: handed.append(place)))
    assert sorted(handed) == [0, 1, 2, 3]


def test_greedy_completions_note_the_temperature_of_their_log_probabilities() -> None:
    decode = Decode(max_new_tokens=2, temperature=0.5)
    asked = [
        SampleRequest((0,), "p", "a", decode, (1,), greedy=True),
        SampleRequest((1,), "p", "a", decode, (1,)),
    ]
    answers = asyncio.run(staged().sampler.sample(asked))
    temperatures = [one.completions[0].temperature for one in answers if isinstance(one, Sampled)]
    assert temperatures == [1.0, 0.5]


@dataclass
class SaidEngine:
    """An engine that answers from a table: the first token of a prompt -> its answer."""

    said: Mapping[int, EngineAnswer]
    home: str = "h"
    rows: list[EngineRow] = field(default_factory=list)
    ends: tuple[int, ...] = ()

    def __len__(self) -> int:
        return 1

    async def ask(
        self, number: int, verb: str, rows: Sequence[EngineRow], ends: Sequence[int]
    ) -> list[EngineAnswer]:
        assert (number, verb) == (0, "generate")
        self.rows, self.ends = list(rows), tuple(ends)
        return [self.said[row.prompt[0]] for row in rows]


class PublishedOnce:
    def __init__(self, engine: SaidEngine, policy: EnginePolicy, ends: tuple[int, ...]) -> None:
        self.policies, self.versions = {policy.name: policy}, {policy.name: 0}
        self.pools: Mapping[str, Any] = {engine.home: engine}
        self.ends = {engine.home: ends}

    async def catch_up(self) -> None:
        pass


def from_table(
    folder: Path, said: Mapping[str, EngineAnswer], decode: Decode | None = None
) -> tuple[list[Sampled | Fault], SaidEngine]:
    """Ask for one completion of each prompt in `said`."""
    tokenizer, context = load_tokenizer(make_model_folder(folder / "m"))
    table = {tokenizer(text)["input_ids"][0]: answer for text, answer in said.items()}
    engine = SaidEngine(table)
    policy = EnginePolicy(
        "p", "h", tokenizer, context, "float32", False, trained=False, turn_text=("</a>",)
    )
    sampler = VllmSampler(PublishedOnce(engine, policy, (1,)))
    requests = [
        SampleRequest((text,), "p", text, decode or Decode(max_new_tokens=4), (key,))
        for key, text in enumerate(said)
    ]
    return asyncio.run(sampler.sample(requests)), engine


FINE = EngineAnswer((5, 6), (-1.0, -2.0), stopped=False)
BROKEN = EngineAnswer((5,), (float("nan"),), stopped=False)


def test_an_answer_of_an_engine_that_is_not_finite_is_a_fault_of_its_row_alone(tmp_path: Path):
    (first, broken, last), _ = from_table(tmp_path, {"a": FINE, "b": BROKEN, "c": FINE})
    assert isinstance(first, Sampled)
    assert isinstance(last, Sampled)
    assert isinstance(first.completions[0], Completion)
    assert isinstance(broken, Fault)
    assert broken.cause == "not_finite"
    (alone,), _ = from_table(tmp_path / "alone", {"b": BROKEN})
    assert isinstance(alone, Fault)


def test_stop_strings_of_special_tokens_are_tokens_for_an_engine(tmp_path: Path):
    said = EngineAnswer((37, 2), (-1.0, -2.0), stopped=True)  # "A<bos>"
    decode = Decode(max_new_tokens=4, stop=("<bos>", "x"))
    (answer,), engine = from_table(tmp_path, {"a": said}, decode)
    assert isinstance(answer, Sampled)
    (row,) = engine.rows
    assert (row.stop_ids, row.stops) == ((2,), ("<bos>", "x"))
    (completion,) = answer.completions
    assert (completion.tokens, completion.stop) == ((37, 2), "stop")
    assert "<bos>" not in completion.text
    _, engine = from_table(tmp_path / "more", {"a": said}, Decode(stop=("<bos>\n",)))
    assert engine.rows[0].stop_ids == (2,)


def test_a_chat_also_ends_at_the_string_with_which_its_template_ends_a_turn(tmp_path: Path):
    tokenizer, context = load_tokenizer(make_model_folder(tmp_path / "m", chat_template=True))
    engine = SaidEngine({2: FINE, tokenizer("a")["input_ids"][0]: FINE})
    policy = EnginePolicy(
        "p", "h", tokenizer, context, "float32", False, trained=False, turn_text=("</a>",)
    )
    sampler = VllmSampler(PublishedOnce(engine, policy, (1,)))
    decode = Decode(max_new_tokens=4, stop=("x",))
    requests = [
        SampleRequest(("chat",), "p", (Message("user", "a"),), decode, (1,)),
        SampleRequest(("raw",), "p", "a", decode, (1,)),
    ]
    asyncio.run(sampler.sample(requests))
    assert [row.stops for row in engine.rows] == [("x", "</a>"), ("x",)]


CALLING = (
    "{% for t in tools or [] %}{{ t.function.description }}{% endfor %}{% for m in messages %}"
    "{{ '<|start|>' + m.role }}{% for c in m.tool_calls or [] %}"
    "{{ ' to=functions.' + c.function.name + '<|message|>' + (c.function.arguments | tojson) "
    "+ '<|call|>' }}{% endfor %}{{ '<|message|>' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
TOKENS = ("<|start|>", "<|message|>", "<|call|>")


def test_calls_of_an_engine_are_read_and_end_at_the_token_of_a_call() -> None:
    raw = byte_level_bpe(["to functions"], 300, special_tokens=("<pad>", "<eos>", *TOKENS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<eos>", additional_special_tokens=list(TOKENS)
    )
    tokenizer.chat_template = CALLING
    words = tokenizer(' to=functions.add<|message|>{"a": 1}<|call|>')["input_ids"]
    said = EngineAnswer(tuple(words), (-1.0,) * len(words), stopped=True)
    tool = ToolSchema("add", "Adds.", {"type": "object", "properties": {"a": {}}})
    prompt = (Message("user", "hi", tools=(tool,)),)
    first = encode(tokenizer, prompt)[0]
    engine = SaidEngine({first: said})
    policy = EnginePolicy("p", "h", tokenizer, 400, "float32", False, trained=False)
    sampler = VllmSampler(PublishedOnce(engine, policy, (1,)))
    asked = [SampleRequest(("x",), "p", prompt, Decode(max_new_tokens=40), (1,))]
    (answer,) = asyncio.run(sampler.sample(asked))
    assert isinstance(answer, Sampled)
    assert answer.completions[0].calls == (ToolCall("add", {"a": 1}),)
    assert answer.completions[0].text == ""
    assert engine.rows[0].stop_ids == (tokenizer.convert_tokens_to_ids("<|call|>"),)
