"""plan: which GPUs a run needs, and the expected seconds of a step, without a model or a GPU."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from motet.api.memory_estimate import prompt_lengths
from motet.api.setup import ConfigLike, read_config
from motet.assembly.task_setup import open_task_setup, tasks_per_step_of
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.models import memory
from motet.models.memory import Shape
from motet.planning import throughput
from motet.planning.gpus import Gpu, gpu_named
from motet.planning.homes import home_needs
from motet.planning.layouts import (
    BESIDE_SHARE,
    ENGINE_SHARE,
    USABLE,
    HomeNeeds,
    LaidOut,
    Layout,
    best_layouts,
    lay_out,
)
from motet.planning.sizes import guessed_shape
from motet.user_code.blocking import blocking
from motet.user_code.looking import looking
from motet.user_code.plugins import look_at


@dataclass(frozen=True)
class Planned:
    """The layouts of a run on some GPUs, fastest first, and what the figures assume."""

    gpu: Gpu
    gpus: int
    per_node: int
    homes: tuple[HomeNeeds, ...]
    options: tuple[LaidOut, ...]
    """The fastest layout of each kind. Those that do not fit come last."""
    configured: LaidOut | None
    """The layout of the config's `cluster` section."""
    assumptions: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values. Memory is in bytes, times are in seconds."""
        return {
            "gpu": asdict(self.gpu),
            "gpus": self.gpus,
            "gpus_per_node": self.per_node,
            "homes": [
                {
                    "name": home.name,
                    "parameters": home.shape.parameters,
                    "trained": home.trained,
                    "adapter": home.adapter,
                    "work": [asdict(work) for work in home.works],
                }
                for home in self.homes
            ],
            "options": [_plain(one) for one in self.options],
            "configured": None if self.configured is None else _plain(self.configured),
            "assumptions": list(self.assumptions),
        }


def _plain(made: LaidOut) -> dict[str, Any]:
    return {**asdict(made), "name": made.layout.name, "fits": made.fits}


def configured_layout(config: RunConfig) -> Layout | None:
    """Return the layout of the `cluster` section, if there is one."""
    cluster, lag = config.cluster, config.train.max_lag
    if cluster is None:
        return None
    learners = max([1, cluster.learners.gpus, *cluster.learners.gpus_of.values()])
    if cluster.samplers.engine == "own":
        return Layout("own", learners)
    beside = cluster.samplers.memory if cluster.samplers.beside_home else 0.0
    return Layout("vllm", learners, cluster.samplers.replicas, lag, beside=beside)


@blocking
def plan(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    gpus: int = 8,
    gpu: str = "h100-80",
    gpus_per_node: int = 8,
    parameters: Mapping[str, float] | float | None = None,
    prompt_tokens: int | None = None,
    completion_tokens: int | None = None,
) -> Planned:
    """Compute on paper how a run uses GPUs and how long a step takes. No model is loaded.

    If `config` is a path, no code that it names is loaded either (`motet.user_code.looking`).

    Args:
        gpu: a name of `motet.planning.gpus.GPUS`.
        parameters: the number of parameters of each model that is not a folder here, or one number
            for all of them.
        prompt_tokens: tokens of a first prompt. Without it, the first prompts of a few tasks are
            measured.
        completion_tokens: the mean length of a completion. The default is decode.max_new_tokens.

    Raises: ConfigError for a wrong config, an unknown GPU, or sizes that cannot be known.
    """
    with ExitStack() as stack:
        if isinstance(config, str | Path):
            stack.enter_context(looking())
        settings = read_config(config, overrides)
        return _planned(
            settings,
            gpu_named(gpu),
            (gpus, gpus_per_node),
            parameters,
            prompt_tokens,
            completion_tokens,
        )


def _planned(
    settings: RunConfig,
    kind: Gpu,
    counts: tuple[int, int],
    parameters: Mapping[str, float] | float | None,
    prompt_tokens: int | None,
    completion_tokens: int | None,
) -> Planned:
    gpus, gpus_per_node = counts
    for name, value in (("--gpus", gpus), ("--gpus-per-node", gpus_per_node)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; expected 1 or more")
    shapes, guessed = _shapes(settings, parameters)
    prompts, tasks, evaluated = _prompts(settings, prompt_tokens)
    homes = home_needs(settings, shapes, prompts, tasks, completion_tokens, evaluated)
    written = configured_layout(settings)
    return Planned(
        kind,
        gpus,
        gpus_per_node,
        tuple(homes),
        best_layouts(homes, gpus, kind, gpus_per_node),
        None if written is None else lay_out(homes, written, kind, gpus_per_node),
        tuple(_assumptions(settings, kind, homes, guessed, prompts, completion_tokens)),
    )


def expected(config: RunConfig) -> Planned | None:
    """Return the plan of a config's own layout, on GPUs of the default kind.

    None without a `cluster` section, and for homes on the CPU, of which a plan knows nothing.
    """
    cluster = config.cluster
    return plan(config, gpus=1) if cluster is not None and cluster.learners.gpus else None


def _shapes(
    config: RunConfig, parameters: Mapping[str, float] | float | None
) -> tuple[dict[str, Shape], list[str]]:
    """Return the shape of each model, and the models whose shape is a guess."""
    shapes: dict[str, Shape] = {}
    guessed = []
    if isinstance(parameters, Mapping) and (unknown := set(parameters) - set(config.models)):
        raise ConfigError(
            f"--parameters names {', '.join(sorted(unknown))}; models are: "
            f"{', '.join(config.models)}"
        )
    for name, base in config.models.items():
        said = parameters.get(name) if isinstance(parameters, Mapping) else parameters
        if base.path is not None and said is not None and look_at(Path(base.path)) != "folder":
            shapes[name] = guessed_shape(said)
            guessed.append(name)
            continue
        source = base.embedded or base.path
        assert source is not None
        try:
            shapes[name] = memory.shape_of(source)
        except ConfigError as error:
            raise ConfigError(
                f"{error}. Without its config the size of models.{name} is not known: give "
                f"--parameters {name}=7e9 with its number of parameters"
            ) from error
    return shapes, guessed


def _prompts(config: RunConfig, prompt_tokens: int | None) -> tuple[dict[str, int], int, int]:
    """Return the tokens of each agent's first prompt, the tasks per step, and the games of an
    evaluation. Without the tasks, only those of evaluation.tasks are known."""
    tasks = config.train.tasks_per_step
    if prompt_tokens is not None and tasks != "all":
        known = (config.evaluation.tasks or 0) * config.evaluation.samples
        return dict.fromkeys(config.team, prompt_tokens), tasks, known
    try:
        with open_task_setup(config, train=True) as setup:
            lengths = prompt_lengths(setup)
            if prompt_tokens is not None:
                lengths = dict.fromkeys(config.team, prompt_tokens)
            evaluated = len(setup.tasks.get("eval", ())) * config.evaluation.samples
            return lengths, tasks_per_step_of(setup), evaluated
    except ConfigError as error:
        hint = "--prompt-tokens N" + (" and train.tasks_per_step=N" if tasks == "all" else "")
        raise ConfigError(
            f"{error}. Without the tasks the length of a prompt is not known: give {hint}"
        ) from error


def _assumptions(
    config: RunConfig,
    gpu: Gpu,
    homes: Sequence[HomeNeeds],
    guessed: Sequence[str],
    prompts: Mapping[str, int],
    completion_tokens: int | None,
) -> list[str]:
    """Return what the figures assume, a line each."""
    largest = max(homes, key=lambda home: home.shape.parameters)
    rate = throughput.sampling_rate(gpu, largest.shape.parameters)
    answers = {config.decode_of(agent).max_new_tokens for agent in config.team}
    lines = [
        f"{gpu.name}: {gpu.memory / 1e9:.0f} GB, {gpu.bandwidth / 1e12:.2f} TB/s, "
        f"{gpu.flops / 1e12:.0f} TFLOP/s in bfloat16 ({gpu.source})",
        f"vLLM samples {rate:,.0f} tokens/s on one GPU with {largest.name}, waiting for the "
        f"longest completions included; Motet's own sampler {throughput.OWN_SAMPLER:.0%} of that",
        f"learning reaches {throughput.MFU:.0%} of the FLOP/s; fitted to one published run "
        "(89 s computed, 97.7 s measured)",
        f"a first prompt has {max(prompts.values())} tokens, a completion "
        + (
            f"{completion_tokens} on average"
            if completion_tokens is not None
            else f"{max(answers)}, the longest (--completion-tokens sets the mean)"
        ),
        "no branch of a task ends early; all agents act in the same turn; the environment's own "
        "time is not counted",
        f"vLLM takes {ENGINE_SHARE:.0%} of its GPU, or {BESIDE_SHARE:.0%} beside a home unless "
        f"the config says otherwise; learners take at most {USABLE:.0%} of theirs",
    ]
    if largest.shape.parameters < throughput.SMALL:
        lines.append(
            f"models below {throughput.SMALL / 1e9:.1f}B parameters take longer than this, because "
            "launching kernels takes more time than computing"
        )
    for name in guessed:
        lines.append(f"models.{name}: layers and widths are guessed from --parameters")
    for name, base in config.models.items():
        if base.dtype == "float32":
            lines.append(
                f"models.{name} computes in float32: the seconds are those of bfloat16, set "
                f"models.{name}.dtype=bfloat16"
            )
    return lines
