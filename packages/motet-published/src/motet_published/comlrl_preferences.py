"""Translate the configs of CoMLRL's preference trainers: madpo, marlhf, madpo_iter, marlhf_iter.

Their keys, and the functions that set what several keys mean together. All other keys of these
configs are those of comlrl_keys.py.
"""

from motet_published import comlrl_comparators
from motet_published.comlrl import (
    COLLABORATION,
    ignore_sections_that_are_off,
    set_task,
    set_updates,
)
from motet_published.comlrl_keys import CRITIC_KEYS, KEYS
from motet_published.comlrl_models import Critics
from motet_published.comlrl_travel import ALGORITHM, check_algorithm
from motet_published.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Renamed,
    Unsupported,
    boolean,
    one_of,
    text,
    whole_number,
)
from motet_published.translation import Translation

# Defaults of the published trainers: one-shot and iterative
CANDIDATES, CANDIDATES_ITER = 80, 20
PAIRS_ITER, SELECT_ITER = 4, "comparator_reward"
ITERATIONS, EPOCHS_MADPO, EPOCHS_REWARD_ITER = 6, 20, 2
BUFFER_SIZE = 2
CRITICS: dict[str, Critics] = {"iac": "one per agent", "maac": "one for all agents"}
"""Algorithm -> its critics."""
_SELECT, _PAIRS = "trainer.pair_selection", "trainer.preference_pairs_per_sample"
_MANY = "trainer.preference_num_candidates"
_COMPARED = "trainer.comparator_num_candidates"
_ITERATIONS, _EPOCHS = "trainer.num_iterations", "trainer.num_train_epochs"
_REPLAY = {
    **dict.fromkeys(("current", "latest", "new"), "current"),
    **dict.fromkeys(("nearest_k", "recent_k", "last_k", "k"), "nearest_k"),
    "all_history": "all_history",
    **dict.fromkeys(("lambda", "lambda_decay", "td_lambda", "td-lambda"), "lambda_decay"),
}
_RL = ("magrpo", "mareinforce", "maremax", "marloo", "maac", "iac")
_NO_ADVANTAGE = NoEffect("a pair has a loss of its own, without an advantage")
_SHARED: KeyTable = {
    ALGORITHM: Combined(text),
    COLLABORATION: Combined(one_of({"decentralized": False, "centralized": True})),
    _MANY: Combined(whole_number(2)),
    "trainer.use_environment_step": NoEffect("steps are counted by the run", silent=(True,)),
    "trainer.environment_steps_per_pair": NoEffect("steps are counted by the run", silent=(2,)),
    "trainer.advantage_mode": NoEffect("it follows from rl_algorithm; madpo has no advantages"),
}
_ITERATIVE: KeyTable = {
    _ITERATIONS: Combined(whole_number(1)),
    _COMPARED: Combined(whole_number(1)),
    **comlrl_comparators.KEYS,
    "trainer.log_reward_distribution": NoEffect(
        "every episode and its rewards are in the folder `episodes` of the run", silent=(False,)
    ),
    "trainer.policy_checkpoint_dir": NoEffect(
        "checkpoints are in the run folder; train.keep_every keeps those of earlier iterations"
    ),
    "trainer.preference_replay_dir": NoEffect("earlier pairs are read from the run folder"),
}  # fmt: skip
_MADPO: KeyTable = {
    "trainer.dpo_beta": Renamed("algorithm.credit.beta"),
    "trainer.num_generations": NoEffect("preference_num_candidates says how many are sampled"),
    "trainer.advantage_normalization": _NO_ADVANTAGE,
    "trainer.reference_kl_enabled": NoEffect(
        "the published loss of a pair has no KL penalty; motet.algorithm.credit.reference=true "
        "gives it a reference",
        silent=(False,),
    ),
    "trainer.reference_kl_coef": _NO_ADVANTAGE,
    "trainer.epsilon_clip": _NO_ADVANTAGE,
    "trainer.eval_interval": NoEffect(
        "the team is evaluated before and after training, and madpo_iter after every iteration"
    ),
}
_MARLHF: KeyTable = {
    "trainer.rl_algorithm": Combined(
        one_of({**{name: name for name in _RL}, "mareforce": "mareinforce"})
    ),
    "trainer.dpo_beta": NoEffect("the loss of the reward model has no beta"),
    "trainer.reward_model_name": Combined(text),
    "trainer.reward_model_device": Combined(text),
    "trainer.reward_learning_rate": Renamed("reward_model.optimizer.learning_rate"),
    "trainer.reward_num_train_epochs": Renamed("reward_model.epochs"),
    "trainer.reward_train_batch_size": Renamed("reward_model.batch_size"),
    "trainer.reward_max_length": NoEffect("the limit is the context of the reward model"),
    "trainer.reward_freeze_backbone": Renamed(
        "reward_model.train", lambda value: "head" if boolean(value) else "full"
    ),
    "trainer.preference_scoring_reward": Unsupported(
        "pairs are made by the reward of the task: use task",
        allowed=("task", "oracle", "env", "environment"),
    ),
    "critic_model.name": Combined(
        text,
        also=(
            "trainer.critic_model",
            "trainer.critic_model_name",
            "trainer.critic_model_name_or_path",
        ),
    ),
}


