"""replay: repeats one step of a recorded run and compares it with the record."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from motet.api.objects import Objects
from motet.api.setup import (
    Show,
    answers_of,
    changed_since,
    read_config,
    run_folder,
    setup_in_scratch,
)
from motet.assembly import bases
from motet.assembly.components import components_of
from motet.assembly.models import assemble
from motet.assembly.task_setup import steps_of
from motet.errors import ConfigError
from motet.rollout.record import read_episodes
from motet.trainer.progress import Progress
from motet.trainer.run_folder import RunFolder
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop
from motet_compare.replaying import ReplayResult, last_played
from motet_compare.replaying import replay as replay_step

_EPISODE = r"(\d{6,}):.+"


@blocking
def replay(
    run: str | Path,
    *,
    step: int | None = None,
    recorded: bool = False,
    episode: str | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> ReplayResult:
    """Repeat one step of a run and report whether the result is the same. Nothing is written.

    The step is sampled again from its seed, and then trained on.

    Args:
        step: the step, from 1. Default: the last recorded one.
        recorded: train on the recorded episodes instead of sampling again.
        episode: only sample this episode again, such as 000012:task-7, and train nothing. The
            result contains only this episode.
        objects: replace what the config names, as in `train`.

    Raises: ConfigError; MotetError if the step itself raised it.
    """
    folder = run_folder(run)
    if episode is not None:
        step = _step_of(episode, step, recorded)
    settings = read_config(folder.path, **objects)
    with (
        setup_in_scratch(settings, train=True) as (setup, scratch),
        Progress(show) as progress,
    ):
        number = last_played(folder) if step is None else _checked(step, steps_of(setup))
        found = run_loop(bases.raw(setup, scratch, folder.models))
        if settings.warmup is not None:
            _check_warm_up(found, folder)
        models = assemble(setup, found, train=True, answers=answers_of(folder.path))
        components = components_of(setup, models)
        # A replay must not stop at the mismatch that stopped the run.
        alarms = components.alarms.model_copy(update={"max_mismatch": None})
        changed = changed_since(folder.path, settings)
        for line in changed:
            progress.say(line)
        progress.stage("replay", 1)

        def on_progress(done: int, of: int) -> None:
            if not done:
                progress.stage("replay", of)
            progress.show(done, {})

        again = run_loop(
            replay_step(
                replace(components, alarms=alarms),
                folder,
                number,
                sample=not recorded,
                learn=episode is None,
                on_progress=on_progress,
            )
        )
    again = replace(again, code_changed=tuple(changed))
    return again if episode is None else _only(again, episode, folder)


def _checked(step: int, last: int) -> int:
    if not 1 <= step <= last:
        raise ConfigError(f"got step {step}; expected 1 to {last}, the last step of the run")
    return step


def _check_warm_up(found: Mapping[str, str | Path], folder: RunFolder) -> None:
    """Raises: ConfigError if a model of the run has not finished its warm-up."""
    for name, source in found.items():
        if source != folder.models / name:
            raise ConfigError(
                f"{folder.models / name} is missing: the run was stopped before its warm-up ended; "
                "resume it first"
            )


def _step_of(episode: str, step: int | None, recorded: bool) -> int:
    named = re.fullmatch(_EPISODE, episode)
    if named is None:
        raise ConfigError(
            f"episode is {episode!r}; expected the id of a training episode, such as 000012:task-7"
        )
    if recorded or step not in (None, int(named[1])):
        raise ConfigError(
            f"episode {episode} is sampled again, at step {int(named[1])}: drop step and recorded"
        )
    return int(named[1])


def _only(found: ReplayResult, episode: str, folder: RunFolder) -> ReplayResult:
    """Reduce a replayed step to one episode."""
    ids = [one.id for one in found.episodes]
    if episode not in ids:
        raise ConfigError(
            f"step {found.step} has no episode {episode}; expected one of {', '.join(ids)}"
        )
    (own,) = (one for one in found.episodes if one.id == episode)
    path = folder.episodes("train", found.step)
    then = (
        [one for one in read_episodes(path).episodes if one.id == episode] if path.is_file() else []
    )
    return replace(found, episodes=(own,), same_episodes=own == then[0] if then else None)
