"""Several runs side by side: a row per run, and runs of one config as a group over seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from motet.api.code_record import hashes_of
from motet.api.loaded import LoadedRun, load_run
from motet.api.setup import run_folder
from motet.api.summary import read_summary
from motet.config.paths import run_of_checkpoint
from motet.errors import ConfigError
from motet.trainer.metrics import read_metrics
from motet.trainer.plot import moving_average
from motet.trainer.run_folder import RunFolder
from motet.user_code.looking import looking
from motet.user_code.plugins import nearest
from motet_compare.over_seeds import (
    CONFIDENCE_OF_SEEDS,
    OverSeeds,
    bounds_of,
    curve_over_seeds,
    over_seeds,
)
from motet_compare.plots import PlotBand, band_curves

if TYPE_CHECKING:
    from pandas import DataFrame

OF_ONE_RUN = ("name", "seed")
"""Keys in which the runs of a group may differ."""
FileHashes: TypeAlias = Mapping[str, str] | None
"""The user's own files that a run loaded, with their hashes. None if that is not known."""
COMPARED = {"before": "success before", "after": "success after", "reward": "reward after"}
"""Figure of a run -> its title. All are of the held-out tasks."""
BOUNDS: dict[str, tuple[float, float] | None] = {
    "before": (0.0, 1.0), "after": (0.0, 1.0), "reward": None,
}  # fmt: skip
"""Figure of a run -> where it can be: a success is a rate."""
STATISTICS = tuple(one.name for one in fields(OverSeeds))
_LONGEST = 60
"""The longest list of differences in the name of a group."""


@dataclass(frozen=True)
class ComparedRun:
    """The settings and results of a run. A figure that it does not have (yet) is None."""

    run: str
    group: str
    """The same for runs of one config and code, whatever their seeds."""
    seed: int
    steps: int | None
    finished: bool
    before: float | None
    """The success on held-out tasks before training."""
    after: float | None
    reward: float | None
    """The reward on held-out tasks after training."""
    wall_seconds: float | None
    cpu_seconds: float | None
    differs: Sequence[str]
    """`KEY=VALUE` for each key whose value differs from that of the first run, and
    `code.FILE=HASH` for each of the user's files that differs from the one that it loaded."""


@dataclass(frozen=True)
class RunGroup:
    """The figures of a group of runs over their seeds. None if no run has the figure."""

    group: str
    runs: int
    seeds: Sequence[int]
    before: OverSeeds | None
    after: OverSeeds | None
    reward: OverSeeds | None


def runs(paths: str | Path | Sequence[str | Path]) -> "LoadedRuns":
    """Return the runs of a pattern such as "runs/*", or of a list of run folders.

    A pattern skips whatever is not the folder of a run.

    Raises: ConfigError if there is no run, or if a folder of a list is not that of a run.
    """
    if isinstance(paths, str | Path) and has_magic(str(paths)):
        found = [Path(path) for path in sorted(glob(str(paths)))]  # noqa: PTH207 (may be absolute)
        found = [path for path in found if RunFolder(path).config.is_file()]
    else:
        found = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not found:
        raise ConfigError(f"{paths} matches no run folder; expected some, as in runs/quickstart-*")
    return LoadedRuns([load_run(path) for path in found])


@looking()
def compare(runs: Sequence[str | Path]) -> list[ComparedRun]:
    """Return the settings and results of two or more runs that are finished or were stopped.

    Raises: ConfigError if there are fewer than two runs, or if one has no summary.
    """
    refuse_others(runs, "compare")
    found = LoadedRuns([load_run(run) for run in runs]).rows
    for row in found:
        if row.steps is None:
            raise ConfigError(
                f"{row.run} has no summary.json: expected the folder of a run that finished or was "
                "stopped"
            )
    return found


def refuse_others(runs: Sequence[str | Path], command: str) -> None:
    """Raise ConfigError if there are fewer than two runs, or if one is not a run folder.

    crossplay also takes checkpoints.
    """
    if len(runs) < 2:
        raise ConfigError(f"{command} got {len(runs)} run folders, expected at least two")
    for run in runs:
        if command != "crossplay" or run_of_checkpoint(Path(run)) is None:
            run_folder(run)