def keys_of_preferences(trainer: str) -> KeyTable:
    """Return the table of madpo, marlhf, madpo_iter or marlhf_iter."""
    marlhf, iterative = trainer.startswith("marlhf"), trainer.endswith("_iter")
    section = "reward_model" if marlhf else "algorithm.credit"
    choices = ("reward_gap", "all", "random", *((SELECT_ITER,) if iterative else ()))
    pairs: KeyTable = {
        _SELECT: Renamed(f"{section}.select", one_of({name: name for name in choices})),
        _PAIRS: Renamed(f"{section}.pairs"),
    }
    replay: KeyTable = {
        "trainer.preference_replay_mode": Renamed(f"{section}.replay.mode", one_of(_REPLAY)),
        "trainer.preference_replay_k": Renamed(f"{section}.replay.k"),
        "trainer.preference_replay_lambda": Renamed(f"{section}.replay.decay"),
        "trainer.preference_replay_sample_size": Renamed(f"{section}.replay.size"),
    }
    own = {**CRITIC_KEYS, **_MARLHF} if marlhf else _MADPO
    return {**KEYS, **_SHARED, **own, **pairs, **({**_ITERATIVE, **replay} if iterative else {})}


def madpo(config: Translation, name: str) -> None:
    """All pairs come from the initial policies: one step, with many passes over its pairs."""
    check_algorithm(config, "madpo")
    _set_pairs(config, name, config.get(_MANY, CANDIDATES), steps=1, epochs=EPOCHS_MADPO)


def madpo_iter(config: Translation, name: str) -> None:
    """An iteration is a step on all training tasks."""
    check_algorithm(config, "madpo_iter")
    _set_iterative(config, "algorithm.credit")
    steps = config.get(_ITERATIONS, ITERATIONS)
    _set_pairs(config, name, _compared(config), steps=steps, epochs=1)
    config.set("evaluation.every", 1)
    comlrl_comparators.set_comparator(config)


def _set_pairs(config: Translation, name: str, samples: int, steps: int, epochs: int) -> None:
    _refuse_several_turns(config)
    _refuse_number_of_all(config)
    set_task(config, name, "madpo", [samples])
    buffer = config.get("trainer.rollout_buffer_size", BUFFER_SIZE)
    batch = config.get("trainer.train_batch_size", buffer)
    config.set("algorithm.credit.batch_size", batch)
    config.set("algorithm.epochs", config.get(_EPOCHS, epochs), _EPOCHS)
    config.set("train.steps", steps, _ITERATIONS)
    config.set("train.tasks_per_step", "all")
    ignore_sections_that_are_off(config)


