"""Measure Motet at real model sizes, beside TRL with PEFT and comlrl: `make bench-real`.

It takes at most 40 minutes on two quiet cores.

    python benchmarks/real_size.py                   # everything
    python benchmarks/real_size.py --only base rows  # these cases; the others keep their figures

The models have the shapes of published ones and random weights. The figures go to
benchmarks/results/real_size.json and to the tables of docs/performance.md. The exit status is 0
whenever everything was measured, whatever the results are.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

SPEED = Path(__file__).parent / "speed"
sys.path.insert(0, str(SPEED))

import limits  # noqa: E402
import models  # noqa: E402
import peers  # noqa: E402
from pace import Job  # noqa: E402
from record import machine  # noqa: E402
from rounds import Taken, take_turns  # noqa: E402
from tables import replaced, short, table  # noqa: E402
from works import LABELS, Program, Side  # noqa: E402

BUILD = peers.ROOT / "build" / "speed"
FILE = peers.ROOT / "benchmarks" / "results" / "real_size.json"
PAGE = peers.ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- real size: `make bench-real` writes this part -->", "<!-- /real size -->"


@dataclass(frozen=True)
class Case:
    """One job of Motet, and the peer that does it too, with one agent."""

    name: str
    title: str
    job: Job
    peer: Program | None = None
    rounds: int = 1

    @property
    def samples(self) -> int:
        """Completions of one step."""
        return self.job.agents * self.job.prompts * self.job.group


BASE = Job("Qwen2.5-0.5B", "bfloat16", agents=2, group=4, prompts=2, adapters=True)
CASES = (
    Case("base", "Qwen2.5-0.5B, 2 LoRA agents, 16 rows", BASE, "trl", rounds=3),
    Case("rows", "the same, 64 rows", replace(BASE, prompts=8)),
    Case("four", "the same, 4 agents, 32 rows", replace(BASE, agents=4)),
    Case("float32", "the same in float32", replace(BASE, dtype="float32")),
    Case("long", "the same, 256 + 128 tokens", replace(BASE, read=256, new=128)),
    Case("context_512", "the same, 1 prompt, 448 + 64 tokens", replace(BASE, prompts=1, read=448)),
    Case("context_1024", "the same, 1 prompt, 960 + 64 tokens", replace(BASE, prompts=1, read=960)),
    Case(
        "full",
        "Qwen2.5-0.5B, 1 full agent, 8 rows",
        replace(BASE, agents=1, adapters=False),
        "comlrl",
    ),
    Case("qwen3", "Qwen3-0.6B, 2 LoRA agents, 16 rows", replace(BASE, model="Qwen3-0.6B")),
    Case("llama", "Llama-3.2-1B, 2 LoRA agents, 16 rows", replace(BASE, model="Llama-3.2-1B")),
)


@dataclass(frozen=True)
class Must:
    """A measured figure, the bound that it must meet, and the value that we aim for."""

    what: str
    value: float | None
    must: float
    aim: float | None
    most: bool
    """True if `must` is an upper bound."""

    def cells(self) -> Sequence[str]:
        if self.value is None:
            return (self.what, "not measured", f"{self.must:g}", "", "")
        sign = "≤" if self.most else "≥"
        met = self.value <= self.must if self.most else self.value >= self.must
        aim = "" if self.aim is None else f"{sign}{self.aim:g}"
        return (self.what, f"{self.value:.2f}", f"{sign}{self.must:g}", aim, "yes" if met else "no")


def main() -> None:
    chosen = arguments()
    cases = [case for case in CASES if not chosen.only or case.name in chosen.only]
    versions = peers.own() | {
        peer: peers.make(peer) for peer in sorted({case.peer for case in cases if case.peer})
    }
    shapes = {}
    for name in dict.fromkeys(case.job.model for case in cases):
        say(f"{name}: made where it is absent")
        shapes[name] = limits.Shape.of(
            json.loads((models.make(name, BUILD) / "config.json").read_text())
        )
    say("what the machine can do")
    found = limits.measure(BASE.threads, "cpu")
    record: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"cases": {}}
    if record.get("machine") != machine("cpu"):
        record = {"cases": {}}
    record |= {"machine": machine("cpu"), "date": datetime.now(UTC).date().isoformat()}
    record |= {"versions": {**record.get("versions", {}), **versions}, "limits": asdict(found)}
    for case in cases:
        record["cases"][case.name] = one = measured(case, found, shapes[case.job.model])
        record["cases"] = {
            each.name: record["cases"][each.name] for each in CASES if each.name in record["cases"]
        }
        print("  ".join(cells(one)), flush=True)
        FILE.write_text(json.dumps(record, indent=1) + "\n")
        PAGE.write_text(replaced(PAGE.read_text(), page(record), BEGIN, END))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/real_size.py", description=(__doc__ or "").partition("\n")[0]
    )
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=names, help=f"these cases: {', '.join(names)}"
    )
    return parser.parse_args()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measured(case: Case, found: limits.Limits, shape: limits.Shape) -> dict[str, Any]:
    """Run one warm-up round, then the rounds of the case; both sides take turns."""
    sides = [Side("motet", case.job, LABELS["motet"])]
    if case.peer is not None:
        sides.append(Side(case.peer, replace(case.job, agents=1), LABELS[case.peer]))
    taken, *others = take_turns(case.name, sides, BUILD, "cpu", case.rounds, say)
    least = limits.least(shape, case.job, found)
    seconds = {
        stage: median(taken.each(f"seconds/{stage}"))
        for stage in ("play/prefill", "play/decode", "learn")
    }
    memory = {stage: max(taken.each(f"memory/{stage}")) for stage in ("play", "learn")}
    took = median(taken.each("seconds"))
    return {
        "title": case.title,
        "samples": case.samples,
        "tokens": case.samples * case.job.new,
        "seconds": took,
        "stages": seconds,
        "memory": memory,
        "estimate": taken.rounds[0]["estimate"],
        "least": asdict(least),
        "peer": of_peer(others[0], took / case.samples) if others else None,
    }


def of_peer(taken: Taken, ours: float) -> dict[str, Any]:
    """Return the peer's figures. `ours` is Motet's seconds per sample."""
    job, took = taken.side.job, median(taken.each("seconds"))
    each = took / (job.agents * job.prompts * job.group)
    memory = max(taken.each("memory"))
    return {
        "side": taken.side.label,
        "seconds": took,
        "memory": memory,
        "times_faster": each / ours,
    }


# ----------------------------------------------------------------------------------------- the page


def page(record: Mapping[str, Any]) -> str:
    cases, limit = record["cases"], record["limits"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    said = (
        f"Measured {record['date']} on {record['machine']}, {limit['threads']} threads, "
        f"{versions}. Matrix products run at {limit['gemm']['float32'] / 1e9:,.0f} GFLOP/s in "
        f"float32 and {limit['gemm']['bfloat16'] / 1e9:,.0f} in bfloat16; memory is read at "
        f"{limit['read'] / 1e9:.1f} GB/s."
    )
    head = (
        "case", "s per step", "prefill", "decode", "learn", "samples/s", "sampled tokens/s",
        "MB play", "MB learn", "MB estimated", "prefill / limit", "decode / limit",
        "learn: share of limit", "peer",
    )  # fmt: skip
    lines = [cells(one) for one in cases.values()]
    bounds = [must.cells() for must in musts(cases)]
    return "\n\n".join(
        (said, table(("figure", "measured", "required", "aim", "met"), bounds), table(head, lines))
    )


def cells(one: Mapping[str, Any]) -> Sequence[str]:
    stages, least, memory, peer = one["stages"], one["least"], one["memory"], one["peer"]
    prefill, decode, learn = (stages[name] for name in ("play/prefill", "play/decode", "learn"))
    beside = ""
    if peer:
        beside = f"{peer['side']}: {short(peer['seconds'])} s, {peer['memory'] / 1e6:,.0f} MB"
    return (
        one["title"],
        *(short(seconds) for seconds in (one["seconds"], prefill, decode, learn)),
        short(one["samples"] / one["seconds"]),
        short(one["tokens"] / decode),
        *(f"{size / 1e6:,.0f}" for size in (memory["play"], memory["learn"], one["estimate"])),
        f"{prefill / least['prefill']:.2f}x",
        f"{decode / least['decode']:.2f}x",
        f"{least['update'] / learn:.0%}",
        beside,
    )


def musts(cases: Mapping[str, Any]) -> list[Must]:
    """Return the requirements for the 0.5B model in bfloat16 with LoRA."""

    def of(name: str, figure: Any) -> float | None:
        return figure(cases[name]) if name in cases else None

    def each(name: str) -> float | None:
        return of(name, lambda one: one["seconds"] / one["samples"])

    def peak(one: Mapping[str, Any]) -> float:
        return max(one["memory"].values())

    def over(above: float | None, below: float | None) -> float | None:
        return above / below if above and below else None

    off = [abs(one["estimate"] / peak(one) - 1) for one in cases.values()]
    return [
        Must(
            "samples per second, relative to TRL",
            of("base", lambda one: one["peer"]["times_faster"]), 4, 6, False,
        ),
        Must(
            "peak memory, relative to TRL",
            of("base", lambda one: peak(one) / one["peer"]["memory"]), 0.55, 0.45, True,
        ),
        Must(
            "prefill time, relative to its limit",
            of("base", lambda one: one["stages"]["play/prefill"] / one["least"]["prefill"]),
            2, 1.3, True,
        ),
        Must(
            "decode time of 16 rows, relative to its limit",
            of("base", lambda one: one["stages"]["play/decode"] / one["least"]["decode"]),
            2, 1.5, True,
        ),
        Must(
            "learning, share of the limit",
            of("base", lambda one: one["least"]["update"] / one["stages"]["learn"]),
            0.4, 0.55, False,
        ),
        Must(
            "time per sample, 64 rows relative to 16",
            over(each("rows"), each("base")), 0.5, None, True,
        ),
        Must(
            "step time, four agents relative to two",
            over(of("four", lambda one: one["seconds"]), of("base", lambda one: one["seconds"])),
            2.2, None, True,
        ),
        Must(
            "peak memory, context 1,024 relative to 512",
            over(of("context_1024", peak), of("context_512", peak)), 2, None, True,
        ),
        Must(
            "largest relative error of the memory estimate",
            max(off, default=None), 0.25, None, True,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