class LoadedRuns:
    """Several runs. Runs of one config with different seeds form a group."""

    def __init__(self, loaded: Sequence[LoadedRun]) -> None:
        self._runs = tuple(loaded)
        self._configs = [run.config.model_dump(mode="json") for run in loaded]
        self._codes = [hashes_of(RunFolder(run.path)) for run in loaded]
        self._groups = _groups_of([run.path for run in loaded], self._configs, self._codes)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[LoadedRun]:
        return iter(self._runs)

    def __getitem__(self, place: int) -> LoadedRun:
        return self._runs[place]

    def __repr__(self) -> str:
        return f"LoadedRuns({', '.join(str(run.path) for run in self)})"

    def _repr_html_(self) -> str:
        """Show the groups as a table in a notebook."""
        return str(self.statistics.to_html(float_format="{:.3f}".format, na_rep=""))

    @cached_property
    def rows(self) -> list[ComparedRun]:
        """The settings and results of each run."""
        return [self._row(place) for place in range(len(self))]

    def _row(self, place: int) -> ComparedRun:
        run, config = self._runs[place], self._configs[place]
        changed = differing(self._configs[0], config)
        changed += _other_code(self._codes[0], self._codes[place])
        summary = read_summary(RunFolder(run.path))
        heldout = {} if summary is None else summary.heldout
        before, after = heldout.get("before"), heldout.get("after")
        return ComparedRun(
            run=str(run.path),
            group=self._groups[place],
            seed=config["seed"],
            steps=None if summary is None else summary.steps,
            finished=summary is not None and summary.finished,
            before=None if before is None else before.success,
            after=None if after is None else after.success,
            reward=None if after is None else after.reward,
            wall_seconds=None if summary is None else summary.wall_seconds,
            cpu_seconds=None if summary is None else summary.cpu_seconds,
            differs=[line for line in changed if line.partition("=")[0] not in OF_ONE_RUN],
        )

    @property
    def groups(self) -> dict[str, list[LoadedRun]]:
        """Name of a group -> its runs."""
        found: dict[str, list[LoadedRun]] = {}
        for run, group in zip(self._runs, self._groups, strict=True):
            found.setdefault(group, []).append(run)
        return found

    @property
    def metrics(self) -> "DataFrame":
        """One row per run and step: `group`, `run`, `seed`, `step`, and the metrics of
        docs/metrics.md. A metric that was not measured is NaN."""
        from pandas import concat

        frames = [
            run.metrics.reset_index().assign(group=group, run=str(run.path), seed=config["seed"])
            for run, group, config in zip(self._runs, self._groups, self._configs, strict=True)
        ]
        table = concat(frames, ignore_index=True)
        first = ["group", "run", "seed", "step"]
        return table[[*first, *sorted(set(table.columns) - set(first))]]

    @property
    def summaries(self) -> "DataFrame":
        """One row per run, with the columns of `ComparedRun`."""
        from pandas import DataFrame

        return DataFrame(self.rows)

    @property
    def statistics(self) -> "DataFrame":
        """One row per group: the `runs`, `mean`, `std`, and ends of the 95 % interval (`low`,
        `high`) of `before`, `after` and `reward`. Its columns are `after_mean` and so on."""
        return _table(grouped(self.rows))

    @property
    def differences(self) -> "DataFrame":
        """The `statistics` of each group minus the first group, over pairs of runs of one seed.
        Groups with fewer than two pairs have no row."""
        return _table(differences(self.rows))

    def to_latex(self) -> str:
        """Return the groups as a table for LaTeX with booktabs.

        With several runs a cell is `mean ± standard deviation [interval]`.
        """
        from pandas import DataFrame

        heads = ["run", "seeds", *COMPARED.values()]
        rows = [
            [one.group, one.runs, *(_cell(getattr(one, name), one.runs) for name in COMPARED)]
            for one in grouped(self.rows)
        ]
        table: str = DataFrame(rows, columns=heads).to_latex(
            index=False, escape=True, column_format=f"l{'r' * (len(heads) - 1)}"
        )
        about = f"mean, standard deviation and {CONFIDENCE_OF_SEEDS:.0%} interval over seeds"
        return f"% {about}; needs \\usepackage{{booktabs}}\n{table}"

    def curves(self, metric: str) -> "DataFrame":
        """One row per group and step: `runs`, `mean`, `std`, `low` and `high` of a metric.

        Raises: ConfigError if no run has the metric.
        """
        from pandas import DataFrame

        rows = [
            {"group": group, "step": step, **asdict(one)}
            for group, curve in self._curves(metric).items()
            for step, one in curve.items()
        ]
        return DataFrame(rows, columns=["group", "step", *STATISTICS])

    def plot(
        self, path: str | Path, metric: str | None = None, band: PlotBand = "interval"
    ) -> Path:
        """Plot the mean of a metric over the runs of each group, with a band, to a PNG file.

        Each run is first smoothed as in curve.png. The default metric is `play/success`, or
        `play/reward` without one. Raises: ConfigError if no run has the metric.
        """
        if metric is None:
            known = self._names()
            metric = "play/success" if "play/success" in known else "play/reward"
        band_curves(self._curves(metric, smooth=True), metric, Path(path), band)
        return Path(path)

    @cached_property
    def _lines(self) -> list[list[dict[str, Any]]]:
        return [read_metrics(RunFolder(run.path).metrics) for run in self._runs]

    def _names(self) -> set[str]:
        return {name for lines in self._lines for line in lines for name in line} - {"step"}

    def _curves(self, metric: str, smooth: bool = False) -> dict[str, dict[int, OverSeeds]]:
        if metric not in self._names():
            raise ConfigError(
                f"no run has the metric {metric!r}{nearest(metric, self._names())}; expected one "
                "of docs/metrics.md"
            )
        curves: dict[str, list[dict[int, float]]] = {}
        for group, lines in zip(self._groups, self._lines, strict=True):
            curve = {line["step"]: line[metric] for line in lines if metric in line}
            if curve:
                curves.setdefault(group, []).append(_smooth(curve) if smooth else curve)
        bounds = bounds_of(metric)
        return {group: curve_over_seeds(of, bounds) for group, of in curves.items()}


