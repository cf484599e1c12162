"""Compare run with run: one row per run, and runs of one config with several seeds as a group."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from motet.api.code_record import hashes_of
from motet.api.setup import recorded_config
from motet.config.yaml import shown
from motet.errors import ConfigError
from motet.evaluation.over_seeds import OverSeeds, over_seeds
from motet.trainer.run_folder import RunFolder, read_summary
from motet.user_code.looking import looking

OF_ONE_RUN = ("name", "seed")
"""Keys in which the runs of a group may differ."""
FileHashes: TypeAlias = Mapping[str, str] | None
"""The user's own files that a run loaded, with their hashes. None if that is not known."""
COMPARED = {"before": "success before", "after": "success after", "reward": "reward after"}
"""Figure of a row -> its title. All are of the held-out tasks."""
BOUNDS: dict[str, tuple[float, float] | None] = {
    "before": (0.0, 1.0), "after": (0.0, 1.0), "reward": None,
}  # fmt: skip
"""Figure of a row -> where it can be: a success is a rate."""
_LARGEST = 1e15
"""No figure of a run is larger."""
_LONGEST = 60
"""The longest list of differences in the name of a group."""


@looking()
def compare(runs: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Return one row per run: its settings and results.

    Runs of one config with different seeds have the same `group`. `differs` lists the keys whose
    values differ from the first run's config, and `code.FILE` for each of the user's files that
    differs from the one that the first run loaded.

    Raises: ConfigError if there are fewer than two runs, or if one has no summary.
    """
    refuse_others(runs, "compare")
    configs = [recorded_config(run).model_dump(mode="json") for run in runs]
    codes = [hashes_of(RunFolder(Path(run))) for run in runs]
    groups = groups_of(runs, configs, codes)
    rows = []
    for run, config, code, group in zip(runs, configs, codes, groups, strict=True):
        changed = differing(configs[0], config) + _other_code(codes[0], code)
        kept = [line for line in changed if line.partition("=")[0] not in OF_ONE_RUN]
        rows.append({**row_of(run, config, _summary(Path(run)), group), "differs": kept})
    return rows


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


def row_of(
    run: str | Path, config: Mapping[str, Any], summary: Mapping[str, Any] | None, group: str
) -> dict[str, Any]:
    """Return the row of a run. Figures that it has not (yet) are None.

    Raises: ConfigError if the summary is not one that `train` writes.
    """
    row = {"run": str(run), "group": group, "seed": config["seed"]}
    if summary is None:
        times = {"wall_seconds": None, "cpu_seconds": None}
        return {**row, "steps": None, "finished": False, **dict.fromkeys(COMPARED), **times}
    where = RunFolder(Path(run)).summary
    heldout = _section(summary, "heldout", where)

    def of(when: str, figure: str) -> float | None:
        if when not in heldout:
            return None
        return _number(_section(heldout, when, where), figure, where)

    return {
        **row,
        "steps": _number(summary, "steps", where),
        "finished": summary.get("finished", True) is True,  # earlier versions did not say so
        "before": of("before", "success"),
        "after": of("after", "success"),
        "reward": of("after", "reward"),
        "wall_seconds": _number(summary, "wall_seconds", where),
        "cpu_seconds": _number(summary, "cpu_seconds", where),
    }


def _section(values: Mapping[str, Any], key: str, where: Path) -> Mapping[str, Any]:
    found = values.get(key)
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"{where}: {key} is {shown(found)}; expected the figures that motet train writes"
        )
    return found


def _number(values: Mapping[str, Any], key: str, where: Path) -> int | float | None:
    """Return a figure, or None if it was not measured."""
    value: int | float | None = values.get(key, "missing")
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (plain and abs(value) < _LARGEST):  # NaN is not smaller
        raise ConfigError(
            f"{where}: {key} is {shown(value)}; expected a number, as motet train writes it"
        )
    return value


def _summary(run: Path) -> dict[str, Any]:
    path = RunFolder(run).summary
    if not path.is_file():
        raise ConfigError(
            f"{run} has no summary.json: expected the folder of a run that finished or was stopped"
        )
    return read_summary(path)


def refuse_others(runs: Sequence[str | Path], command: str) -> None:
    """Raise ConfigError if there are fewer than two runs, or if one is not a run folder."""
    if len(runs) < 2:
        raise ConfigError(f"{command} got {len(runs)} run folders, expected at least two")
    for run in runs:
        if not RunFolder(Path(run)).config.is_file():
            raise ConfigError(
                f"{run} is not a run folder: expected a folder with a config.yaml, such as "
                "runs/quickstart"
            )


def differing(one: Any, other: Any, at: str = "") -> list[str]:
    """Return `key=value` for each dotted key whose values differ, with the value of `other`."""
    if isinstance(one, dict) and isinstance(other, dict):
        found: list[str] = []
        for key in dict.fromkeys([*one, *other]):
            found += differing(one.get(key), other.get(key), f"{at}.{key}" if at else key)
        return [line for line in found if line]
    return [] if one == other else [f"{at}={other}"]


# ------------------------------------------------------------------------------------------- groups


def groups_of(
    runs: Sequence[str | Path], configs: Sequence[Mapping[str, Any]], codes: Sequence[FileHashes]
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
            stem = Path(run).name.removesuffix(f"-seed{config['seed']}")
            same = [one for one in known if one[0].split(" (")[0] == stem]
            name = _told_apart(stem, same, kind, code)
            known.append((name, kind, code))
        found.append(name)
    return found


def _told_apart(
    stem: str,
    same: Sequence[tuple[str, dict[str, Any], FileHashes]],
    kind: dict[str, Any],
    code: FileHashes,
) -> str:
    if not same:
        return stem
    _, first, its = same[0]
    changed = ", ".join(differing(first, kind) + _other_code(its, code))
    return f"{stem} ({changed if len(changed) <= _LONGEST else len(same) + 1})"


def grouped(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per group: its seeds, and the figures of COMPARED over its runs.

    A figure is the dictionary of an `OverSeeds`, or None if no run has it.
    """
    found = []
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == group]
        figures = {name: _over([row[name] for row in mine], BOUNDS[name]) for name in COMPARED}
        found.append(
            {
                "group": group,
                "runs": len(mine),
                "seeds": [row["seed"] for row in mine],
                **{name: None if one is None else asdict(one) for name, one in figures.items()},
            }
        )
    return found


def differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows like those of `grouped`: a group minus the first group.

    Runs with the same seed are paired. This removes what the seed alone decides, such as the
    warmed-up models. A group with fewer than two pairs has no row.
    """
    names = list(dict.fromkeys(row["group"] for row in rows))
    by_seed = {name: {row["seed"]: row for row in rows if row["group"] == name} for name in names}
    first, found = by_seed[names[0]], []
    for name in names[1:]:
        seeds = [seed for seed in first if seed in by_seed[name]]
        if len(seeds) < 2:
            continue
        pairs = [(by_seed[name][seed], first[seed]) for seed in seeds]
        row: dict[str, Any] = {"group": name, "runs": len(seeds), "seeds": seeds}
        for figure in COMPARED:
            bounds = None if BOUNDS[figure] is None else (-1.0, 1.0)
            one = _over([_minus(here[figure], there[figure]) for here, there in pairs], bounds)
            row[figure] = None if one is None else asdict(one)
        found.append(row)
    return found


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _over(values: Sequence[float | None], bounds: tuple[float, float] | None) -> OverSeeds | None:
    there = [value for value in values if value is not None]
    return over_seeds(there, bounds) if there else None
