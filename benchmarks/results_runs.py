"""The runs behind docs/results.md: the experiments, how to run one, and how to read its results.

The environment variable RUNS names the folder of the runs; the default is `runs`. Finished runs are
not run again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
MOTET = str(Path(sys.executable).parent / "motet")
RUNS = Path(os.environ.get("RUNS", "runs")).resolve() / "results"
STD_KL = (
    "algorithm={credit: {scale: std}, reduce: token_mean, "
    "kl: {kind: loss, estimator: k3, coefficient: 0.02}}"
)
"""Options that many codes of GRPO have. The config itself has the defaults of magrpo."""


@dataclass(frozen=True)
class Experiment:
    """One config with overrides, on several seeds."""

    name: str
    config: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    warmed_by: "Experiment | None" = None
    """Whose models, warmed up with the same seed and settings, are taken. That changes no figure
    (tests/results_page_test.py) and saves the warm-up, two thirds of the time of a quickstart."""

    calls: tuple[str, ...] = ()
    """Commands such as `messages --blank-turn 1`, whose success is kept with each run
    (kept_runs.py)."""
    measure: Callable[[Path], Mapping[str, float]] | None = None
    """Returns figures of a run's folder, which are kept, too."""

    def folder(self, seed: int) -> Path:
        return RUNS / f"{self.name}-seed{seed}"

    def command(self, seed: int) -> list[str]:
        words = [
            "train",
            self.config,
            *self.overrides,
            *self._model(seed),
            f"seed={seed}",
            f"name={self.name}-seed{seed}",
        ]
        return [MOTET, *words, "--overwrite", "--runs", str(RUNS)]

    def resume(self, seed: int) -> list[str]:
        config = str(self.folder(seed) / "config.yaml")
        return [MOTET, "train", config, "--resume", "--runs", str(RUNS)]

    def cpu(self, seconds: float) -> str:
        """Return the CPU seconds of a run for a table."""
        return f"{seconds:.0f}{'' if self.warmed_by is None else ' without the warm-up'}"

    def _model(self, seed: int) -> Sequence[str]:
        if self.warmed_by is None:
            return ()
        models = sorted((self.warmed_by.folder(seed) / "models").iterdir())
        return (*(f"models.{model.name}.path={model}" for model in models), "warmup=null")


