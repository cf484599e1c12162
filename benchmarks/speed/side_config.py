"""Steps of a config of Motet, as `motet train` does them, from the rollout to the publishing.

`settings` of the job: `config`, and `overrides` of it.
"""

import asyncio
import itertools
import tempfile
from pathlib import Path

import torch
from pace import Pace

from motet.assembly import bases
from motet.assembly.components import components_of
from motet.assembly.models import assemble
from motet.assembly.task_setup import open_task_setup
from motet.config.load import load_config
from motet.core import CreditState, walk
from motet.trainer.loop import Played, learn_step, play_step, tasks_of


def rows_of(played: Played) -> list[tuple[int, int, list[int]]]:
    """Return for every prompt its turn, its tokens, and the tokens of each of its completions."""
    return [
        (
            len(path),
            len(round_.prompt_tokens[agent]),
            [len(completion.tokens or ()) for completion in completions],
        )
        for episode in played.episodes
        if episode.root is not None
        for path, round_ in walk(episode.root)
        for agent, completions in round_.samples.items()
    ]


def main() -> None:
    pace = Pace()
    job, settings = pace.job, pace.job.settings or {}
    torch.set_num_threads(job.threads)
    config = load_config(settings["config"], settings["overrides"])
    with open_task_setup(config, train=True) as setup:

        async def run() -> None:
            found = await bases.raw(setup, Path(tempfile.gettempdir()), None)
            components = components_of(setup, assemble(setup, found, train=True))
            pace.mark()
            state = CreditState()
            for number in itertools.count(1):
                played = await play_step(components, tasks_of(components, number, state), number)
                pace.stage("play")
                step, state = await learn_step(components, played, number, state)
                pace.stage("learn")
                pace.told |= {f"seconds/{stage}": took for stage, took in step.seconds.items()}
                pace.told |= {
                    "rows": rows_of(played),
                    "skipped": step.metrics.get("learn/skipped", 0.0),
                }
                pace.rollout = step.seconds["play"] + step.seconds["score"]
                pace.update = step.took - pace.rollout
                pace.mark()

        asyncio.run(run())


if __name__ == "__main__":
    main()
