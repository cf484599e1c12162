"""MAPoRL's published keys that mean something only together: words -> values at places of Motet's config."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.environments.debate.game import Debate
from motet.experiments.words import Placed, Words

WARMUP, BLOCK, EPOCHS, ACCUMULATED, MINIBATCHES = 20, 40, 3, 1, 8
"""The trainer's own defaults, where no key says update_initial_turn, turn_based_training_num, num_train_epochs,
gradient_accumulation_steps or num_mini_batches."""
CONSENSUS = {"criteria_for_consensus_percentage": 0.8, "criteria_for_consensus_reward_threshold": 0.7}
DEFAULTS: Mapping[str, Any] = {
    "algorithm.name": "maporl",
    "environment.name": "debate",
    "decode.temperature": 0.7,
    "decode.max_new_tokens": 300,
    "optimizer.learning_rate": 1e-5,
    "optimizer.schedule": "linear",
    "optimizer.final_fraction": 0.1,
    "critic.coefficient": 0.1,
}
"""What holds where no key says otherwise. Generation has a temperature per model there, .7 for most."""


@dataclass(frozen=True)
class Sources:
    """Where the rows of a data set are."""

    name: str
    train: str
    eval: str
    subset: str | None = None


DATASETS: Mapping[str, Sources] = {
    "gsm8k": Sources("openai/gsm8k", "train", "test", subset="main"),
    "tinygsm": Sources("TinyGSM/TinyGSM", "train[:100000]", "train[100000:101000]"),
    "anli": Sources("facebook/anli", "train_r3", "test_r3"),
}
"""dataset_name in small letters, which is also what the environment calls it."""


def placed(words: Words) -> Iterator[Placed]:
    """Raises: ConfigError for what is missing, and for what contradicts itself."""
    yield from (Placed(to, value) for to, value in DEFAULTS.items())
    yield from _data(words)
    yield from _players(words)
    yield from _scores(words)
    yield from _consensus(words)
    yield from _schedule(words)
    yield from _portions(words)
    yield from _learning(words)
    yield from _report(words)


def folder(words: Words, otherwise: Path) -> Path:
    """The run folder: one for each setting of the incentives, as published."""
    named = Path(words.value("output_dir", otherwise))
    values = "_".join(f"{value:g}" for value in words.value("alpha", ()))
    return named.with_name(f"{named.name}_alpha_{values}") if values else named


# ---------------------------------------------------------------------------------------------------- what is played


def _data(words: Words) -> Iterator[Placed]:
    said = words["dataset_name"]
    if said.value not in DATASETS:
        raise said.complaint(f"got {said.value!r}, expected one of {', '.join(DATASETS)}")
    sources = DATASETS[said.value]
    yield Placed("environment.dataset", said.value, said)
    for part, split in (("train", sources.train), ("eval", sources.eval)):
        yield Placed(f"data.{part}.name", sources.name, said)
        yield Placed(f"data.{part}.split", split, said)
        if sources.subset is not None:
            yield Placed(f"data.{part}.subset", sources.subset, said)


def _scores(words: Words) -> Iterator[Placed]:
    labels = words.value("no_reward_model", False)
    yield Placed("environment.score", "exact" if labels else "verifier", words.origin("no_reward_model"))
    if words.value("reward_feedback", False):
        said = words["reward_feedback"]
        if labels:
            raise said.complaint(
                "agents would be told who is right: drop it, or say motet.environment.show_scores=exact"
            )
        yield Placed("environment.show_scores", "verifier", said)
    if not labels and words.said("server_dict"):
        said = words["server_dict"]
        asked = dict.fromkeys(_models(words, "base_model", "another_policy_base_model"))
        missing = [model for model in asked if model not in said.value]
        if missing:
            raise said.complaint(f"has no address for {missing[0]}")
        addresses = {said.value[model] for model in asked}
        if len(addresses) > 1:
            raise said.complaint("names several verifiers for this team; expected one address: one scores everybody")
        yield Placed("verifier.base_url", addresses.pop(), said)
    if words.value("non_box_penalty", False) and words.said("penalty_reward_value"):
        said = words["penalty_reward_value"]
        yield Placed("environment.format_penalty", -said.value, said)


def _consensus(words: Words) -> Iterator[Placed]:
    """The published comparisons are strict: more than the share of the agents, and never from 1 on."""
    share, score = (words.value(word, otherwise) for word, otherwise in CONSENSUS.items())
    said = next((words[word] for word in CONSENSUS if words.said(word)), None)
    if said is not None and share < 1 and score < 1:
        agents = words["agent_num"].value
        yield Placed("environment.consensus.share", (int(share * agents) + 1) / agents, said)
        yield Placed("environment.consensus.score", score, said)


# ---------------------------------------------------------------------------------------------------- who plays


def _models(words: Words, first: str, others: str) -> list[str]:
    """The model of each agent."""
    count = words["agent_num"].value
    if not words.value("diff_model_training", False):
        return [words[first].value] * count
    listed = words[others]
    if len(listed.value) != count - 1:
        raise listed.complaint(
            f"got {len(listed.value)} models, expected {count - 1}: one for each agent but the first"
        )
    return [words[first].value, *listed.value]


def _paths(words: Words) -> list[str]:
    """Where each agent's model is loaded from: fine-tuned, where that is said."""
    first, others = (
        tuned if words.said(tuned) else base
        for tuned, base in (
            ("sft_model_path", "base_model"),
            ("another_policy_sft_model_path", "another_policy_base_model"),
        )
    )
    return _models(words, first, others)


