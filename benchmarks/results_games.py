"""Run every experiment behind docs/games.md, and write its tables: `make results-games`.

Two runs are active at a time, with one thread each. Names as arguments run and print single tables.
The environment variable RUNS names the folder of the runs. Finished runs are not run again.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean

import results
from results import Part, tabled
from results_runs import ROOT, Experiment, heldout, motet, summary

PAGE = ROOT / "docs" / "games.md"
SEEDS = (0, 1, 2)
TINY = {
    game: Experiment(f"{game}_tiny", f"{game}_tiny", seeds=SEEDS)
    for game in ("plan_path", "sokoban")
}
"""Game -> the runs of its team."""
ALONE = {
    (game, agent): Experiment(
        f"{game}_tiny_{agent}_alone",
        f"{game}_tiny",
        (f"policies.{other}.train=frozen",),
        SEEDS,
        warmed_by=team,
    )
    for game, team in TINY.items()
    for agent, other in (("scout", "planner"), ("planner", "scout"))
}
"""Game and agent -> runs in which this agent alone learns."""
ONE_POLICY = Experiment("plan_path_tiny_centralized", "plan_path_tiny_centralized", seeds=SEEDS)
SHOWN = Experiment("plan_path_tiny_shown", "plan_path_tiny", ("environment.shown=true",), SEEDS)


def team(game: str) -> Iterator[Sequence[str]]:
    """The team of every seed, before and after."""
    yield ("seed", "before", "after", "the scout's way to count", "tokens", "CPU s")
    experiment, after = TINY[game], []
    for seed in experiment.seeds:
        folder = experiment.folder(seed)
        one = summary(folder)
        after.append(heldout(folder, "after"))
        settled = one["heldout"]["after"]["conventions"]["scout"]
        name, share = next(iter(settled.items()))
        yield (
            str(seed),
            f"{heldout(folder, 'before'):.3f}",
            f"{after[-1]:.3f}",
            f"{name} ({share:.0%})",
            f"{one['tokens']:,}",
            f"{one['cpu_seconds']:.0f}",
        )
    yield ("**mean**", "", f"**{mean(after):.3f}**", "", "", "")


def controls(game: str) -> Iterator[Sequence[str]]:
    """The team beside agents that were trained alone, and with its roles swapped."""
    yield ("", *(f"seed {seed}" for seed in SEEDS), "mean")
    team, scouts, planners = TINY[game], ALONE[game, "scout"], ALONE[game, "planner"]
    rows = {
        "before": [heldout(team.folder(seed), "before") for seed in SEEDS],
        "**the team**": [heldout(team.folder(seed), "after") for seed in SEEDS],
        "only the scout learns": [heldout(scouts.folder(seed), "after") for seed in SEEDS],
        "only the planner learns": [heldout(planners.folder(seed), "after") for seed in SEEDS],
        "these two put together": [together(scouts, planners, seed) for seed in SEEDS],
        "the team, roles swapped": [swapped(team, seed) for seed in SEEDS],
        "the team, goals of another puzzle": [shuffled(team, seed) for seed in SEEDS],
    }
    if game == "plan_path":
        rows["one policy for both agents"] = [
            heldout(ONE_POLICY.folder(seed), "after") for seed in SEEDS
        ]
        rows["the planner sees the goal"] = [heldout(SHOWN.folder(seed), "after") for seed in SEEDS]
    for name, values in rows.items():
        yield (name, *(f"{value:.3f}" for value in values), f"{mean(values):.3f}")


def together(scouts: Experiment, planners: Experiment, seed: int) -> float:
    """Return the success of a scout and a planner that were trained in different runs."""
    runs = [str(one.folder(seed)) for one in (scouts, planners)]
    return float(motet("crossplay", *runs)["success"][0][1])


def swapped(team: Experiment, seed: int) -> float:
    """Return the success of a team whose agents play each other's roles."""
    found = motet("evaluate", str(team.folder(seed)), "team.scout=planner", "team.planner=scout")
    return float(found["success"])


def shuffled(team: Experiment, seed: int) -> float:
    """Return the success of a team whose planners read the message of another puzzle."""
    return float(motet("messages", str(team.folder(seed)), "--shuffle-turn", "1")["success"])


def _alone(game: str) -> tuple[Experiment, ...]:
    return tuple(one for (name, _), one in ALONE.items() if name == game)


PARTS = {
    "plan_path": Part(tabled(partial(team, "plan_path")), (TINY["plan_path"],)),
    "plan_path_controls": Part(
        tabled(partial(controls, "plan_path")),
        (TINY["plan_path"], *_alone("plan_path"), ONE_POLICY, SHOWN),
    ),
    "sokoban": Part(tabled(partial(team, "sokoban")), (TINY["sokoban"],)),
    "sokoban_controls": Part(
        tabled(partial(controls, "sokoban")), (TINY["sokoban"], *_alone("sokoban"))
    ),
}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-games")
