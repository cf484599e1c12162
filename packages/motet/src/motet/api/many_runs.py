"""runs: several run folders as tables and curves, with runs of one config as a group."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.api.code_record import hashes_of
from motet.api.comparison_tables import STATISTICS, flat
from motet.api.run_rows import differences, grouped, groups_of, row_of
from motet.api.runs import LoadedRun, load_run
from motet.errors import ConfigError
from motet.evaluation.over_seeds import OverSeeds, bounds_of, curve_over_seeds
from motet.trainer.metrics import read_metrics
from motet.trainer.plot import PlotBand, band_curves, moving_average
from motet.trainer.run_folder import RunFolder, read_summary
from motet.user_code.plugins import nearest

if TYPE_CHECKING:
    from pandas import DataFrame


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


class LoadedRuns:
    """Several runs. Runs of one config with different seeds form a group."""

    def __init__(self, loaded: Sequence[LoadedRun]) -> None:
        self._runs = tuple(loaded)
        self._configs = [run.config.model_dump(mode="json") for run in loaded]
        codes = [hashes_of(RunFolder(run.path)) for run in loaded]
        self._groups = groups_of([run.path for run in loaded], self._configs, codes)

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
        """One row per run: `group`, `run`, `seed`, `steps`, `finished`, the success on held-out
        tasks `before` and `after` training, the `reward` after it, and its seconds. A run without a
        summary has only its settings."""
        from pandas import DataFrame

        return DataFrame(self._rows)

    @property
    def statistics(self) -> "DataFrame":
        """One row per group: the `runs`, `mean`, `std`, and ends of the 95 % interval (`low`,
        `high`) of `before`, `after` and `reward`. Its columns are `after_mean` and so on."""
        from pandas import DataFrame

        return DataFrame([flat(row) for row in grouped(self._rows)]).set_index("group")

    @property
    def differences(self) -> "DataFrame":
        """The `statistics` of each group minus the first group, over pairs of runs of one seed.
        Groups with fewer than two pairs have no row."""
        from pandas import DataFrame

        rows = [flat(row) for row in differences(self._rows)]
        names = flat(grouped(self._rows)[0])
        return DataFrame(rows, columns=list(names)).set_index("group")

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
    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for run, group, config in zip(self._runs, self._groups, self._configs, strict=True):
            file = RunFolder(run.path).summary
            summary: Mapping[str, Any] | None = read_summary(file) if file.is_file() else None
            rows.append(row_of(run.path, config, summary, group))
        return rows

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
