"""Estimates the memory of a run before any model is loaded.

The estimate uses the shapes of the models, the rollout plan, and the prompts of a few tasks.
"""

from collections.abc import Container, Mapping, Sequence

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.assembly.first_prompts import first_prompts
from motet.assembly.homes import HomePlan
from motet.assembly.task_setup import TaskSetup, tasks_per_step_of
from motet.config.schema import RunConfig
from motet.config.sections import CriticConfig, ModelConfig
from motet.core import Prompt, Task
from motet.errors import ConfigError, SamplerFault
from motet.models import memory
from motet.models.chat_template import tokenizer_with
from motet.models.devices import is_cpu, memory_of_device, resolve_device
from motet.models.prompts import encode
from motet.planning.batches import rows_played, tokens_learnt
from motet.settings import ChatTemplate, Lora, RewardModel
from motet.trainer.components import REWARD_MODEL
from motet.user_code.timeouts import run_loop

TRIED = 8
"""Number of tasks per split whose first prompts are measured."""
LASTING = ("weights", "gradients and optimizers", "references", "critics", "reward model")
"""The parts that a process holds all the time."""
CHARACTERS = 3
"""Assumed characters per token if a model has no tokenizer yet."""


def memory_of(setup: TaskSetup, only: Container[str] | None = None) -> dict[str, int]:
    """Return the estimated bytes of each part, and their sum as `total`.

    `only`: the policies and critics that are loaded; by default all.

    The parts are weights, gradients and optimisers, references, critics, the larger of the memory
    for sampling and for training, and on a CPU freed memory that the process keeps.
    """
    config = setup.config
    parts = dict.fromkeys(("weights", "gradients and optimizers", "references", "critics"), 0)
    at_work = 0
    critic, valued = config.critic or CriticConfig(), _models_of_critics(config, only)
    loaded = {
        name: policy for name, policy in config.policies.items() if only is None or name in only
    }
    judges = config.reward_model is not None and (only is None or REWARD_MODEL in only)
    prompts, tasks = prompt_lengths(setup), tasks_per_step_of(setup)
    evaluated = len(setup.tasks.get("eval", ())) * config.evaluation.samples
    for model, base in config.models.items():
        mine = [policy for policy in loaded.values() if policy.model == model]
        if not (mine or model in valued or (judges and config.model_of_reward == model)):
            continue
        source = base.embedded or base.path
        assert source is not None
        shape = memory.shape_of(source)
        width = 4 if base.dtype == "float32" else 2
        full = sum(policy.train == "full" for policy in mine)
        computes = 2 if base.dtype == "bfloat16" else memory.MASTER  # bytes of a trained weight
        parts["weights"] += full * memory.held(shape.parameters, computes)
        on_shared = critic.train in ("lora", "head") and model in valued
        parts["weights"] += (
            memory.frozen(shape, width, base.quantize) if len(mine) > full or on_shared else 0
        )
        trunk = {"full": shape.parameters, "lora": shape.adapter(critic.lora or Lora())}
        grown = trunk[critic.train] if critic.train in trunk else 0
        judged = memory.held(grown, computes) + memory.held(shape.hidden + 1, memory.MASTER)
        judged += memory.training(grown + shape.hidden + 1, config.critic_optimizer.kind)
        parts["critics"] += valued.count(model) * judged
        if judges and config.reward_model is not None and config.model_of_reward == model:
            parts["reward model"] = _reward_model(config.reward_model, shape, computes)
        parts["gradients and optimizers"] += sum(
            _trained(config, name, shape, computes)
            for name, policy in loaded.items()
            if policy.model == model
        )
        if full and config.algorithm.needs_reference and len(mine) == full and not on_shared:
            parts["references"] += shape.parameters * width
        length = max(
            prompts[agent] + config.decode_of(agent).max_new_tokens for agent in config.team
        )
        playing = memory.playing(
            shape, rows_played(config, tasks, evaluated, model, length), length, width
        )
        if _on_cpu(base) and base.quantize == "none":
            playing += memory.prepacked(shape, width)
        tokens = tokens_learnt(config, tasks, prompts, model, by_critics=model in valued)
        at_work = max(at_work, playing, memory.learning(shape, tokens, width, base.checkpointing))
    parts["playing or learning"] = at_work
    if any(_on_cpu(base) for base in config.models.values()):
        parts["freed and kept"] = memory.freed(at_work)
    return {**parts, "total": sum(parts.values())}


