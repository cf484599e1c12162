"""Keys that mean something only together: words of the published config -> values at places of Motet's.

Each function joins one group of keys (`Joins` in the table) and yields what comes of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.experiments.benchmarks import BENCHMARKS, Benchmark, inferred
from motet.experiments.words import Placed, Said, Words
from motet.settings import Plan

TURNS, GATHERED, REFERENCE_KL = 1, 1, 0.1
"""The trainers' own defaults, where no key says num_turns, rollout_buffer_size or reference_kl_coef."""


# ---------------------------------------------------------------------------------------------------- what is played


def data(words: Words) -> Iterator[Placed]:
    """A name that exists as a path is a path. A file is one split, whatever it is called, and slices of it count."""
    name = words["dataset.name"]
    place = "path" if Path(name.value).exists() else "name"
    for split, word in (("train", "dataset.train_split"), ("eval", "dataset.eval_split")):
        if split == "train" or words.said(word):
            yield Placed(f"data.{split}.{place}", name.value, name)
            yield Placed(f"data.{split}.split", words[word].value, words[word])


def benchmark_of(words: Words) -> Benchmark:
    """Raises: ConfigError for a data set that is none of the published ones and does not say what it is like."""
    name = words["dataset.name"]
    kinds = ", ".join(BENCHMARKS)
    if words.said("dataset.type"):
        chosen = words["dataset.type"]
        if chosen.value.lower() not in BENCHMARKS:
            raise chosen.complaint(f"got {chosen.value!r}, expected one of {kinds}")
        return BENCHMARKS[chosen.value.lower()]
    kind = inferred(name.value)
    if kind is None:
        raise name.complaint(f"{name.value!r} does not say what it holds: set dataset.type to one of {kinds}")
    return BENCHMARKS[kind]


def samples(words: Words, otherwise: int) -> tuple[int, ...]:
    """num_generations answers at each of num_turns turns; `otherwise` where no key says how many."""
    turns: int = words.value("*.num_turns", TURNS)
    return (words.value("*.num_generations", otherwise),) * turns


def plan_of(words: Words, samples: tuple[int, ...]) -> Plan:
    expand = words.value("*.handoff", "all")
    return Plan(samples=samples, pairing=words.value("*.joint_mode", "aligned"), expand=expand, max_nodes=10**9)


def handoff(words: Words) -> Iterator[Placed]:
    """One joint action of a Round is handed on, and its siblings are credited with what came of it."""
    if words.said("*.handoff"):
        said = words["*.handoff"]
        yield Placed("rollout.expand", said.value, said)
        yield Placed("algorithm.pruned", "lend", said)


def turn_weights(words: Words, turns: int) -> Iterator[Placed]:
    word = "*.turn_gradient_weights"
    if words.said(word):
        weights = words[word]
        listed = weights.value if isinstance(weights.value, list) else [weights.value]
        if len(listed) != turns:
            raise weights.complaint(f"got {len(listed)} weights for {turns} turn(s), expected one each")
        yield Placed("algorithm.turn_weights", listed, weights)


# ---------------------------------------------------------------------------------------------------- who plays


@dataclass(frozen=True)
class Base:
    path: str
    device: str | None


def players(words: Words, benchmark: Benchmark, count: int) -> Iterator[Placed]:
    """Every agent with a policy of its own name, trained in full. Models that are alike are loaded from one place."""
    options, agents = _shared_out(words, benchmark, count)
    for option, value in options.items():
        yield Placed(f"environment.{option}", value)
    bases = dict(zip(agents, bases_of(words, len(agents)), strict=True))
    names = dict.fromkeys(agents, "base") if len(set(bases.values())) == 1 else {agent: agent for agent in agents}
    for agent, model in names.items():
        yield Placed(f"models.{model}.path", bases[agent].path, _origin_of_models(words))
        if bases[agent].device is not None:
            yield Placed(f"models.{model}.device", bases[agent].device, words["*.agent_devices"])
        if words.said("model.model_kwargs.torch_dtype"):
            said = words["model.model_kwargs.torch_dtype"]
            yield Placed(f"models.{model}.dtype", said.value, said)
        yield Placed(f"policies.{agent}.model", model)
        yield Placed(f"policies.{agent}.train", "full")
        yield Placed(f"team.{agent}.policy", [agent])


def agent_count(words: Words, otherwise: int) -> int:
    if words.said("*.num_agents"):
        return int(words["*.num_agents"].value)
    return len(words["agents"].value) if words.said("agents") else otherwise


def _shared_out(words: Words, benchmark: Benchmark, count: int) -> tuple[Mapping[str, Any], Sequence[str]]:
    try:
        return benchmark.shared_out(count)
    except ValueError as error:
        said = words["*.num_agents" if words.said("*.num_agents") else "agents"]
        raise said.complaint(f"got {count}, {error}") from error


def _origin_of_models(words: Words) -> Said:
    return words["agents"] if words.said("agents") else words["model.name"]


def bases_of(words: Words, count: int) -> list[Base]:
    names = words["agents"].value if words.said("agents") else (words["model.name"].value,) * count
    if len(names) != count:
        raise words["agents"].complaint(f"got {len(names)} models for {count} agent(s), expected one each")
    return [Base(name, device) for name, device in zip(names, devices_of(words, "*.agent_devices", count), strict=True)]


def devices_of(words: Words, word: str, count: int) -> Sequence[str | None]:
    """What `word` says for each of `count`; None each where it was not said."""
    if not words.said(word):
        return [None] * count
    said = words[word]
    wanted = count if words.value("*.parallel_training", False) else 1
    if len(said.value) != wanted:
        more = ", or parallel_training: mp" if count > 1 else ""
        why = "one per agent under parallel_training: mp" if wanted > 1 else f"one{more}"
        raise said.complaint(f"got {len(said.value)} devices, expected {why}")
    return said.value if wanted > 1 else list(said.value) * count


