"""What the evaluations of a run say about its team: influence, conventions, cross-play."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.errors import ConfigError
from motet.reading import read_json

SAVED = "evaluations"
"""Folder in a run for the output of `motet evaluate --json` and `motet crossplay --json`."""
_FIGURES = ("episodes", "samples", "success", "reward", "faults", "interval")
_MOST_FILES = 50


def team_figures(run: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return `evaluations` (before and after training, then saved ones), `crossplays`, and the
    `unreadable` files. Nothing is played."""
    heldout = summary.get("heldout")
    titles = {"before": "before training", "after": "after training"}
    found = [
        _evaluation(titles.get(str(when), str(when)), figures)
        for when, figures in (heldout.items() if isinstance(heldout, Mapping) else ())
        if isinstance(figures, Mapping)
    ]
    crossplays, unreadable = [], []
    for path in sorted((run / SAVED).glob("*.json"))[:_MOST_FILES]:
        try:
            saved = read_json(path)
        except (ConfigError, OSError) as error:
            unreadable.append(str(error).replace(str(run), run.name))
            continue
        if isinstance(saved, Mapping) and _is_crossplay(saved):
            crossplays.append({"title": path.stem, **saved})
        elif isinstance(saved, Mapping) and isinstance(saved.get("reward"), float | None):
            found.append(_evaluation(path.stem, saved))
        else:
            unreadable.append(
                f"{path.name} is neither the output of motet evaluate --json nor of motet "
                "crossplay --json"
            )
    return {"evaluations": found, "crossplays": crossplays, "unreadable": unreadable}


def _evaluation(title: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        **{name: figures.get(name) for name in _FIGURES},
        "influence": figures.get("influence"),
        "conventions": figures.get("conventions") or {},
    }


def _is_crossplay(saved: Mapping[str, Any]) -> bool:
    runs, success = saved.get("runs"), saved.get("success")
    return (
        isinstance(runs, list)
        and isinstance(success, list)
        and len(success) == len(runs)
        and all(isinstance(row, list) and len(row) == len(runs) for row in success)
    )
