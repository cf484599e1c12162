"""Measure the alternatives between which Motet's decoding and attention choose, on this machine.

python benchmarks/speed/choices.py

It takes about three minutes on two quiet cores. The two alternatives of a row take turns. Seconds
are medians. A ratio is the second alternative's time divided by the first one's. Writes
benchmarks/results/choices.json and its table in docs/performance.md.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from statistics import median
from time import perf_counter

import models
import peers
import tables
import torch
from record import machine
from transformers import StaticCache
from transformers.cache_utils import Cache

import motet.models.attention as attention
import motet.models.decode as decoding
from motet.models.attention import give_room, share_prompts
from motet.models.backbone import Backbone
from motet.models.decode import SHARED, DecodeRequest, decode
from motet.models.rows import positions
from motet.settings import Decode, Lora

BUILD = peers.ROOT / "build" / "speed"
FILE = peers.ROOT / "benchmarks" / "results" / "choices.json"
PAGE = peers.ROOT / "docs" / "performance.md"
BEGIN, END = (
    "<!-- measured: `python benchmarks/speed/choices.py` writes this part -->",
    "<!-- /choices -->",
)
HEAD = ("methods (first : second)", "case", "used", "first", "second", "second / first")
THREADS, ROUNDS, ADAPTERS = 2, 15, 4
PROMPT = range(64)

Way = Callable[[], object]


@dataclass(frozen=True)
class Choice:
    choice: str
    where: str
    taken: str
    first: float
    """Seconds."""
    second: float


def main() -> None:
    torch.set_num_threads(THREADS)
    found = []
    for choices in (
        packed_weights(), adapters(), shared_prompts(), gradients(), compiled(),
    ):  # fmt: skip
        for choice in choices:
            found.append(choice)
            print(" | ".join(cells(choice)), flush=True)
    record = {
        "machine": machine("cpu"),
        "threads": THREADS,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": peers.own(),
        "rows": [asdict(choice) for choice in found],
    }
    FILE.write_text(json.dumps(record, indent=1) + "\n")
    said = f"Measured {record['date']} on {record['machine']}, {THREADS} threads."
    measured = f"{said}\n\n{tables.table(HEAD, [cells(choice) for choice in found])}"
    PAGE.write_text(tables.replaced(PAGE.read_text(), measured, BEGIN, END))


def cells(choice: Choice) -> tables.Cells:
    times = [f"{1000 * seconds:,.1f} ms" for seconds in (choice.first, choice.second)]
    return (
        choice.choice,
        choice.where,
        choice.taken,
        *times,
        f"{choice.second / choice.first:.2f}",
    )


def in_turns(*ways: Way, rounds: int = ROUNDS) -> tuple[float, ...]:
    """Return the median seconds of each way, after one warm-up round."""
    spent: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds + 1):
        for seconds, way in zip(spent, ways, strict=True):
            begun = perf_counter()
            way()
            seconds.append(perf_counter() - begun)
    return tuple(median(seconds[1:]) for seconds in spent)


def packed_weights() -> Iterator[Choice]:
    """Sample 8 answers of 64 tokens to one prompt, packing included."""
    requests = [DecodeRequest("p", 0, Decode(max_new_tokens=64), row) for row in range(8)]

    def drawn(backbone: Backbone, patience: int) -> None:
        decoding.PATIENCE = patience
        decode(backbone, [PROMPT], requests)

    usual = decoding.PATIENCE
    for size in ("6.6M", "80M", "Qwen2.5-0.5B"):
        for dtype in ("float32", "bfloat16"):
            backbone = Backbone.load(models.make(size, BUILD), dtype=dtype)
            ways = [partial(drawn, backbone, patience) for patience in (usual, 64)]
            yield Choice(
                "weights packed once : packed for every token",
                f"{size}, {dtype}",
                "first",
                *in_turns(*ways, rounds=5),
            )
    decoding.PATIENCE = usual


def adapters() -> Iterator[Choice]:
    """Sample answers of 16 tokens with each of four adapters on one base, each to its own
    prompt."""
    names = [f"adapter {number}" for number in range(ADAPTERS)]
    settings = Decode(max_new_tokens=16)
    for size in ("6.6M", "80M"):
        backbone = Backbone.load(models.make(size, BUILD))
        for seed, name in enumerate(names):
            backbone.add_adapter(name, Lora(), seed)

        def together(rows: int, backbone: Backbone = backbone) -> None:
            requests = [
                DecodeRequest("p", place, settings, row)
                for place in range(ADAPTERS)
                for row in range(rows)
            ]
            decode(backbone, [PROMPT] * ADAPTERS, requests, adapters=names)

        def one_by_one(rows: int, backbone: Backbone = backbone) -> None:
            for name in names:
                with backbone.policy(name):
                    decode(
                        backbone,
                        [PROMPT],
                        [DecodeRequest("p", 0, settings, row) for row in range(rows)],
                    )

        for rows in (1, 8, 64):
            times = in_turns(partial(together, rows), partial(one_by_one, rows), rounds=5)
            yield Choice(
                "adapters in one batch : in turns",
                f"{ADAPTERS} on {size}, {rows} rows each",
                "first",
                *times,
            )


@torch.inference_mode()
def shared_prompts() -> Iterator[Choice]:
    """Decode one token for 8 answers to each of several prompts."""
    backbone = Backbone.load(models.make("6.6M", BUILD))
    for prompts, length in ((1, 64), (8, 64), (8, 192), (32, 192)):
        of_B = torch.arange(prompts).repeat_interleave(8)
        ways = [
            partial(token, backbone, read(backbone, of_B, length, share), len(of_B))
            for share in (True, False)
        ]
        copied = length * (len(of_B) - prompts)
        where = f"{prompts} of {length} tokens, 8 answers each: {copied:,} not copied"
        taken = "first" if copied >= SHARED else "second"
        yield Choice("shared prompts : copied prompts", where, taken, *in_turns(*ways))


def gradients() -> Iterator[Choice]:
    """Attention of a model in bfloat16, forward and backward, with nine heads on three keys."""
    for rows, queries, keys in (
        (80, 3, 40),
        (40, 12, 37),
        (8, 200, 200),
        (64, 96, 296),
        (2, 1024, 1024),
    ):
        parts = [
            torch.randn(rows, heads, length, 64, dtype=torch.bfloat16, requires_grad=True)
            for heads, length in ((9, queries), (3, keys), (3, keys))
        ]
        seen_LK = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        mask = None if queries == keys else seen_LK.expand(rows, 1, -1, -1)

        def learned(widened: int, parts: list[torch.Tensor], mask: torch.Tensor | None) -> None:
            attention.WIDENED = widened
            attention._fused(*parts, mask, 0.125).sum().backward()

        usual = attention.WIDENED
        ways = [partial(learned, widened, parts, mask) for widened in (10**9, 0)]
        yield Choice(
            "gradient of attention in float32 : in bfloat16",
            f"{rows} rows, {queries} queries, {keys} keys",
            "first" if keys <= usual else "second",
            *in_turns(*ways),
        )
        attention.WIDENED = usual


@torch.inference_mode()
def compiled() -> Iterator[Choice]:
    """Decode one token for several rows, beside a compiled model whose cache has a fixed size.

    The model is compiled once, for all sizes.
    """
    folder = models.make("6.6M", BUILD)
    backbone, plain = Backbone.load(folder), Backbone.load(folder).model
    plain.set_attn_implementation("sdpa")
    fast, warm_up = torch.compile(plain, dynamic=True), 0.0
    for rows, room in ((8, 128), (16, 128), (64, 256)):
        cache = read(backbone, torch.zeros(rows, dtype=torch.int64), 64, share=False)
        fixed = StaticCache(config=plain.config, max_cache_len=room)
        plain(input_ids=torch.ones((rows, 64), dtype=torch.int64), past_key_values=fixed)
        token_B1 = torch.ones((rows, 1), dtype=torch.int64)
        other = partial(fast, input_ids=token_B1, position_ids=token_B1 * 64, past_key_values=fixed)
        begun = perf_counter()
        other()
        other()
        warm_up += perf_counter() - begun
        where = f"{rows} rows, room for {room} tokens; compiled in {warm_up:.0f} s"
        yield Choice(
            "not compiled : compiled",
            where,
            "first",
            *in_turns(partial(token, backbone, cache, rows), other),
        )


def read(backbone: Backbone, of_B: torch.Tensor, length: int, share: bool) -> Cache:
    """Return the cache of the prompts, for the rows that answer them."""
    prompts_PL = torch.ones((int(of_B.max()) + 1, length), dtype=torch.int64)
    mask_PL = torch.ones_like(prompts_PL, dtype=torch.bool)
    _, cache = backbone.logits(prompts_PL, mask_PL, positions(mask_PL), keep=1)
    if share:
        share_prompts(cache, of_B, mask_PL, more=2 * ROUNDS)
    else:
        give_room(cache, of_B, more=2 * ROUNDS)
    return cache


def token(backbone: Backbone, cache: Cache, rows: int) -> None:
    token_B1 = torch.ones((rows, 1), dtype=torch.int64)
    backbone.logits(token_B1, None, token_B1 * 64, keep=1, cache=cache)


if __name__ == "__main__":
    main()
