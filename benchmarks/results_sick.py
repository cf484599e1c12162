"""Train the sick runs of docs/reading_a_run.md, and draw them: `make results-sick`.

Two runs are active at a time, with one thread each. Names as arguments run and draw single
pictures. The environment variable RUNS names the folder of the runs. Finished runs are not run
again.
"""

from collections.abc import Mapping
from functools import partial
from statistics import mean

import matplotlib
import results
from results import Part
from results_runs import MANY, ROOT, Experiment, metrics
from results_runs import motet as called

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PAGE = ROOT / "docs" / "reading_a_run.md"
GAMES = ROOT / "benchmarks" / "sick_games.py"
CREDIT = str(ROOT / "benchmarks" / "credit_games.yaml")
SEED = 0
HEALTHY = Experiment("quickstart", "quickstart", seeds=(SEED,))
"""The run that the sick ones are drawn beside."""


def quickstart(name: str, *overrides: str) -> Experiment:
    """Return the quickstart with these settings, from the models that it was warmed up to."""
    return Experiment(f"sick_{name}", "quickstart", overrides, (SEED,), MANY)


COLLAPSE = quickstart(
    "collapse",
    "optimizer.learning_rate=1e-2",
    "train.max_step_kl=null",
)
TOO_HIGH = quickstart(
    "too_high",
    "optimizer={learning_rate: 4e-3, schedule: constant}",
    "train.max_step_kl=null",
)
HACKING = Experiment(
    "sick_hacking",
    CREDIT,
    (
        f"environment={{name: '{GAMES}:Guess'}}",
        "decode.max_new_tokens=8",
        "train.steps=60",
    ),
    (SEED,),
)
RIDING = Experiment(
    "sick_riding",
    CREDIT,
    (
        f"environment={{name: '{ROOT / 'benchmarks' / 'credit_games.py'}:OneIsEnough'}}",
        "algorithm.name=mareinforce",
        "rollout.pairing=aligned",
    ),
    (SEED,),
)
SICK, WELL = "tab:red", "0.6"


def curves(
    picture: str, panels: Mapping[str, str], sick: Experiment, healthy: Experiment | None = None
) -> str:
    """Draw a panel of each metric over the steps, and return what the page shows.

    Args:
        panels: the metric of each panel -> its title.
    """
    figure, places = plt.subplots(
        1, len(panels), figsize=(3.1 * len(panels), 2.5), layout="constrained", squeeze=False
    )
    for place, (metric, title) in zip(places.flat, panels.items(), strict=True):
        for one, color, label in ((healthy, WELL, "healthy"), (sick, SICK, "sick")):
            if one is not None:
                rows = metrics(one.folder(SEED), metric, "play/tokens")
                steps = [row["step"] for row in rows]
                place.plot(steps, [row[metric] for row in rows], color=color, label=label)
        place.set_title(title, fontsize=9)
        place.set_xlabel("step", fontsize=8)
        place.tick_params(labelsize=8)
        place.spines[["top", "right"]].set_visible(False)
    if healthy is not None:
        places.flat[0].legend(frameon=False, fontsize=8)
    return _saved(figure, picture, f"{', '.join(panels.values())} over the steps")


def riding() -> str:
    """Draw what each agent adds, and what it would earn if it said nothing."""
    found = called("diagnose", str(RIDING.folder(SEED)), "--samples", "4")
    silent = next(one for one in found["contributions"] if one["stand_in"] == "silent")["agents"]
    lost = {agent: one["lost"]["mean"] for agent, one in silent.items()}
    unearned = found["unearned"]
    panels = {"what is lost without the agent": lost, "share earned if it is silent": unearned}
    figure, places = plt.subplots(1, 2, figsize=(6.2, 2.2), layout="constrained")
    for place, (title, values) in zip(places, panels.items(), strict=True):
        place.barh(list(values), list(values.values()), color=SICK)
        place.set_title(title, fontsize=9)
        place.set_xlim(0, 1)
        place.invert_yaxis()
        place.tick_params(labelsize=8)
        place.spines[["top", "right"]].set_visible(False)
    said = _saved(figure, "riding", ", ".join(panels))
    share = mean(unearned.values())
    return f"{said}\n\nAn agent would keep {share:.0%} of its reward if it said nothing."


def _saved(figure: plt.Figure, name: str, said: str) -> str:
    path = ROOT / "docs" / f"sick_{name}.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return f"![{said}]({path.name})"


DRAWN: Mapping[str, tuple[Mapping[str, str], Experiment, Experiment | None]] = {
    "collapse": (
        {
            "play/success": "success",
            "learn/entropy": "entropy, nats per token",
            "play/duplicates": "share of equal answers",
        },
        COLLAPSE,
        HEALTHY,
    ),
    "too_high": (
        {
            "play/success": "success",
            "learn/grad_norm/main": "length of the gradient of main",
            "learn/entropy": "entropy, nats per token",
        },
        TOO_HIGH,
        HEALTHY,
    ),
    "hacking": (
        {
            "play/reward": "reward",
            "play/success": "success",
            "play/completion_length": "tokens of an answer",
        },
        HACKING,
        None,
    ),
}
"""Picture -> the metrics of its panels with their titles, the sick run, and a healthy one."""
PARTS = {
    **{
        name: Part(partial(curves, name, *drawn), [one for one in drawn[1:] if one is not None])
        for name, drawn in DRAWN.items()
    },
    "riding": Part(riding, (RIDING,)),
}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-sick")
