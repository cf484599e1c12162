"""Run every experiment behind docs/games.md, and write its tables: `make results-games`.

Two runs are active at a time, with one thread each. Names as arguments run and write single tables.
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
AGENTS = {
    "plan_path": ("scout", "planner"),
    "sokoban": ("scout", "planner"),
    "sudoku": ("left", "right"),
}
"""Game -> its agents. The first one's answers have a way to count or to choose."""
TINY = {game: Experiment(f"{game}_tiny", f"{game}_tiny", seeds=SEEDS) for game in AGENTS}
"""Game -> the runs of its team."""
ALONE = {
    (game, agent): Experiment(
        f"{game}_tiny_{agent}_alone",
        f"{game}_tiny",
        (f"policies.{other}.train=frozen",),
        SEEDS,
        warmed_by=TINY[game],
    )
    for game, agents in AGENTS.items()
    for agent, other in (agents, agents[::-1])
}
"""Game and agent -> runs in which this agent alone learns."""
ONE_POLICY = Experiment("plan_path_tiny_centralized", "plan_path_tiny_centralized", seeds=SEEDS)
SHOWN = Experiment("plan_path_tiny_shown", "plan_path_tiny", ("environment.shown=true",), SEEDS)


def team(game: str) -> Iterator[Sequence[str]]:
    """The team of every seed, before and after."""
    first, experiment, after = AGENTS[game][0], TINY[game], []
    yield ("seed", "before", "after", f"the way of {first}", "tokens", "CPU s")
    for seed in experiment.seeds:
        folder = experiment.folder(seed)
        one = summary(folder)
        after.append(heldout(folder, "after"))
        settled = one["heldout"]["after"]["conventions"][first]
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
    team, agents = TINY[game], AGENTS[game]
    alone = [ALONE[game, agent] for agent in agents]
    rows = {
        "before": [heldout(team.folder(seed), "before") for seed in SEEDS],
        "**the team**": [heldout(team.folder(seed), "after") for seed in SEEDS],
        **{
            f"only {agent} learns": [heldout(one.folder(seed), "after") for seed in SEEDS]
            for agent, one in zip(agents, alone, strict=True)
        },
        "these two put together": [together(*alone, seed) for seed in SEEDS],
        "the team, roles swapped": [swapped(team, agents, seed) for seed in SEEDS],
    }
    if game != "sudoku":
        rows["the team, goals of another puzzle"] = [shuffled(team, seed) for seed in SEEDS]
    if game == "plan_path":
        rows["one policy for both agents"] = [
            heldout(ONE_POLICY.folder(seed), "after") for seed in SEEDS
        ]
        rows["the planner sees the goal"] = [heldout(SHOWN.folder(seed), "after") for seed in SEEDS]
    for name, values in rows.items():
        yield (name, *(f"{value:.3f}" for value in values), f"{mean(values):.3f}")


def together(first: Experiment, second: Experiment, seed: int) -> float:
    """Return the success of two agents that were trained in different runs."""
    runs = [str(one.folder(seed)) for one in (first, second)]
    return float(motet("crossplay", *runs)["success"][0][1])


def swapped(team: Experiment, agents: Sequence[str], seed: int) -> float:
    """Return the success of a team whose agents play each other's roles."""
    roles = [f"team.{a}={b}" for a, b in (agents, agents[::-1])]
    return float(motet("evaluate", str(team.folder(seed)), *roles)["success"])


def shuffled(team: Experiment, seed: int) -> float:
    """Return the success of a team whose planners read the message of another puzzle."""
    return float(motet("messages", str(team.folder(seed)), "--shuffle-turn", "1")["success"])


def _alone(game: str) -> tuple[Experiment, ...]:
    return tuple(one for (name, _), one in ALONE.items() if name == game)


PARTS = {
    **{game: Part(tabled(partial(team, game)), (one,)) for game, one in TINY.items()},
    **{
        f"{game}_controls": Part(
            tabled(partial(controls, game)),
            (one, *_alone(game), *((ONE_POLICY, SHOWN) if game == "plan_path" else ())),
        )
        for game, one in TINY.items()
    },
}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-games")
