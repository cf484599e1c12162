"""Run every experiment behind docs/credit.md, and write its tables: `make results-credit`.

Two runs are active at a time, with one thread each. Names as arguments run and write single tables.
The environment variable RUNS names the folder of the runs. Finished runs are not run again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import matplotlib
import numpy as np
import results
from results import Part, tabled
from results_runs import ROOT, Experiment, heldout, metrics, summary
from results_runs import motet as called

import motet
from motet.evaluation.intervals import student_t

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PAGE = ROOT / "docs" / "credit.md"
PLOT = ROOT / "docs" / "credit.png"
NAMES = ("ann", "bob", "cid", "dee")
SEEDS = (1, 2, 3, 4, 5)
"""The settings of the games were found with seed 0."""
ALIGNED, CROSSED = "rollout.pairing=aligned", "rollout.pairing=crossed"
ONE_TURN: Mapping[str, tuple[str, ...]] = {
    "`mareinforce`, aligned": ("algorithm={name: mareinforce}", ALIGNED),
    "`magrpo`, aligned": ("algorithm={name: magrpo}", ALIGNED),
    "`difference`, aligned": ("algorithm={name: difference}", ALIGNED),
    "`shapley`, aligned": ("algorithm={name: shapley}", ALIGNED),
    "`magrpo`, crossed": ("algorithm={name: magrpo}", CROSSED),
    "`coma`, crossed": ("algorithm={name: coma}", CROSSED),
    "`shapley`, crossed": ("algorithm={name: shapley}", CROSSED),
}
IN_TURNS: Mapping[str, tuple[str, ...]] = {
    "`marloo`, paths": (
        "algorithm={name: marloo}", "rollout.samples=[8, 1, 1]", "train.tasks_per_step=14",
    ),
    "`marloo`, tree": (
        "algorithm={name: marloo}", "rollout.samples=[2, 2, 2]", "train.tasks_per_step=24",
    ),
    "`c3`, replay": (
        "algorithm={name: c3}", "rollout.samples=[4, 4, 4]", "rollout.expand=replay",
        "train.tasks_per_step=16",
    ),
}  # fmt: skip
"""Rule -> overrides, with 336 completions per step each."""
LONG = ("train.steps=120", "optimizer.learning_rate=3e-3")
GAMES: Mapping[str, tuple[str, int, Mapping[str, tuple[str, ...]], tuple[str, ...]]] = {
    "same digit, 2 agents": ("SameDigit", 2, ONE_TURN, ()),
    "same digit, 3 agents": ("SameDigit", 3, ONE_TURN, ()),
    "same digit, 4 agents": ("SameDigit", 4, ONE_TURN, ()),
    "one is enough, 3 agents": ("OneIsEnough", 3, ONE_TURN, ()),
    "whispers, 3 agents": ("Whispers", 3, IN_TURNS, LONG),
}
"""Game -> its class, the number of agents, its rules, and overrides."""


def _game(name: str, agents: int, ignored: str | None = None) -> tuple[str, ...]:
    names = NAMES[:agents]
    options = f"name: './benchmarks/credit_games.py:{name}', agents: {agents}"
    if ignored is not None:
        options += f", ignored: {ignored}"
    return (
        f"environment={{{options}}}",
        "policies={" + ", ".join(f"{one}: {{model: tiny}}" for one in names) + "}",
        "team={" + ", ".join(f"{one}: {one}" for one in names) + "}",
    )


def _short(name: str) -> str:
    return "".join(filter(str.isalnum, name))


def _experiment(game: str, rule: str) -> Experiment:
    name, agents, rules, more = GAMES[game]
    return Experiment(
        f"credit_{name}{agents}_{_short(rule)}",
        "benchmarks/credit_games.yaml",
        (*_game(name, agents), *more, *rules[rule]),
        SEEDS,
    )


def _in_two_turns(paths: int, tree: int, replay: int) -> Mapping[str, tuple[str, ...]]:
    """Return the rules of a game of two turns, with so many tasks in a step for each."""
    plain = "algorithm.credit.scale=none"
    return {
        "`marloo`, paths": (
            "algorithm.name=marloo", plain, "rollout.samples=[16, 1]",
            f"train.tasks_per_step={paths}",
        ),
        "`marloo`, tree": (
            "algorithm.name=marloo", plain, "rollout.samples=[4, 4]",
            f"train.tasks_per_step={tree}",
        ),
        "`c3`, replay": (
            "algorithm.name=c3", plain, "rollout.samples=[4, 4]", "rollout.expand=replay",
            f"train.tasks_per_step={replay}",
        ),
    }  # fmt: skip


OWN_CONFIG: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    "quickstart, 2 agents": (
        "quickstart",
        {
            rule: ONE_TURN[rule]
            for rule in (
                "`mareinforce`, aligned", "`magrpo`, aligned", "`magrpo`, crossed",
                "`shapley`, crossed",
            )
        },
    ),
    "relay, 2 agents": ("relay", _in_two_turns(15, 24, 44)),
    "debate, 2 agents": ("debate_magrpo", _in_two_turns(15, 24, 44)),
}  # fmt: skip
"""Game with a config of its own -> its rules, with 960 to 968 completions per step in two turns."""


def _of_config(config: str, rules: Mapping[str, tuple[str, ...]]) -> dict[str, Experiment]:
    """Return the runs of each rule. All have the warmed-up models of the first rule's."""
    found: dict[str, Experiment] = {}
    for rule, overrides in rules.items():
        first = next(iter(found.values()), None)
        found[rule] = Experiment(f"credit_{config}_{_short(rule)}", config, overrides, SEEDS, first)
    return found