def marlhf(config: Translation, name: str) -> None:
    """A reward model learns from pairs of the initial policies, before the first step."""
    check_algorithm(config, "marlhf")
    config.set("reward_model.samples", config.get(_MANY, CANDIDATES), _MANY)
    _set_learned_reward(config, name, iterations=1)


def marlhf_iter(config: Translation, name: str) -> None:
    """The reward model learns again from pairs of the present policies in every iteration."""
    check_algorithm(config, "marlhf_iter")
    iterations = config.get(_ITERATIONS, ITERATIONS)
    _set_iterative(config, "reward_model")
    config.set("reward_model.samples", _compared(config), _MANY)
    config.set("reward_model.iterations", iterations, _ITERATIONS)
    if "trainer.reward_num_train_epochs" not in config:
        config.set("reward_model.epochs", EPOCHS_REWARD_ITER)
    _set_learned_reward(config, name, iterations)
    comlrl_comparators.set_comparator(config)


def _set_learned_reward(config: Translation, name: str, iterations: int) -> None:
    _refuse_several_turns(config)
    _refuse_number_of_all(config)
    algorithm = config.get("trainer.rl_algorithm", "magrpo")
    critics = CRITICS.get(algorithm)
    samples = [config.get("trainer.num_generations", 4)]
    agents, models = set_task(config, name, algorithm, samples)
    set_updates(config, samples, agents, models, critics, BUFFER_SIZE)
    epochs = iterations * config[_EPOCHS]
    config.set("train.epochs", epochs, _EPOCHS)
    if "trainer.reward_train_batch_size" not in config:
        config.set("reward_model.batch_size", 1)
    _set_reward_model(config)
    if critics is None:
        why = "{key} is for an rl_algorithm with a critic"
        config.ignore(why, *(key for key in CRITIC_KEYS if key in config))
    ignore_sections_that_are_off(config)


def _set_reward_model(config: Translation) -> None:
    """Set its base model, if it is not that of the agents on their device."""
    name, device = "trainer.reward_model_name", "trainer.reward_model_device"
    if name not in config and device not in config:
        return
    path = config.get(name) or (config["agents"][0] if "agents" in config else config["model.name"])
    config.set("reward_model.model", "reward", name if name in config else device)
    config.set("models.reward.path", path, name)
    config.copy(device, "models.reward.device")
    config.copy("model.model_kwargs.torch_dtype", "models.reward.dtype")
    config.copy("model.model_kwargs.attn_implementation", "models.reward.attention")


def _set_iterative(config: Translation, section: str) -> None:
    config.set(f"{section}.compare", "halves")
    if _SELECT not in config:
        config.set(f"{section}.select", SELECT_ITER)
    if _PAIRS not in config and config.get(_SELECT) != "all":
        config.set(f"{section}.pairs", PAIRS_ITER)


def _compared(config: Translation) -> int:
    """Return the number of joint actions of both sides. The g-th ones of both are compared, so what
    one side has more is not played."""
    many: int = config.get(_MANY, CANDIDATES_ITER)
    others: int = config.get(_COMPARED, many)
    if others != many:
        config.tell(
            f"only the g-th of the {many} and of the {others} candidates are compared, so both "
            "sides play as many as the smaller number says"
        )
    return 2 * min(many, others)


def _refuse_number_of_all(config: Translation) -> None:
    """comlrl 1.4.3 refuses this too. Raises ConfigError."""
    if config.get(_SELECT) == "all" and config.get(_PAIRS) is not None:
        written = config.values[_SELECT].key
        raise config.error(
            _PAIRS,
            f"got {config[_PAIRS]}, expected null with {written}: all, which takes all pairs",
        )


def _refuse_several_turns(config: Translation) -> None:
    """Raises ConfigError."""
    turns = "trainer.num_turns"
    if config.get(turns, 1) != 1:
        raise config.error(turns, f"got {config[turns]}, expected 1: pairs are of one turn")
