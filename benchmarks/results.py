"""Runs every experiment behind docs/results.md and writes that page. `make results`; runs that are finished are not run again.

Two runs at a time, one thread each. RUNS names the folder of the runs, by default `runs`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parent.parent
RUNS = Path(os.environ.get("RUNS", "runs")).resolve() / "results"
PLAIN = ["scale=none", "reduce=sequence_sum", "kl_in=none", "kl_coefficient=0"]
FAST = 0.8
"""The training success, as a mean of five steps, at which a run counts as having learnt."""


@dataclass(frozen=True)
class Experiment:
    """One config with overrides, on several seeds."""

    name: str
    config: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)

    def folder(self, seed: int) -> Path:
        return RUNS / f"{self.name}-seed{seed}"

    def command(self, seed: int) -> list[str]:
        words = [
            "train",
            f"configs/{self.config}.yaml",
            *self.overrides,
            f"seed={seed}",
            f"name={self.name}-seed{seed}",
        ]
        return [str(Path(sys.executable).parent / "motet"), *words, "--overwrite", "--runs", str(RUNS)]


def published(name: str) -> tuple[str, ...]:
    """The algorithm under its published defaults: no std, sequence sum, no KL."""
    return (f"algorithm.name={name}", *(f"algorithm.{setting}" for setting in PLAIN))


QUICKSTART = Experiment("quickstart", "quickstart", seeds=(0, 1, 2, 3, 4))
FROZEN = Experiment("quickstart_frozen", "quickstart_frozen")
RELAYS = tuple(Experiment(name, name, seeds=(0, 1, 2, 3)) for name in ("relay", "relay_tree"))
BUGFIX = Experiment("bugfix_tiny", "bugfix_tiny")
SILENT = Experiment("bugfix_tiny_reviewer_frozen", "bugfix_tiny", ("policies.reviewer.train=frozen",))
MUTE = Experiment("relay_turn_one_weight_0", "relay", ("algorithm.turn_weights=[0, 1]",))
ZOO = tuple(
    Experiment(name, "quickstart", published(name)) for name in ("mareinforce", "magrpo", "marloo", "maremax", "remax")
)
ALL = (*RELAYS, BUGFIX, SILENT, QUICKSTART, FROZEN, MUTE, *ZOO)


def main() -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda pair: run(*pair), [(one, seed) for one in ALL for seed in one.seeds]):
            print(line, flush=True)
    write_page()


def run(experiment: Experiment, seed: int) -> str:
    folder = experiment.folder(seed)
    if not (folder / "summary.json").is_file():
        log = RUNS / f"{folder.name}.log"
        with log.open("w") as file:
            done = subprocess.run(
                experiment.command(seed), cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            raise SystemExit(f"{folder.name} failed ({done.returncode}): see {log}")
    heldout = summary(folder)["heldout"]
    return f"{folder.name:<34} {heldout['before']['success']:.3f} -> {heldout['after']['success']:.3f}"


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def motet(*words: str) -> Any:
    """What `motet WORDS --json` prints."""
    command = [str(Path(sys.executable).parent / "motet"), *words, "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


# ---------------------------------------------------------------------------------------------------- the page


def write_page() -> None:
    text = (ROOT / "benchmarks" / "results_page.md").read_text()
    machine = summary(QUICKSTART.folder(0))["machine"]
    parts = {
        "machine": f"torch {machine['torch']}, {machine['threads']} thread per run, two runs at a time, {machine['platform']}",
        "quickstart": table(before_and_after([QUICKSTART, FROZEN])),
        "crossplay": crossplay(),
        "relay": table(before_and_after(RELAYS)),
        "relay_controls": table(relay_controls()),
        "bugfix": table(bugfix()),
        "zoo": table(zoo()),
    }
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    (ROOT / "docs" / "results.md").write_text(text)
    (ROOT / "docs" / "quickstart.png").write_bytes((QUICKSTART.folder(0) / "curve.png").read_bytes())
    print("wrote docs/results.md")


def table(rows: Iterator[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * lines[0].count(" | ") + "---|", *lines[1:]])


def before_and_after(experiments: Sequence[Experiment]) -> Iterator[Sequence[str]]:
    yield ("config", "seed", "before", "after", "commonest convention", "wall s", "CPU s")
    for experiment in experiments:
        after = []
        for seed in experiment.seeds:
            one = summary(experiment.folder(seed))
            heldout = one["heldout"]
            after.append(heldout["after"]["success"])
            settled = [next(iter(labels)) for labels in heldout["after"]["conventions"].values()]
            agreed = settled[0] if len(set(settled)) == 1 else " / ".join(settled)
            figures = (f"{heldout['before']['success']:.3f}", f"{after[-1]:.3f}", agreed)
            yield (experiment.config, str(seed), *figures, f"{one['wall_seconds']:.0f}", f"{one['cpu_seconds']:.0f}")
        yield (f"**{experiment.config}, mean**", "", "", f"**{mean(after):.3f}**", "", "", "")


def crossplay() -> str:
    runs = [str(QUICKSTART.folder(seed)) for seed in QUICKSTART.seeds]
    found = motet("crossplay", *runs, "--plot", "docs/crossplay.png")
    settled = [next(iter(named["aux"])) for named in found["conventions"]]
    labels = [f"seed {seed}" for seed in QUICKSTART.seeds]
    rows = [("aux of \\ main of", *labels, "settled on")]
    rows += [
        (label, *(f"{value:.2f}" for value in row), name)
        for label, row, name in zip(labels, found["success"], settled, strict=True)
    ]
    other = [
        v for row, a in zip(found["success"], settled, strict=True) for v, b in zip(row, settled, strict=True) if a != b
    ]
    same = [
        v for row, a in zip(found["success"], settled, strict=True) for v, b in zip(row, settled, strict=True) if a == b
    ]
    line = f"Pairs of one convention: mean {mean(same):.2f}, lowest {min(same):.2f}. "
    line += (
        f"Pairs of different ones: mean {mean(other):.2f}, highest {max(other):.2f}."
        if other
        else "One convention only."
    )
    return table(iter(rows)) + "\n\n" + line


def relay_controls() -> Iterator[Sequence[str]]:
    seeds = RELAYS[0].seeds
    yield ("control", *(f"seed {seed}" for seed in seeds))
    for experiment in RELAYS:
        shuffled = [motet("evaluate", str(experiment.folder(seed)), "--shuffle-turn", "1") for seed in experiment.seeds]
        yield (f"{experiment.config}, messages of another problem", *(f"{one['success']:.3f}" for one in shuffled))
    after = [summary(MUTE.folder(seed))["heldout"]["after"]["success"] for seed in MUTE.seeds]
    yield ("relay, turn one has weight 0", *(f"{value:.3f}" for value in after), *("" for _ in seeds[len(after) :]))


def bugfix() -> Iterator[Sequence[str]]:
    yield ("", *(f"seed {seed}" for seed in BUGFIX.seeds), "mean")
    rows: dict[str, list[float]] = {
        "before": [heldout(BUGFIX.folder(seed), "before") for seed in BUGFIX.seeds],
        "**after**": [heldout(BUGFIX.folder(seed), "after") for seed in BUGFIX.seeds],
        "after, the review of another task": [
            motet("evaluate", str(BUGFIX.folder(seed)), "--shuffle-turn", "1")["success"] for seed in BUGFIX.seeds
        ],
        "after, a reviewer that never learns": [heldout(SILENT.folder(seed), "after") for seed in SILENT.seeds],
    }
    for name, values in rows.items():
        yield (name, *(f"{value:.3f}" for value in values), f"{mean(values):.3f}")
    clocks = [summary(BUGFIX.folder(seed)) for seed in BUGFIX.seeds]
    yield ("wall s / CPU s", *(f"{one['wall_seconds']:.0f} / {one['cpu_seconds']:.0f}" for one in clocks), "")


def heldout(folder: Path, when: str) -> float:
    """Success on the held-out tasks, `before` or `after`."""
    return float(summary(folder)["heldout"][when]["success"])


def zoo() -> Iterator[Sequence[str]]:
    yield ("algorithm", *(f"seed {seed}: after (steps to {FAST})" for seed in (0, 1, 2)), "mean after")
    for name, experiment in (*((one.name, one) for one in ZOO), ("magrpo as the quickstart sets it", QUICKSTART)):
        folders = [experiment.folder(seed) for seed in (0, 1, 2)]
        after = [summary(folder)["heldout"]["after"]["success"] for folder in folders]
        cells = (f"{a:.3f} ({steps_to_learn(folder)})" for a, folder in zip(after, folders, strict=True))
        yield (name, *cells, f"{mean(after):.3f}")


def steps_to_learn(folder: Path) -> str:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    successes = [row["play/success"] for row in rows if "play/success" in row]
    for step in range(5, len(successes) + 1):
        if mean(successes[step - 5 : step]) >= FAST:
            return str(step)
    return "never"


if __name__ == "__main__":
    main()