RULES = {
    game: {rule: _experiment(game, rule) for rule in rules}
    for game, (_, _, rules, _) in GAMES.items()
} | {game: _of_config(config, rules) for game, (config, rules) in OWN_CONFIG.items()}
MIDWAY = {
    game: Experiment(
        f"credit_{name}{agents}_midway",
        "benchmarks/credit_games.yaml",
        (*_game(name, agents), *more, *list(rules.values())[1], f"train.steps={steps}"),
        SEEDS,
    )
    for game, (name, agents, rules, more) in GAMES.items()
    for steps in [{"OneIsEnough": 6, "Whispers": 40}.get(name, 12)]
}
"""Game -> runs of its second rule that end midway, so that some of a group succeed and some fail:
the fidelity of all rules is measured with their teams."""
USELESS = {
    f"{name}, {ignored} of three": (
        ignored,
        Experiment(
            f"useless_{name}_{ignored}",
            "benchmarks/credit_games.yaml",
            (*_game(name, 3, ignored), *more),
            SEEDS,
        ),
    )
    for name, ignored, more in (
        ("SameDigit", "bob", ()),
        ("OneIsEnough", "cid", ()),
        ("Whispers", "bob", (*IN_TURNS["`c3`, replay"], *LONG)),
    )
}
"""Game -> the agent that its environment ignores, and its runs."""
TREE = ("rollout.samples=[2, 2, 2]", "train.tasks_per_step=24")
INFLUENCE = {
    weight: Experiment(
        f"influence_Whispers_{_short(weight)}",
        "benchmarks/credit_games.yaml",
        (
            *_game("Whispers", 3),
            *LONG,
            *TREE,
            f"algorithm={{name: dr_mamr, credit: {{influence: {weight}}}}}",
        ),
        SEEDS,
    )
    for weight in ("1e-9", "0.1", "0.5")
}
"""Weight of the influence -> its runs. The smallest only measures it."""
IN_SEQUENCE = {
    f"{kind}, rate {rate}": Experiment(
        f"sequence_{kind}_{_short(rate)}",
        "benchmarks/credit_games.yaml",
        (
            *_game("SameDigit", 3),
            ALIGNED,
            "algorithm={name: magrpo}",
            "train.max_step_kl=null",
            f"optimizer.learning_rate={rate}",
            *((f"schedule.kind={kind}",) if kind == "sequential" else ()),
        ),
        SEEDS,
    )
    for rate in ("1e-3", "3e-3", "1e-2")
    for kind in ("simultaneous", "sequential")
}
"""Whether policies learn at once, and their rate -> runs whose steps have no bound."""


# ------------------------------------------------------------------------------------------- tables


def rules(game: str) -> Iterator[Sequence[str]]:
    """The success of every rule of a game."""
    yield ("rule", "before", "after", "steps to .8", "rewards per step", "CPU s")
    for rule, one in RULES[game].items():
        folders = [one.folder(seed) for seed in one.seeds]
        cost = motet.dry_run(folders[0] / "config.yaml")
        yield (
            rule,
            f"{mean(heldout(folder, 'before') for folder in folders):.2f}",
            _interval([heldout(folder, "after") for folder in folders]),
            _median_of([_first(folder, 0.8) for folder in folders]),
            f"{cost.joint_actions:,}",
            one.cpu(mean(summary(folder)["cpu_seconds"] for folder in folders)),
        )


def fidelity() -> Iterator[Sequence[str]]:
    """The fidelity of every rule of a game, measured with the same teams."""
    yield ("game", "rule", "fidelity")
    for game in GAMES:
        for rule, found in zip(GAMES[game][2], _fidelities(game), strict=True):
            yield (game, rule, found)


def _successes(folder: Path) -> list[float]:
    return [row["play/success"] for row in metrics(folder, "play/success", "play/tokens")]


def _first(folder: Path, level: float) -> int | None:
    """Return the first step of which the mean success of five steps reaches a level."""
    found = _successes(folder)
    for step in range(5, len(found) + 1):
        if mean(found[step - 5 : step]) >= level:
            return step
    return None


def _median_of(steps: Sequence[int | None]) -> str:
    """Return the median, where a run that never came so far counts as the largest."""
    middle = median(10**9 if step is None else step for step in steps)
    return "never" if middle == 10**9 else f"{middle:.0f}"


