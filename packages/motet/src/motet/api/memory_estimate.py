"""Estimates the memory of a run before any model is loaded.

The estimate uses the shapes of the models, the rollout plan, and the prompts of a few tasks.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.api.batch_sizes import Sizes, rows_played, tokens_learnt
from motet.assembly.before_loading import first_prompts
from motet.assembly.homes import homes_of
from motet.assembly.task_setup import TaskSetup, tasks_per_step_of
from motet.config.schema import RunConfig
from motet.config.sections import CriticConfig, EmbeddedModel, ModelConfig
from motet.core import Prompt, Task, Team
from motet.errors import ConfigError, SamplerFault
from motet.models import memory
from motet.models.chat_template import tokenizer_with
from motet.models.devices import is_cpu, memory_of_device, resolve_device
from motet.models.memory import Shape
from motet.models.prompts import encode
from motet.settings import ChatTemplate, Lora
from motet.trainer.components import REWARD_MODEL
from motet.user_code.timeouts import run_loop

TRIED = 8
"""Number of tasks per split whose first prompts are measured."""
CHARACTERS = 3
"""Assumed characters per token if a model has no tokenizer yet."""


@dataclass(frozen=True)
class ProcessCost:
    """A process of a run that trains, and the estimate of its memory."""

    name: str
    gpus: int
    residents: tuple[str, ...]
    """The policies, critics and reward model that live there."""
    memory: int
    """Bytes; of a home with several GPUs, on each."""
    share: float = 1.0
    """The share of the memory of its GPU that it may use."""

    def fits(self, gpu: int) -> bool:
        """Test whether it fits on GPUs with so many bytes."""
        return self.memory <= self.share * gpu


def memory_of(setup: TaskSetup) -> dict[str, int]:
    """Return the estimated bytes of each part of a run, and their sum as `total`."""
    return parts_of(setup.config, sizes_of(setup))


def processes_of(config: RunConfig, sizes: Sizes, team: Team) -> list[ProcessCost]:
    """Return the homes of a run; without a `cluster` section, its one process."""
    cluster = config.cluster
    if cluster is None:
        judges = [REWARD_MODEL] if config.reward_model is not None else []
        played = [name for name in team.policies if name not in config.endpoints]
        residents = (*played, *dict.fromkeys(team.critics.values()), *judges)
        return [ProcessCost(config.name, 1, residents, parts_of(config, sizes)["total"])]
    share = 1.0 - cluster.samplers.memory if cluster.samplers.beside_home else 1.0
    return [
        ProcessCost(
            home.name,
            home.gpus,
            home.residents,
            parts_of(config, sizes, home.residents, home.ranks)["total"],
            share,
        )
        for home in homes_of(config, team)
    ]


def parts_of(
    config: RunConfig, sizes: Sizes, only: Container[str] | None = None, ranks: int = 1
) -> dict[str, int]:
    """Return the estimated bytes of each part of a process, and their sum as `total`.

    The parts are weights, gradients and optimisers, references, critics, the larger of the memory
    for sampling and for training, and on a CPU freed memory that the process keeps.

    Args:
        only: the policies and critics that are loaded; by default all.
        ranks: the processes that divide fully trained weights. Each gathers the weights of a model
            to sample or score.
    """
    parts = dict.fromkeys(("weights", "gradients and optimizers", "references", "critics"), 0)
    at_work, valuers = 0, list(_valuers(config, only))
    kept = []  # bytes of what each policy's step is measured from
    vllm = config.cluster is not None and config.cluster.samplers.engine == "vllm"
    for model, base in config.models.items():
        mine = {
            name: policy
            for name, policy in config.policies.items()
            if policy.model == model and (only is None or name in only)
        }
        judges = [one for one in valuers if one.model == model]
        if not (mine or judges):
            continue
        shape, width = sizes.shapes[model], 4 if base.dtype == "float32" else 2
        computes = 2 if base.dtype == "bfloat16" else memory.MASTER  # bytes of a trained weight
        mean = memory.MASTER if config.train.average_share else 0
        full = sum(policy.train == "full" for policy in mine.values())
        shards = ranks if full else 1
        for name, policy in mine.items():
            kind = config.optimizer_of(name).kind
            if policy.train == "full":
                parts["weights"] += memory.held(shape.parameters, computes, shards)
                trained = memory.training(shape.parameters, kind) + mean * shape.parameters
                parts["gradients and optimizers"] += trained // shards
                kept.append(memory.MASTER * shape.parameters // shards)
            elif policy.train == "lora":
                adapter = shape.adapter(policy.lora or Lora())
                trained = memory.held(adapter, computes) + memory.training(adapter, kind)
                parts["gradients and optimizers"] += trained + mean * adapter
                kept.append(memory.MASTER * adapter)
            elif policy.snapshots is not None:
                source = config.policies[policy.snapshots.of]
                adapter = shape.adapter(source.lora or Lora()) * memory.MASTER
                each = shape.parameters * width if source.train == "full" else adapter
                parts["weights"] += (policy.snapshots.keep + 1) * each
        for judge in judges:
            parts[judge.part] = parts.get(judge.part, 0) + judge.bytes(shape, computes, ranks)
        shared = len(mine) > full or any(judge.train in ("lora", "head") for judge in judges)
        if shared:
            parts["weights"] += memory.frozen(shape, width, base.quantize)
        if config.algorithm.reset_every:
            parts["references"] += full * shape.parameters * width
        elif full and config.algorithm.needs_reference and not shared:
            parts["references"] += shape.parameters * width // shards
        playing = 0 if vllm else _playing(config, sizes, model, width)
        if shards > 1:
            playing += shape.parameters * width
        by_critics = any(judge.part == "critics" for judge in judges)
        tokens = tokens_learnt(config, sizes, model, by_critics=by_critics)
        learning = memory.learning(shape, tokens, width, base.checkpointing)
        at_work = max(at_work, playing, learning)
    if config.train.max_step_kl is not None and kept:
        one_by_one = config.schedule.kind == "sequential"
        parts["gradients and optimizers"] += max(kept) if one_by_one else sum(kept)
    parts["playing or learning"] = at_work
    if any(_on_cpu(config, base) for base in config.models.values()):
        parts["freed and kept"] = memory.freed(at_work)
    return {**parts, "total": sum(parts.values())}


@dataclass(frozen=True)
class _Valuer:
    """A critic, or the reward model."""

    part: str
    model: str
    train: str
    lora: Lora | None
    optimizer: str

    def bytes(self, shape: Shape, computes: int, ranks: int) -> int:
        """Return weights, gradients and moments of its head, and of what it trains of its trunk."""
        trunks = {"full": shape.parameters, "lora": shape.adapter(self.lora or Lora())}
        trunk, head = trunks.get(self.train, 0), shape.hidden + 1
        shards = ranks if self.train == "full" else 1
        held = memory.held(trunk, computes, shards) + memory.held(head, memory.MASTER, shards)
        return held + memory.training(trunk + head, self.optimizer) // shards


def _valuers(config: RunConfig, only: Container[str] | None) -> Iterator[_Valuer]:
    """Yield the critics and the reward model that are loaded."""
    critic, reward = config.critic or CriticConfig(), config.reward_model
    for name in dict.fromkeys(config.critic_of.values()):
        if only is None or name in only:
            model = config.model_of_critic(name)
            assert model is not None
            kind = config.critic_optimizer.kind
            yield _Valuer("critics", model, critic.train, critic.lora, kind)
    if reward is not None and (only is None or REWARD_MODEL in only):
        model, kind = config.model_of_reward, reward.optimizer.kind
        assert model is not None
        yield _Valuer("reward model", model, reward.train, reward.lora, kind)


def _playing(config: RunConfig, sizes: Sizes, model: str, width: int) -> int:
    """Return the bytes that sampling needs besides the weights."""
    shape, base = sizes.shapes[model], config.models[model]
    needed = memory.playing(shape, *rows_played(config, sizes, model), width)
    if _on_cpu(config, base) and base.quantize == "none":
        needed += memory.prepacked(shape, width)
    return needed


def _on_cpu(config: RunConfig, base: ModelConfig) -> bool:
    if config.cluster is not None:
        return config.cluster.learners.gpus == 0
    return base.device == "cpu" or (base.device == "auto" and is_cpu(resolve_device("auto")))


# ------------------------------------------------------------ sizes


def sizes_of(setup: TaskSetup) -> Sizes:
    """Return the sizes of a run: shapes of its models, and prompts of a few of its tasks."""
    evaluated = len(setup.tasks.get("eval", ())) * setup.config.evaluation.samples
    prompts, tasks = prompt_lengths(setup), tasks_per_step_of(setup)
    return Sizes(shapes_of(setup.config), prompts, tasks, evaluated)


def shapes_of(config: RunConfig) -> dict[str, Shape]:
    """Return the shape of every model. Raises: ConfigError if one has no configuration."""
    shapes = {}
    for name, base in config.models.items():
        source = base.embedded if isinstance(base, EmbeddedModel) else base.path
        shapes[name] = memory.shape_of(source)
    return shapes


def prompt_lengths(setup: TaskSetup) -> dict[str, int]:
    """Return the token count of each agent's longest first prompt over a few tasks.

    If no prompt can be made, the maximum completion length is used instead. Errors of the
    environment are ignored here, because they are reported when the task is played.
    """
    config = setup.config
    prompts: dict[str, list[Prompt]] = {agent: [] for agent in config.team}
    for task in (task for tasks in setup.tasks.values() for task in _spread(tasks)):
        try:
            made = run_loop(first_prompts(setup, task))
        except Exception:  # noqa: BLE001
            continue
        for agent in made:
            prompts[agent].append(made[agent])
    words: dict[str | None, PreTrainedTokenizerBase | None] = {
        model: _tokenizer(base.path, base.template) for model, base in config.models.items()
    }
    lengths = {}
    for agent, asked in prompts.items():
        of = words.get(config.policies[setup.team.policy_of(agent, 0)].model)
        lengths[agent] = max(
            (_length(of, prompt) for prompt in asked),
            default=config.decode_of(agent).max_new_tokens,
        )
    return lengths


def _spread(tasks: Sequence[Task]) -> Sequence[Task]:
    return [tasks[place] for place in range(0, len(tasks), max(1, len(tasks) // TRIED))][:TRIED]


def _tokenizer(source: str | None, template: ChatTemplate) -> PreTrainedTokenizerBase | None:
    try:
        return None if source is None else tokenizer_with(source, template)[0]
    except ConfigError:
        return None


def _length(words: PreTrainedTokenizerBase | None, prompt: Prompt) -> int:
    """Return the number of tokens of a prompt."""
    try:
        if words is not None:
            return len(encode(words, prompt))
    except SamplerFault:
        pass
    text = prompt if isinstance(prompt, str) else "".join(message.content for message in prompt)
    return len(text) // CHARACTERS + 1


# ------------------------------------------------------------ warning

KNOBS = {
    "weights": "dtype: bfloat16 or quantize of a model, or a smaller model",
    "gradients and optimizers": "policies.NAME.train=lora, optimizer.kind=adamw_8bit, or "
    "train.max_step_kl=null",
    "references": "policies.NAME.train=lora, whose reference is the base itself",
    "critics": "critic.train=head or lora",
    "reward model": "reward_model.train=lora or head",
    "playing or learning": "less train.token_budget, train.rows_per_batch or "
    "decode.max_new_tokens, or models.NAME.checkpointing=true",
}
"""Part of the estimate -> the settings that need less of it."""


def memory_warnings(config: RunConfig, parts: Mapping[str, int]) -> list[str]:
    """Return a warning if the estimate is more than the memory of the device.

    Only if all models are on one device of this process. The largest part decides which settings
    are named.
    """
    if config.cluster is not None:
        return []
    devices = {resolve_device(base.device) for base in config.models.values()}
    most = memory_of_device(next(iter(devices))) if len(devices) == 1 else None
    if most is None or parts["total"] <= most:
        return []
    return [
        f"the run needs about {parts['total'] / 2**30:.1f} GiB, but {next(iter(devices))} has "
        f"{most / 2**30:.1f} GiB. {advice(parts)}"
    ]


def advice(parts: Mapping[str, int]) -> str:
    """Return which settings need less of the largest part."""
    largest = max((part for part in parts if part in KNOBS), key=lambda part: parts[part])
    return f"Most of it is {largest}: use {KNOBS[largest]}"
