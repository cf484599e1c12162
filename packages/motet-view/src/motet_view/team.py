"""What the evaluations of a run say of its team: controls, influence, conventions, cross-play."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.errors import ConfigError
from motet.safety.reading import read_json
from motet.trainer.run_folder import RunFolder
from motet_view import plain
from motet_view.links import run_holds

_FIGURES = ("episodes", "samples", "success", "reward", "faults")
_MOST_FILES = 200


def team_figures(run: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return `evaluations` (before and after training, then those of RUN/evaluations), `baselines`,
    `diagnoses`, `crossplays`, and the `unreadable` files. Nothing is played.

    The files are what `motet evaluate` and others keep there, or print with --json.
    """
    heldout = summary.get("heldout")
    steps = plain.integer(summary.get("steps"))
    known = {"before": ("before training", 0), "after": ("after training", steps)}
    found: dict[str, list[Any]] = {
        "evaluations": [], "baselines": [], "diagnoses": [], "crossplays": [],
    }  # fmt: skip
    for when, figures in heldout.items() if isinstance(heldout, Mapping) else ():
        if isinstance(figures, Mapping):
            title, step = known.get(str(when), (str(when), None))
            start = {"title": title, "step": step, "options": list[str]()}
            found["evaluations"].append(_evaluation(figures, start))
    unreadable = []
    for path in sorted(RunFolder(run).evaluations.glob("*.json"))[:_MOST_FILES]:
        try:
            if not run_holds(run, path):
                raise ConfigError(f"{path} is a link that leaves the run, and is not read")
            saved = read_json(path)
        except (ConfigError, OSError) as error:
            unreadable.append(str(error).replace(str(run), run.name))
            continue
        about = _about(path, saved)
        if _is_crossplay(saved):
            found["crossplays"].append({**_crossplay(saved), **about})
        elif _is_baselines(saved):
            found["baselines"].append({**_baselines(saved), **about})
        elif _is_diagnosis(saved):
            found["diagnoses"].append({**_diagnosis(saved), **about})
        elif isinstance(saved, Mapping) and isinstance(saved.get("reward"), int | float | None):
            found["evaluations"].append(_evaluation(saved, about))
        else:
            unreadable.append(
                f"{path.name} is neither the output of motet evaluate --json nor of motet "
                "crossplay --json"
            )
    return {**found, "unreadable": unreadable}


def _about(path: Path, saved: Any) -> dict[str, Any]:
    """Return title, step and options of a file: those that were kept with it, or its name."""
    said = saved.get("about") if isinstance(saved, Mapping) else None
    if not isinstance(said, Mapping):
        return {"title": path.stem, "step": None, "options": []}
    title = str(said.get("kind")).replace("-turn-", " after turn ")
    best = " (best team)" if said.get("team") == "best" else ""
    step, options = said.get("step"), said.get("options")
    return {
        "title": title + best,
        "step": plain.integer(step),
        "options": plain.texts(options),
    }


def _evaluation(figures: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    interval = figures.get("interval")
    return {
        **about,
        **plain.numbers(figures, _FIGURES),
        "interval": plain.ends(interval) if isinstance(interval, Mapping) else None,
        "influence": plain.influence(figures.get("influence")),
        "conventions": plain.conventions(figures.get("conventions")),
        "messages": _control(figures.get("messages")),
    }


def _control(messages: Any) -> dict[str, Any] | None:
    if not _is_control(messages):
        return None
    real, lost = messages["real"], messages["difference"]
    figures = plain.numbers(real, ("success", "reward"))
    return {
        "are": plain.text(messages.get("are")),
        "turn": plain.integer(messages.get("turn")),
        "real": {**figures, "interval": plain.ends(real.get("interval"))},
        "difference": {name: plain.estimate(lost.get(name)) for name in ("success", "reward")},
    }


def _baselines(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tasks": plain.number(saved.get("tasks")),
        "rows": [
            {
                "protocol": plain.text(row.get("protocol")),
                "success": plain.estimate(row.get("success")),
                "reward": plain.estimate(row.get("reward")),
                **plain.numbers(row, ("n", "tokens_per_task")),
            }
            for row in plain.rows(saved["rows"])
        ],
    }


def _diagnosis(saved: Mapping[str, Any]) -> dict[str, Any]:
    def agent(figures: Any) -> dict[str, Any]:
        named = plain.mapping(figures)
        return {name: plain.estimate(named.get(name)) for name in ("shapley", "lost", "alone")}

    fidelity = plain.mapping(saved.get("fidelity"))
    return {
        "measure": plain.text(saved.get("measure")),
        "games": plain.number(saved.get("games")),
        "contributions": [
            {
                "stand_in": plain.text(one.get("stand_in")),
                "whole": plain.estimate(one.get("whole")),
                "replaced": plain.estimate(one.get("replaced")),
                "agents": {
                    str(name): agent(figures)
                    for name, figures in plain.mapping(one.get("agents")).items()
                },
            }
            for one in plain.rows(saved["contributions"])
        ],
        "messages": [
            {
                "sender": plain.text(one.get("sender")),
                "turn": plain.integer(one.get("turn")),
                "replaced": plain.text(one.get("replaced")),
                "lost": plain.estimate(one.get("lost")),
            }
            for one in plain.rows(saved.get("messages"))
        ],
        "unearned": {
            str(name): plain.number(share)
            for name, share in plain.mapping(saved.get("unearned")).items()
        },
        "fidelity": plain.estimate(fidelity.get("all")),
        "own": {
            str(name): plain.estimate(share)
            for name, share in plain.mapping(fidelity.get("own")).items()
        },
    }


def _crossplay(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "runs": [str(name) for name in saved["runs"]],
        "agents": plain.texts(saved.get("agents")) or ["the first agent"],
        "success": [[plain.number(one) for one in row] for row in saved["success"]],
    }


def _is_control(messages: Any) -> bool:
    return isinstance(messages, Mapping) and all(
        isinstance(messages.get(name), Mapping) for name in ("real", "difference")
    )


def _is_baselines(saved: Any) -> bool:
    rows = saved.get("rows") if isinstance(saved, Mapping) else None
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, Mapping) and "protocol" in row for row in rows)
    )


def _is_diagnosis(saved: Any) -> bool:
    return isinstance(saved, Mapping) and isinstance(saved.get("contributions"), list)


def _is_crossplay(saved: Any) -> bool:
    if not isinstance(saved, Mapping):
        return False
    runs, success = saved.get("runs"), saved.get("success")
    return (
        isinstance(runs, list)
        and isinstance(success, list)
        and len(success) == len(runs)
        and all(isinstance(row, list) and len(row) == len(runs) for row in success)
    )