# ---------------------------------------------------------------------------------------------------- how they learn


def tasks_of(words: Words, plan: Plan, agents: int, *, critic: bool) -> int:
    """The trainers gather rollout_buffer_size Rounds (with a critic, samples of one agent) and step on train_batch_size of them
    at a time, though only the first of those steps is on policy. Here a step plays whole tasks, as many as make that many, and
    at least one; every optimiser step is on policy."""
    gathered = words.value("*.rollout_buffer_size", GATHERED)
    stepped = words.value("*.train_batch_size", gathered)
    rounds = plan.rounds(agents)
    of_one_task = sum(count * each if critic else count for count, each in zip(rounds, plan.samples, strict=True))
    least = words.value("*.per_device_train_batch_size", 1)
    return int(max(least, min(gathered, stepped) // of_one_task))


def portions(words: Words, tasks: int) -> Iterator[Placed]:
    """A step is `tasks` tasks; eval_interval counts tasks."""
    epochs = words["*.num_train_epochs"]
    yield Placed("train.epochs", epochs.value, epochs)
    yield Placed("train.tasks_per_step", tasks)
    if words.said("*.eval_interval"):
        said = words["*.eval_interval"]
        yield Placed("evaluation.every", said.value and max(1, said.value // tasks), said)


def divergence(words: Words) -> Iterator[Placed]:
    """Off at 0, as published."""
    enabled = words.value("*.reference_kl_enabled", False)
    if enabled and words.value("*.beta"):
        raise words["*.beta"].complaint(
            "a divergence in the loss, and reference_kl_enabled one in the reward: keep one"
        )
    if words.value("*.beta"):
        said = words["*.beta"]
        yield Placed("algorithm.kl_in", "loss", said)
        yield Placed("algorithm.kl_estimator", "k3", said)
        yield Placed("algorithm.kl_coefficient", said.value, said)
    elif enabled:
        said = words["*.reference_kl_enabled"]
        coefficient = words.value("*.reference_kl_coef", REFERENCE_KL)
        yield Placed("algorithm.kl_in", "reward", said)
        yield Placed("algorithm.kl_coefficient", coefficient, said)


def clipping(words: Words) -> Iterator[Placed]:
    if words.said("*.epsilon_clip"):
        said = words["*.epsilon_clip"]
        yield Placed("algorithm.policy_loss", "clipped_surrogate", said)
        yield Placed("algorithm.clip_low", said.value, said)
        yield Placed("algorithm.clip_high", said.value, said)


# ---------------------------------------------------------------------------------------------------- between turns

EXPERTS = {
    "deepseek": ("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "qwen": ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "claude": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
}
"""How an expert's name begins -> the address of those who serve it, and the variable with their key."""
EXPERT = "deepseek-coder"
"""The trainers' default."""


def between_turns(words: Words) -> Iterator[Placed]:
    """original_prompt and previous_response are of the time when a later prompt held these two and no history."""
    slice_ = "external.sandbox_slice"
    if words.value(slice_) == "all":  # then nothing is kept back that could grade
        yield Placed("environment.feedback.grade_shown", True, words[slice_])
    if words.said("external.memory_mode"):
        yield Placed("environment.history", words["external.memory_mode"].value, words["external.memory_mode"])
    for word, option in (
        ("external.original_prompt", "restate_problem"),
        ("external.previous_response", "restate_answer"),
    ):
        if words.said(word) and words.value("external.memory_mode", "none") == "none":
            yield Placed("environment.history", "none", words[word])
            yield Placed(f"environment.feedback.{option}", words[word].value, words[word])
    if words.value("external.mode") == "expert_edits":
        yield from _expert(words)


def _expert(words: Words) -> Iterator[Placed]:
    said = words["external.expert_model" if words.said("external.expert_model") else "external.mode"]
    model = words.value("external.expert_model", EXPERT)
    yield Placed("expert.model", model, said)
    for beginning, (address, variable) in EXPERTS.items():
        if model.startswith(beginning):
            yield Placed("expert.base_url", address, said)
            yield Placed("expert.key_variable", variable, said)


# ---------------------------------------------------------------------------------------------------- what does nothing


def idle(words: Words) -> dict[str, str]:
    """Words that go nowhere because of another one -> what the person is told of it."""
    found: dict[str, str] = {}
    if not words.value("reward_processor.enabled", True):
        processed = [word for word, said in words.of.items() if said.key.startswith("reward_processor.")]
        found |= dict.fromkeys(processed, "reward_processor.enabled is false, so rewards are as they are")
    if not words.value("wandb.enabled", False):
        told = "wandb is off: wandb.enabled=true turns it on, with an entity of your own, and needs pip install 'motet[wandb]'"
        found |= dict.fromkeys([word for word in words.of if word.startswith("wandb.")], told)
    if words.said("*.reference_kl_coef") and not words.value("*.reference_kl_enabled", False):
        found["*.reference_kl_coef"] = f"{words['*.reference_kl_coef'].key} waits for reference_kl_enabled: true"
    if words.said("external.expert_model") and words.value("external.mode") != "expert_edits":
        said = words["external.expert_model"]
        found["external.expert_model"] = f"{said.key} is asked under external.mode: expert_edits only"
    if words.value("external.memory_mode", "none") != "none":
        for word in ("external.original_prompt", "external.previous_response"):
            if words.value(word, True) is False:
                found[word] = (
                    f"{words[word].key} is for external.memory_mode: last; a full history holds all that was said"
                )
    if words.said("agents") and words.said("model.name"):
        found["model.name"] = f"{words['model.name'].key} gives way to agents"
    return found