def _fidelities(game: str) -> list[str]:
    rules, teams = GAMES[game][2], MIDWAY[game]
    wanted = [(name, how, seed) for name, how in rules.items() for seed in teams.seeds]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one: _diagnosis(teams.folder(one[2]), one[0], one[1]), wanted))
    count = len(teams.seeds)
    return [
        _fidelity([one["fidelity"] for one in found[at : at + count]])
        for at in range(0, len(found), count)
    ]


def _fidelity(found: Sequence[Mapping[str, Any] | None]) -> str:
    known = [one["all"]["mean"] for one in found if one is not None and one["all"] is not None]
    return _interval(known) if len(known) == len(found) else "–"


def _interval(values: Sequence[float]) -> str:
    """Return the mean and Student's 95 % interval over the seeds."""
    freedom = len(values) - 1
    half = student_t(0.95, freedom) * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.2f} ± {half:.2f}"


def _diagnosis(folder: Path, name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    kept = folder / f"diagnosis-{_short(name)}.json"
    if not kept.is_file():
        found = called("diagnose", str(folder), *overrides, "--samples", "2")
        kept.write_text(json.dumps(found))
    read: dict[str, Any] = json.loads(kept.read_text())
    return read


def useless() -> Iterator[Sequence[str]]:
    yield ("game", "ignored", "found in", "others named", "it contributes", "others contribute")
    for game, (ignored, one) in USELESS.items():
        with ThreadPoolExecutor(2) as pool:
            folders = [one.folder(seed) for seed in one.seeds]
            found = list(pool.map(_diagnosis, folders, ["own"] * len(folders)))
        silent = [
            next(kind for kind in each["contributions"] if kind["stand_in"] == "silent")["agents"]
            for each in found
        ]
        others = [
            agents[name]["shapley"]["mean"]
            for agents in silent
            for name in agents
            if name != ignored
        ]
        yield (
            game,
            ignored,
            f"{sum(ignored in each['idle'] for each in found)} of {len(found)}",
            str(sum(name != ignored for each in found for name in each["idle"])),
            f"{mean(agents[ignored]['shapley']['mean'] for agents in silent):.3f}",
            f"{min(others):.3f} to {max(others):.3f}",
        )


def influence() -> Iterator[Sequence[str]]:
    """What paying for influence changes, and how much the first two agents have in the end."""
    yield ("weight", "before", "after", "steps to .8", "nats of ann", "nats of bob")
    for weight, one in INFLUENCE.items():
        folders = [one.folder(seed) for seed in one.seeds]
        yield (
            f"{float(weight):g}",
            f"{mean(heldout(folder, 'before') for folder in folders):.2f}",
            _interval([heldout(folder, "after") for folder in folders]),
            _median_of([_first(folder, 0.8) for folder in folders]),
            *(_interval([_last(folder, agent) for folder in folders]) for agent in NAMES[:2]),
        )


def _last(folder: Path, agent: str) -> float:
    """Return the mean influence of an agent in the last five steps, in nats."""
    name = f"credit/influence/{agent}"
    return mean(row[name] for row in metrics(folder, name)[-5:])


def in_sequence() -> Iterator[Sequence[str]]:
    """Policies that learn at once, and one after the other (HAPPO), at rising rates."""
    yield ("policies learn", "after", "worst seed", "steps to .8")
    for how, one in IN_SEQUENCE.items():
        after = [heldout(one.folder(seed), "after") for seed in one.seeds]
        reached = _median_of([_first(one.folder(seed), 0.8) for seed in one.seeds])
        yield (how, _interval(after), f"{min(after):.2f}", reached)


def curves() -> str:
    """Draw the success of every rule over the steps, which have equal numbers of completions."""
    figure, places = plt.subplots(3, 3, figsize=(12, 10), sharey=True)
    for place, (game, experiments) in zip(places.flat, RULES.items(), strict=False):
        for rule, one in experiments.items():
            runs = np.array([_successes(one.folder(seed)) for seed in one.seeds])
            smooth = np.stack([np.convolve(run, np.ones(5) / 5, "valid") for run in runs])
            place.plot(np.arange(5, runs.shape[1] + 1), smooth.mean(0), label=rule.replace("`", ""))
        place.set_title(game)
        place.set_xlabel("step")
        place.set_ylabel("success in training")
        place.legend(fontsize=8)
    for place in places.flat[len(RULES) :]:
        place.axis("off")
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)
    return f"![Success of each rule over the steps]({PLOT.name})"


PARTS = {
    "useless": Part(tabled(useless), tuple(one for _, one in USELESS.values())),
    **{
        game.replace(",", "").replace(" ", "_"): Part(
            tabled(partial(rules, game)), tuple(RULES[game].values())
        )
        for game in RULES
    },
    "influence": Part(tabled(influence), tuple(INFLUENCE.values())),
    "in_sequence": Part(tabled(in_sequence), tuple(IN_SEQUENCE.values())),
    "curves": Part(curves, tuple(one for game in RULES for one in RULES[game].values())),
    "fidelity": Part(tabled(fidelity), tuple(MIDWAY.values())),
}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-credit")