QUICKSTART = Experiment("quickstart", "quickstart", seeds=(0, 1, 2, 3, 4))
MANY = Experiment("quickstart", "quickstart", seeds=tuple(range(48)))
SIXTEEN = tuple(range(16))
FIXED_PAIRS = (
    "rollout={samples: [8], pairing: aligned}",
    "train={steps: 60, tasks_per_step: 8}",
    "optimizer.decay_share=1",
)
"""Eight games of eight problems, as in the quickstart until 2026-11-26 and in its configs that
learn from pairs of games."""
HASTY = {
    f"{times} times as high": Experiment(
        f"quickstart_x{times}",
        "quickstart",
        (f"optimizer.learning_rate={times}e-3",),
        SIXTEEN,
        warmed_by=MANY,
    )
    for times in (2, 4)
}
"""Row of the table of stability -> its runs at higher rates."""
OTHERS = {
    **{
        name: Experiment(name, "quickstart", (f"algorithm.name={name}",), SIXTEEN, MANY)
        for name in ("remax", "maremax")
    },
    "MADPO, iterative": Experiment(
        "quickstart_madpo_iter", "quickstart_madpo_iter", (), SIXTEEN, MANY
    ),
    "MARLHF, iterative": Experiment("quickstart_marlhf", "quickstart_marlhf", (), SIXTEEN, MANY),
    **{name: Experiment(name, name, (), SIXTEEN) for name in ("relay", "debate")},
}
"""Row of the table of other algorithms and games -> its runs."""
FROZEN = Experiment("quickstart_frozen", "quickstart_frozen", warmed_by=MANY)
RELAYS = tuple(Experiment(name, name, seeds=(0, 1, 2, 3)) for name in ("relay", "relay_tree"))
BUGFIX = Experiment("bugfix_tiny", "bugfix_tiny")
SILENT = Experiment(
    "bugfix_tiny_reviewer_frozen", "bugfix_tiny", ("policies.reviewer.train=frozen",)
)
BUILDERS = tuple(Experiment(name, name) for name in ("minecraft_tiny", "minecraft_tiny_frozen"))
MUTE = Experiment("relay_turn_one_weight_0", "relay", ("algorithm.turn_weights=[0, 1]",))
ZOO = {
    "mareinforce": Experiment("mareinforce", "quickstart", ("algorithm.name=mareinforce",)),
    "magrpo": QUICKSTART,
    **{
        name: Experiment(name, "quickstart", (f"algorithm.name={name}",))
        for name in ("marloo", "maremax", "remax")
    },
    "magrpo with std, token mean and KL": Experiment("magrpo_std_kl", "quickstart", (STD_KL,)),
}
"""Row of the table -> its runs on the quickstart's game."""
CRITICS = tuple(
    Experiment(name, name) for name in ("relay_iac", "relay_maac", "relay_ippo", "relay_mappo")
)
DEBATES = tuple(Experiment(name, name) for name in ("debate", "debate_magrpo"))
STRANGERS = tuple(
    Experiment(f"{name}_strangers", name, ("environment.peers=strangers",))
    for name in ("debate", "debate_magrpo")
)
ONE_SHOT = (
    "rollout.samples=[80]",
    "train.steps=1",
    "train.tasks_per_step=96",
    "algorithm.epochs=4",
    "algorithm.credit={batch_size: 32, pairs: 16}",
    "optimizer={schedule: constant, warmup_steps: 0}",
)
"""All pairs come from the initial team: 96 problems with 80 games each."""
REWARD_ONCE = (
    "reward_model.iterations=1",
    "reward_model.tasks=96",
    "reward_model.samples=40",
    "reward_model.pairs=16",
    "reward_model.replay={mode: current, decay: null, size: null}",
)
"""All pairs for the reward model come from the initial team: 96 problems with 40 games each."""
PREFERENCES = {
    "MAGRPO": Experiment("quickstart_magrpo8", "quickstart", FIXED_PAIRS),
    "MAGRPO, twice the samples": Experiment(
        "quickstart_magrpo16", "quickstart", (*FIXED_PAIRS, "rollout.samples=[16]")
    ),
    "MADPO, one shot": Experiment("quickstart_madpo_once", "quickstart_madpo", ONE_SHOT),
    "MADPO, iterative": Experiment("quickstart_madpo_iter", "quickstart_madpo_iter"),
    "MARLHF, one shot": Experiment("quickstart_marlhf_once", "quickstart_marlhf", REWARD_ONCE),
    "MARLHF, iterative": Experiment("quickstart_marlhf", "quickstart_marlhf"),
}
"""Method -> its runs. All but the first play 7,680 games to learn from."""
CENTRALIZED = {
    game: (team, Experiment(f"{game}_centralized", f"{game}_centralized"))
    for game, team in (("quickstart", QUICKSTART), ("relay", RELAYS[0]), ("debate", DEBATES[1]))
}
"""Game -> the runs of its team, and those of one policy that answers for all agents."""
PERSUADED = Experiment("debate_beta1", "debate", ("algorithm.incentives.beta1=2",))


def run(experiment: Experiment, seed: int) -> str:
    """Run one seed unless it has finished, and return what it reached. A stopped run goes on."""
    folder = experiment.folder(seed)
    begun = (folder / "summary.json").is_file()
    if not begun or not summary(folder)["finished"]:
        log = RUNS / f"{folder.name}.log"
        with log.open("a" if begun else "w") as file:
            done = subprocess.run(
                experiment.resume(seed) if begun else experiment.command(seed),
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            raise SystemExit(f"{folder.name} failed ({done.returncode}): see {log}")
    heldout = summary(folder)["heldout"]
    figure = "reward" if heldout["after"]["success"] is None else "success"
    values = (f"{heldout[when][figure]:.3f}" for when in ("before", "after"))
    return f"{folder.name:<34} {' -> '.join(values)}"


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def motet(*words: str) -> Any:
    """Run `motet WORDS --json` and return its parsed output."""
    command = [MOTET, *words, "--json"]
    return json.loads(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    )


def heldout(folder: Path, when: str) -> float:
    """Return the success on the held-out tasks, `before` or `after` training."""
    return float(summary(folder)["heldout"][when]["success"])


def metrics(folder: Path, *needed: str) -> list[dict[str, float]]:
    """Return the rows of `metrics.jsonl` that have all of `needed`."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if all(name in row for name in needed)]


def games(folder: Path) -> int:
    """Return the number of games that a run played to learn from, those for a reward model
    included."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    train, wanted = config["train"], config["reward_model"]
    played = int(train["steps"] * train["tasks_per_step"] * config["rollout"]["samples"][0])
    if wanted is not None:
        played += int(wanted["iterations"] * wanted["tasks"] * wanted["samples"])
    return played


def explained_variance(folder: Path, turn: int) -> float:
    """Return the mean over critics and over the steps with a training success of .3 to .8.

    In other steps most teams fail or most succeed, so the returns hardly vary.
    """
    shares = [
        value
        for row in metrics(folder, "play/success")
        if 0.3 <= row["play/success"] <= 0.8
        for name, value in row.items()
        if name.startswith("credit/explained_variance/") and name.endswith(f"turn{turn}")
    ]
    return mean(shares)
