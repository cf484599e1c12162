"""plan: the GPUs that a run needs, and whether it fits them, without a model or a GPU."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from motet.api.batch_sizes import Sizes
from motet.api.memory_estimate import (
    ProcessCost,
    advice,
    parts_of,
    processes_of,
    shapes_of,
    sizes_of,
)
from motet.api.setup import ConfigLike, read_config
from motet.assembly.task_setup import open_task_setup
from motet.config.schema import RunConfig
from motet.core import Team
from motet.errors import ConfigError
from motet.user_code.blocking import blocking
from motet.user_code.looking import looking
from motet.user_code.plugins import nearest

GPUS = {
    name: int(name.rpartition("-")[2]) * 10**9
    for name in (
        "b200-180", "h200-141", "h100-80", "a100-80", "a100-40", "l40s-48", "l4-24", "rtx5090-32",
        "rtx4090-24", "rtx3090-24",
    )
}  # fmt: skip
"""Kind of GPU -> bytes of its memory, which its name has in gigabytes."""
DEFAULT = "h100-80"
MOST = 64
"""The most GPUs that a plan proposes for a home."""


@dataclass(frozen=True)
class Planned:
    """What a run needs on GPUs of one kind, on paper. Memory is in bytes."""

    gpu: str
    gpu_memory: int
    gpus: int
    """The number of GPUs that the config asks for, those of vLLM engines included."""
    processes: tuple[ProcessCost, ...]
    """The homes, or the one process of a run without a `cluster` section, as in a dry run."""
    least_gpus: dict[str, int | None]
    """Home -> the smallest number of GPUs that hold it. None: no number up to `MOST` does."""
    advice: str
    """Which settings need less memory. Empty if every process fits."""
    fits_on: tuple[str, ...]
    """The kinds of GPU on which every process fits."""
    assumes: str
    """What the figures assume."""


@blocking
def plan(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    gpu: str = DEFAULT,
    prompt_tokens: int | None = None,
) -> Planned:
    """Compute on paper which GPUs a run needs. No model is loaded.

    If `config` is a path, no code that it names is loaded either (`motet.user_code.looking`).

    Args:
        gpu: the kind of GPU, such as h100-80, a100-80 or rtx4090-24.
        prompt_tokens: tokens of a prompt. Default: measured on a few tasks.

    Raises: ConfigError for a wrong config, an unknown GPU, or sizes that cannot be known.
    """
    if prompt_tokens is not None and prompt_tokens < 1:
        raise ConfigError(f"prompt_tokens is {prompt_tokens}; expected 1 or more")
    with ExitStack() as stack:
        if isinstance(config, str | Path):
            stack.enter_context(looking())
        settings = read_config(config, overrides)
        if gpu not in GPUS:
            raise ConfigError(
                f"--gpu is {gpu!r}{nearest(gpu, GPUS)}; expected one of {', '.join(GPUS)}: use one "
                "with as much memory"
            )
        if settings.cluster is not None and not settings.cluster.learners.gpus:
            raise ConfigError(
                "cluster.learners.gpus is 0, so homes compute on the CPU; expected 1 or more for a "
                "plan of GPUs"
            )
        if prompt_tokens is not None:
            return planned(settings, *_without_tasks(settings, prompt_tokens), gpu)
        try:
            setup = stack.enter_context(open_task_setup(settings, train=True))
        except ConfigError as error:
            raise ConfigError(
                f"{error}. Without the tasks the length of a prompt is not known: give "
                "--prompt-tokens N"
            ) from error
        return planned(settings, sizes_of(setup), setup.team, gpu)


def _without_tasks(config: RunConfig, prompt_tokens: int) -> tuple[Sizes, Team]:
    """Return the sizes and the team of a run whose tasks are not read."""
    tasks = config.train.tasks_per_step
    if tasks == "all":
        raise ConfigError(
            "train.tasks_per_step is all, but with --prompt-tokens the tasks are not read: give "
            "train.tasks_per_step=N"
        )
    prompts = dict.fromkeys(config.team, prompt_tokens)
    evaluated = (config.evaluation.tasks or 0) * config.evaluation.samples
    agents = {agent: player.policy for agent, player in config.team.items()}
    team = Team(agents, {}, frozen=config.frozen, critics=config.critic_of)
    return Sizes(shapes_of(config), prompts, tasks, evaluated), team


def planned(config: RunConfig, sizes: Sizes, team: Team, gpu: str) -> Planned:
    """Return the plan of a config on GPUs of a kind."""
    cluster = config.cluster
    if cluster is None:  # this machine need not have the GPU that the run will have
        on_gpu = {
            name: base.model_copy(update={"device": "cuda"}) for name, base in config.models.items()
        }
        config = config.model_copy(update={"models": on_gpu})
    processes = processes_of(config, sizes, team)
    apart = 0  # GPUs of the vLLM engines of each home, if they have their own
    if cluster is not None and cluster.samplers.engine == "vllm":
        engines = cluster.samplers.replicas * cluster.samplers.gpus
        apart = 0 if cluster.samplers.beside_home else engines

    def fits(kind: str) -> bool:
        return all(one.fits(GPUS[kind]) for one in processes)

    longest = max(config.decode_of(agent).max_new_tokens for agent in config.team)
    return Planned(
        gpu,
        GPUS[gpu],
        gpus=sum(one.gpus + apart for one in processes),
        processes=tuple(processes),
        least_gpus={} if cluster is None else _least_gpus(config, sizes, processes, GPUS[gpu]),
        advice="" if fits(gpu) else advice(parts_of(config, sizes)),
        fits_on=tuple(filter(fits, GPUS)),
        assumes=f"a first prompt has {max(sizes.prompts.values())} tokens, every completion "
        f"decode.max_new_tokens, up to {longest}, and no branch of a task ends early",
    )


def _least_gpus(
    config: RunConfig, sizes: Sizes, homes: Sequence[ProcessCost], gpu: int
) -> dict[str, int | None]:
    def held_by(home: ProcessCost, gpus: int) -> bool:
        memory = parts_of(config, sizes, home.residents, gpus)["total"]
        return replace(home, memory=memory).fits(gpu)

    numbers = range(1, MOST + 1)
    return {home.name: next((n for n in numbers if held_by(home, n)), None) for home in homes}
