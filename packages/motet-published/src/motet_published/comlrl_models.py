"""Translate the models of CoMLRL's agents and critics."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from motet_published.translation import Translation

Critics: TypeAlias = Literal["one per agent", "one for all agents"]
_SEPARATE = "trainer.use_separate_critic"
_AGENT_DTYPE = "model.model_kwargs.torch_dtype"
_AGENT_ATTENTION = "model.model_kwargs.attn_implementation"
_CRITIC_DTYPE = "critic_model.model_kwargs.torch_dtype"
_CRITIC_ATTENTION = "critic_model.model_kwargs.attn_implementation"


class ModelOnDevice(NamedTuple):
    path: str
    device: str | None


# --------------------------------------------------------------------------------------- agents


def set_agents(config: Translation, agents: Sequence[str]) -> list[ModelOnDevice]:
    """Give each agent a policy of its own name, trained in full. Return the agents' models.

    If all agents have the same model and device, they share one entry in `models`.
    """
    models = _agent_models(config, len(agents))
    source = "agents" if "agents" in config else "model.name"
    if "agents" in config:
        config.ignore("{key} is overridden by agents", "model.name")
    for agent, (path, device) in zip(agents, models, strict=True):
        name = "base" if len(set(models)) == 1 else agent
        config.set(f"models.{name}.path", path, source)
        if device is not None:
            config.set(f"models.{name}.device", device, "trainer.agent_devices")
        set_kind(config, name)
        config.set(f"policies.{agent}.model", name)
        config.set(f"policies.{agent}.train", "full")
        config.set(f"team.{agent}.policy", [agent])
    return models


def set_kind(config: Translation, name: str) -> None:
    """Give a model the dtype, the attention and the checkpointing of the agents' models."""
    config.copy(_AGENT_DTYPE, f"models.{name}.dtype")
    config.copy("model.gradient_checkpointing", f"models.{name}.checkpointing")
    config.copy(_AGENT_ATTENTION, f"models.{name}.attention")


def _agent_models(config: Translation, count: int) -> list[ModelOnDevice]:
    paths = config["agents"] if "agents" in config else [config["model.name"]] * count
    if len(paths) != count:
        raise config.error(
            "agents", f"got {len(paths)} models for {count} agent(s), expected one each"
        )
    devices = devices_of(config, "trainer.agent_devices", count)
    return [ModelOnDevice(*pair) for pair in zip(paths, devices, strict=True)]


def devices_of(config: Translation, key: str, count: int) -> Sequence[str | None]:
    """Return the devices of `count` models as a key sets them; None each if it is not set."""
    if key not in config:
        return [None] * count
    devices: Sequence[str] = config[key]
    in_parallel = config.get("trainer.parallel_training", False)
    if not in_parallel and len(set(devices)) == 1:
        return list(devices[:1]) * count
    expected = count if in_parallel else 1
    if len(devices) != expected:
        more = ", or parallel_training: mp" if count > 1 else ""
        why = "one per agent under parallel_training: mp" if expected > 1 else f"one{more}"
        raise config.error(key, f"got {len(devices)} devices, expected {why}")
    return devices if expected > 1 else list(devices) * count


# -------------------------------------------------------------------------------------- critics


def set_critics(
    config: Translation, critics: Critics, agent_models: Sequence[ModelOnDevice]
) -> None:
    """Set the model of the critics and how they learn.

    `gae_lambda` is 0, because the published targets are one reward plus one value.
    """
    config.set("algorithm.credit.gae_lambda", 0.0)
    if config.get(_SEPARATE, True):
        _set_separate_critics(config, critics, agent_models)
    else:
        _set_critics_on_policies(config, critics)
    if "trainer.value_loss_coef" in config:
        # twice, because Motet's loss is half the squared error
        coefficient = 2 * config["trainer.value_loss_coef"]
        config.set("critic.coefficient", coefficient, "trainer.value_loss_coef")


def _set_critics_on_policies(config: Translation, critics: Critics) -> None:
    """Make each critic a value head on its agent's model."""
    if critics == "one for all agents":
        raise config.error(
            _SEPARATE,
            "one critic reads the prompts of all agents, so it cannot be part of one agent's "
            "model: drop it",
        )
    written = config.values[_SEPARATE].key
    for key in ("critics", "critic_model.name"):
        if key in config:
            raise config.error(
                key,
                f"with {written}: false, a critic is a head on its agent's model: remove one "
                "of both",
            )
    config.set("critic.train", "policy", _SEPARATE)
    config.copy("trainer.value_clip_range", "algorithm.credit.clip_value")
    config.ignore(
        "{key} needs use_separate_critic: true",
        "trainer.critic_learning_rate",
        "trainer.critic_devices",
        _CRITIC_DTYPE,
        _CRITIC_ATTENTION,
    )


def _set_separate_critics(
    config: Translation, critics: Critics, agent_models: Sequence[ModelOnDevice]
) -> None:
    if _SEPARATE in config:
        config.set("critic.train", "full", _SEPARATE)
    config.copy("trainer.critic_learning_rate", "critic.optimizer.learning_rate")
    config.ignore("{key} needs use_separate_critic: false", "trainer.value_clip_range")
    defaults = list(agent_models if critics == "one per agent" else agent_models[:1])
    models = _critic_models(config, defaults)
    agent_dtype = config.get(_AGENT_DTYPE)
    agent_attention = config.get(_AGENT_ATTENTION)
    dtype = config.get(_CRITIC_DTYPE, agent_dtype)
    attention = config.get(_CRITIC_ATTENTION, agent_attention)
    if models == defaults and (dtype, attention) == (agent_dtype, agent_attention):
        return  # Motet's default: each critic uses a copy of its agent's model
    keys = (
        "critics",
        "critic_model.name",
        "trainer.critic_devices",
        _CRITIC_DTYPE,
        _CRITIC_ATTENTION,
    )
    source = next(key for key in keys if key in config)
    if len(set(models)) > 1:
        raise config.error(
            source,
            "expected one model on one device for all critics, or for each critic the model and "
            "device of its agent",
        )
    config.set("critic.model", "critic", source)
    config.set("models.critic.path", models[0].path, source)
    if models[0].device is not None:
        config.set("models.critic.device", models[0].device, source)
    if dtype is not None:
        config.set("models.critic.dtype", dtype, source)
    if attention is not None:
        config.set("models.critic.attention", attention, source)


def _critic_models(config: Translation, defaults: Sequence[ModelOnDevice]) -> list[ModelOnDevice]:
    count = len(defaults)
    paths = [default.path for default in defaults]
    if "critics" in config:
        paths = config["critics"]
    elif "critic_model.name" in config:
        paths = [config["critic_model.name"]] * count
    if len(paths) != count:
        expected = "one for all agents" if count == 1 else f"{count}: one per agent"
        raise config.error("critics", f"got {len(paths)} critics, expected {expected}")
    devices = devices_of(config, "trainer.critic_devices", count)
    return [
        ModelOnDevice(path, default.device if device is None else device)
        for path, device, default in zip(paths, devices, defaults, strict=True)
    ]