def _players(words: Words) -> Iterator[Placed]:
    count = words["agent_num"]
    turns: int = words["round_num"].value
    yield Placed("environment.agents", count.value, count)
    yield Placed("rollout.samples", [1] * turns, words["round_num"])
    try:
        agents = Debate.Options(agents=count.value).names
    except ValueError as error:
        raise count.complaint(f"got {count.value}, expected at most 8") from error
    paths = _paths(words)
    apart = words.value("diff_model_training", False)
    for agent, path in zip(agents, paths, strict=True):
        model = agents[paths.index(path)] if apart else "base"
        yield from _base(words, model, path)
        names = [f"{agent}_{kind}" if apart else kind for kind in _kinds(words)[:turns]]
        yield Placed(f"team.{agent}.policy", names)
        for number, name in enumerate(names):
            yield from _policy(words, name, model, frozen=number == 0 and _first_is_frozen(words))
    yield from _lora(words, "critic")


def _base(words: Words, model: str, path: str) -> Iterator[Placed]:
    yield Placed(f"models.{model}.path", path, words["base_model"])
    for key, choices in (
        ("dtype", {"bf16": "bfloat16", "fp16": "float16"}),
        ("quantize", {"load_in_8bit": "8bit", "load_in_4bit": "4bit"}),
    ):
        wanted = [word for word in choices if words.value(word, False)]
        if len(wanted) > 1:
            raise words[wanted[1]].complaint(f"{wanted[0]} is true too: keep one")
        for word in wanted:
            yield Placed(f"models.{model}.{key}", choices[word], words[word])


def _kinds(words: Words) -> Sequence[str]:
    """What the policies of an agent are called, one per turn; the last one repeats."""
    apart, later = (words.value(word, False) for word in ("policy_separation", "collaboration_separation"))
    if later and not apart:
        raise words["collaboration_separation"].complaint("needs policy_separation: true")
    turns = words["round_num"].value
    return ["first", "later"] if later else [f"turn{turn}" for turn in range(1, turns + 1)] if apart else ["debater"]


def _first_is_frozen(words: Words) -> bool:
    """Whether the policy of the first turn learns nothing."""
    if words.value("task_training", True):
        return False
    if not words.value("policy_separation", False):
        raise words["task_training"].complaint(
            "one policy plays all turns, so nobody would learn: say true, or policy_separation: true"
        )
    return True


def _policy(words: Words, name: str, model: str, *, frozen: bool) -> Iterator[Placed]:
    yield Placed(f"policies.{name}.model", model)
    if frozen:
        yield Placed(f"policies.{name}.train", "frozen", words["task_training"])
    else:
        yield from _lora(words, f"policies.{name}")