def _smooth(curve: Mapping[int, float]) -> dict[int, float]:
    """Return the moving averages that the learning curve of a run shows."""
    width = max(1, len(curve) // 12) | 1
    return dict(zip(curve, moving_average(list(curve.values()), width), strict=True))


def _cell(figure: OverSeeds | None, runs: int) -> str:
    if figure is None:
        return "--"
    text = f"{figure.mean:.3f}"
    if figure.std is not None:
        text += f" ± {figure.std:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
    return text if figure.runs == runs else f"{text} ({figure.runs} of {runs} runs)"


def _table(groups: Sequence[RunGroup]) -> "DataFrame":
    """Return one row per group with one plain value per column, such as `after_mean`."""
    from pandas import DataFrame

    rows = []
    for one in groups:
        row: dict[str, Any] = {
            "group": one.group,
            "runs": one.runs,
            "seeds": " ".join(map(str, one.seeds)),
        }
        for name in COMPARED:
            figure = getattr(one, name)
            row |= {f"{name}_{each}": getattr(figure, each, None) for each in STATISTICS}
        rows.append(row)
    names = [f"{name}_{each}" for name in COMPARED for each in STATISTICS]
    return DataFrame(rows, columns=["group", "runs", "seeds", *names]).set_index("group")


# ------------------------------------------------------------------------------------------- groups


def differing(one: Any, other: Any, at: str = "") -> list[str]:
    """Return `key=value` for each dotted key whose values differ, with the value of `other`."""
    if isinstance(one, dict) and isinstance(other, dict):
        found: list[str] = []
        for key in dict.fromkeys([*one, *other]):
            found += differing(one.get(key), other.get(key), f"{at}.{key}" if at else key)
        return [line for line in found if line]
    return [] if one == other else [f"{at}={other}"]


def _other_code(one: FileHashes, other: FileHashes) -> list[str]:
    """Return `code.FILE=HASH` for each file that both runs loaded and that differs.

    A file that only one of them loaded is named by another key, or imported by a file that differs.
    A run of an earlier version has no hashes, and differs from none.
    """
    if one is None or other is None:
        return []
    return [
        f"code.{file}={other[file]}" for file in one if file in other and one[file] != other[file]
    ]


def _groups_of(
    runs: Sequence[Path], configs: Sequence[Mapping[str, Any]], codes: Sequence[FileHashes]
) -> list[str]:
    """Return the name of each run's group: the runs of one config and code, whatever their seeds.

    A group is named after its first run, without `-seedN`. If another config has this name, what
    differs is added.
    """
    known: list[tuple[str, dict[str, Any], FileHashes]] = []
    found = []
    for run, config, code in zip(runs, configs, codes, strict=True):
        kind = {key: value for key, value in config.items() if key not in OF_ONE_RUN}
        name = next(
            (name for name, other, its in known if other == kind and not _other_code(its, code)),
            None,
        )
        if name is None:
            stem = run.name.removesuffix(f"-seed{config['seed']}")
            same = [one for one in known if one[0].split(" (")[0] == stem]
            name = stem
            if same:
                changed = ", ".join(differing(same[0][1], kind) + _other_code(same[0][2], code))
                name += f" ({changed if len(changed) <= _LONGEST else len(same) + 1})"
            known.append((name, kind, code))
        found.append(name)
    return found


def grouped(rows: Sequence[ComparedRun]) -> list[RunGroup]:
    """Return the figures of each group over its runs."""
    found = []
    for group in dict.fromkeys(row.group for row in rows):
        mine = [row for row in rows if row.group == group]
        figures = {
            name: _over([getattr(row, name) for row in mine], BOUNDS[name]) for name in COMPARED
        }
        found.append(RunGroup(group, len(mine), [row.seed for row in mine], **figures))
    return found


def differences(rows: Sequence[ComparedRun]) -> list[RunGroup]:
    """Return each group minus the first group.

    Runs with the same seed are paired. This removes what the seed alone decides, such as the
    warmed-up models. A group with fewer than two pairs is left out.
    """
    by_seed: dict[str, dict[int, ComparedRun]] = {}
    for row in rows:
        by_seed.setdefault(row.group, {})[row.seed] = row
    (_, first), *others = by_seed.items()
    found = []
    for name, mine in others:
        seeds = [seed for seed in first if seed in mine]
        if len(seeds) < 2:
            continue
        figures = {
            figure: _over(
                [_minus(getattr(mine[k], figure), getattr(first[k], figure)) for k in seeds],
                None if BOUNDS[figure] is None else (-1.0, 1.0),
            )
            for figure in COMPARED
        }
        found.append(RunGroup(name, len(seeds), seeds, **figures))
    return found


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _over(values: Sequence[float | None], bounds: tuple[float, float] | None) -> OverSeeds | None:
    there = [value for value in values if value is not None]
    return over_seeds(there, bounds) if there else None
