"""One step of Motet, as `motet train` does it: rollout, rewards, credit, update, publish."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pace import Job, Pace
from task import prompt, reward, second_prompt

from motet.api.memory_estimate import memory_of
from motet.assembly.components import components_of
from motet.assembly.models import assemble
from motet.assembly.task_setup import open_task_setup
from motet.config.schema import RunConfig
from motet.core import CreditState, Environment, Reply, Task, Transition
from motet.settings import Settings
from motet.trainer.loop import learn_step, play_step, tasks_of


@dataclass(frozen=True)
class Talk:
    first: str
    turn: int = 0
    said: tuple[str, ...] = ()


class Words(Environment[Talk]):
    """The common work as an environment."""

    branches = True

    class Options(Settings):
        """No options."""

    def __init__(self, job: Job) -> None:
        self.agents: Sequence[str] = tuple(f"agent{number}" for number in range(job.agents))
        self.most_turns = job.turns
        self._tasks = [
            Task(str(number), {"prompt": prompt(number, job.read)}) for number in range(512)
        ]

    def tasks(self, split: str) -> list[Task]:
        return self._tasks if split == "train" else self._tasks[:1]  # nothing is evaluated

    async def start(self, task: Task, seed: int) -> Talk:
        return Talk(task.fields["prompt"])

    def observe(self, state: Talk) -> Mapping[str, str]:
        if state.turn == 0:
            return dict.fromkeys(self.agents, state.first)
        return {
            agent: second_prompt(state.first, state.said, place)
            for place, agent in enumerate(self.agents)
        }

    async def step(self, state: Talk, replies: Mapping[str, Reply], seed: int) -> Transition:
        said = tuple(replies[agent].text for agent in self.agents)
        turn = state.turn + 1
        rewards = dict.fromkeys(self.agents, reward(said))
        return Transition(Talk(state.first, turn, said), rewards, done=turn == self.most_turns)


def config_of(job: Job) -> RunConfig:
    names = [f"agent{number}" for number in range(job.agents)]
    settings: dict[str, Any] = {
        "name": "speed",
        "threads": job.threads,
        "environment": {"name": "words"},
        "models": {"base": {"path": job.model, "device": job.device, "dtype": job.dtype}},
        "policies": {
            name: {"model": "base", "train": "lora" if job.adapters else "full"} for name in names
        },
        "team": {name: {"policy": name} for name in names},
        "decode": {"max_new_tokens": job.new, "temperature": 1.0},
        "rollout": {"samples": (job.group,) * job.turns},
        "algorithm": {
            "name": "magrpo",
            **({"kl": {"kind": "reward", "coefficient": 0.1}} if job.reference_kl else {}),
        },
        "optimizer": {"learning_rate": 1e-6},
        "train": {"steps": 10_000, "tasks_per_step": job.prompts},
    }
    for key, value in (job.settings or {}).items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
    return RunConfig(**settings)


def main() -> None:
    pace = Pace()
    job = pace.job
    torch.set_num_threads(job.threads)
    config = config_of(job)
    with open_task_setup(config, Words(job), train=True) as setup:
        models = assemble(setup, {"base": job.model}, train=True)
        components = components_of(setup, models)

        estimate = memory_of(setup)["total"]

        async def run() -> None:
            state = CreditState()
            for number in range(1, config.train.steps + 1):
                tasks = tasks_of(components, number, state)
                played = await play_step(components, tasks, number)
                pace.stage("play")
                step, state = await learn_step(components, played, number, state)
                pace.stage("learn")
                pace.told |= {f"seconds/{stage}": took for stage, took in step.seconds.items()}
                pace.told["estimate"] = estimate
                pace.rollout = step.seconds["play"] + step.seconds["score"]
                pace.update = step.took - pace.rollout
                pace.mark()

        pace.mark()
        asyncio.run(run())


if __name__ == "__main__":
    main()