def _lora(words: Words, at: str) -> Iterator[Placed]:
    adapters = words.value("peft", True)
    yield Placed(f"{at}.train", "lora" if adapters else "full", words.origin("peft"))
    if adapters:
        for key, word in (("rank", "r"), ("alpha", "lora_alpha"), ("targets", "target_modules")):
            if words.said(f"peft_config.{word}"):
                said = words[f"peft_config.{word}"]
                yield Placed(f"{at}.lora.{key}", said.value, said)


# ---------------------------------------------------------------------------------------------------- how they learn


def _schedule(words: Words) -> Iterator[Placed]:
    if not words.value("turn_based_training", False):
        return
    said = words["turn_based_training"]
    if _first_is_frozen(words):
        if words["round_num"].value > 2:
            raise said.complaint(
                "task_training: false leaves the blocks of turn 1 nobody to train: drop one of the two"
            )
        return  # only the second turn is left to learn
    yield Placed("schedule.kind", "turns", said)
    yield Placed("schedule.warmup", words.value("update_initial_turn", WARMUP), words.origin("update_initial_turn"))
    block = "turn_based_training_num"
    yield Placed("schedule.block", words.value(block, BLOCK), words.origin(block))


def _portions(words: Words) -> Iterator[Placed]:
    """A batch is what one process plays for an update."""
    minibatches = words.value("num_mini_batches", MINIBATCHES)
    accumulated = words.value("gradient_accumulation_steps", ACCUMULATED)
    tasks = words["per_device_train_batch_size"].value * accumulated * minibatches
    yield Placed("algorithm.minibatches", minibatches, words.origin("num_mini_batches"))
    yield Placed("train.tasks_per_step", tasks)
    if words.said("total_episodes"):
        yield Placed("train.steps", max(1, words["total_episodes"].value // tasks), words["total_episodes"])
    else:
        epochs = "num_train_epochs"
        yield Placed("train.epochs", words.value(epochs, EPOCHS), words.origin(epochs))


def _learning(words: Words) -> Iterator[Placed]:
    if words.said("alpha"):
        said = words["alpha"]
        yield Placed("algorithm.incentives.alphas", "code", said)
        for name, value in zip(("alpha0", "alpha1", "beta0", "beta1"), said.value, strict=True):
            yield Placed(f"algorithm.incentives.{name}", value, said)
    if words.said("kl_coef"):
        said = words["kl_coef"]
        yield Placed("algorithm.kl_in", "none" if said.value == 0 else "reward", said)
        yield Placed("algorithm.kl_coefficient", said.value, said)
    if words.said("cliprange"):
        for side in ("low", "high"):
            yield Placed(f"algorithm.clip_{side}", words["cliprange"].value, words["cliprange"])
    said_betas = [words[word] for word in ("adam_beta1", "adam_beta2") if words.said(word)]
    if len(said_betas) == 1:
        raise said_betas[0].complaint("expected both, adam_beta1 and adam_beta2")
    if said_betas:
        yield Placed("optimizer.betas", [said.value for said in said_betas], said_betas[0])


def _report(words: Words) -> Iterator[Placed]:
    if words.said("report_to"):
        said = words["report_to"]
        yield Placed("report.tensorboard", said.value == "tensorboard", said)
        if said.value == "wandb":
            yield Placed("report.wandb", {}, said)


def idle(words: Words) -> dict[str, str]:
    """Words that go nowhere because of another one -> what the person is told of it."""
    waits = {
        "diff_model_training: true": ("another_policy_base_model", "another_policy_sft_model_path"),
        "turn_based_training: true": ("turn_based_training_num", "update_initial_turn"),
        "peft: true": ("peft_config.r", "peft_config.lora_alpha", "peft_config.target_modules"),
        "non_box_penalty: true": ("penalty_reward_value",),
        "no_reward_model: false": ("server_dict",),
        "report_to: wandb": ("run_name",),
    }
    given = {
        "diff_model_training: true": words.value("diff_model_training", False),
        "turn_based_training: true": words.value("turn_based_training", False),
        "peft: true": words.value("peft", True),
        "non_box_penalty: true": words.value("non_box_penalty", False),
        "no_reward_model: false": not words.value("no_reward_model", False),
        "report_to: wandb": words.value("report_to") == "wandb",
    }
    return {
        word: f"{word} waits for {wanted}"
        for wanted, waiting in waits.items()
        for word in waiting
        if words.said(word) and not given[wanted]
    }