def memory_of_process(setup: TaskSetup, home: HomePlan) -> int:
    """Return the estimated bytes of each process of a home.

    Several processes divide what lasts, if the home has a full policy, and each gathers the weights
    of a model to sample or score.
    """
    parts = memory_of(setup, home.residents)
    if home.ranks == 1 or not home.full:
        return parts["total"]
    base = setup.config.models[home.model]
    source = base.embedded or base.path
    assert source is not None
    gathered = memory.shape_of(source).parameters * (4 if base.dtype == "float32" else 2)
    lasting = sum(parts[kind] for kind in LASTING if kind in parts)
    return parts["total"] - lasting + lasting // home.ranks + gathered


def _on_cpu(base: ModelConfig) -> bool:
    return base.device == "cpu" or (base.device == "auto" and is_cpu(resolve_device("auto")))


def _trained(config: RunConfig, name: str, shape: memory.Shape, computes: int) -> int:
    """Return the bytes of the gradients and moments of a policy, and of its adapter."""
    policy = config.policies[name]
    if policy.train == "frozen":
        return 0
    full = policy.train == "full"
    moved = shape.parameters if full else shape.adapter(policy.lora or Lora())
    own = 0 if full else memory.held(moved, computes)
    return own + memory.training(moved, config.optimizer_of(name).kind)


def _reward_model(wanted: RewardModel, shape: memory.Shape, computes: int) -> int:
    """Return the bytes of the weights, gradients and moments of the reward model."""
    trunk = {"full": shape.parameters, "lora": shape.adapter(wanted.lora or Lora()), "head": 0}
    grown = trunk[wanted.train]
    held = memory.held(grown, computes) + memory.held(shape.hidden + 1, memory.MASTER)
    return held + memory.training(grown + shape.hidden + 1, wanted.optimizer.kind)


def _models_of_critics(config: RunConfig, only: Container[str] | None) -> list[str]:
    """Return the model of every critic that is loaded."""
    critics = {
        agent: name for agent, name in config.critic_of.items() if only is None or name in only
    }
    first = {name: agent for agent, name in reversed(list(critics.items()))}
    said = config.critic.model if config.critic is not None else None
    return [said or config.policies[config.team[agent].policy[0]].model for agent in first.values()]


# ------------------------------------------------------------ prompts


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
    words = {model: _tokenizer(base.path, base.template) for model, base in config.models.items()}
    lengths = {}
    for agent, asked in prompts.items():
        of = words[config.policies[setup.team.policy_of(agent, 0)].model]
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
    "gradients and optimizers": "policies.NAME.train=lora, or optimizer.kind=adamw_8bit",
    "references": "policies.NAME.train=lora, whose reference is the base itself",
    "critics": "critic.train=head or lora",
    "reward model": "reward_model.train=lora or head",
    "playing or learning": "less train.token_budget, train.rows_per_batch or "
    "decode.max_new_tokens, or models.NAME.checkpointing=true",
}
"""Part of the estimate -> the settings that need less of it."""


def memory_warnings(setup: TaskSetup, parts: Mapping[str, int]) -> list[str]:
    """Return a warning if the estimate is more than the memory of the device.

    Only if all models are on one device of this process. The largest part decides which settings
    are named.
    """
    if setup.config.cluster is not None:
        return []
    devices = {resolve_device(base.device) for base in setup.config.models.values()}
    most = memory_of_device(next(iter(devices))) if len(devices) == 1 else None
    if most is None or parts["total"] <= most:
        return []
    largest = max((part for part in parts if part in KNOBS), key=lambda part: parts[part])
    return [
        f"the run needs about {parts['total'] / 2**30:.1f} GiB, but {next(iter(devices))} has "
        f"{most / 2**30:.1f} GiB. Most of it is {largest}: use {KNOBS[largest]}"
    ]
