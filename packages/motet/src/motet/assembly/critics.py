"""The base models that policies and critics share, the critics of a run, and its reward model."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Literal

from motet.assembly.task_setup import TeamSetup
from motet.config.schema import RunConfig
from motet.config.sections import CriticConfig, ModelConfig
from motet.core.seeding import derive
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic
from motet.models.shards import Ranks
from motet.settings import Lora, Optimizer
from motet.trainer.components import REWARD_MODEL


class SharedModels:
    """The one copy of each model that adapters, frozen policies and references share.

    A model is loaded when it is first requested.
    """

    def __init__(self, config: RunConfig, bases: Mapping[str, str | Path]) -> None:
        self._config, self._bases = config, bases
        self._loaded: dict[str, Backbone] = {}

    def __getitem__(self, model: str) -> Backbone:
        if model not in self._loaded:
            self._loaded[model] = load_model(
                self._config.models[model], self._bases[model], full=False
            )
        return self._loaded[model]


def load_model(
    base: ModelConfig, source: str | Path, *, full: bool, ranks: Ranks | None = None
) -> Backbone:
    """Load a copy of a base model; with `full` all of its weights are trained.

    `ranks`: the processes among which its weights are divided.
    """
    return Backbone.load(
        source,
        device=base.device,
        dtype=base.dtype,
        quantize=base.quantize,
        trainable_full=full,
        checkpointing=base.checkpointing,
        attention=base.attention,
        chat_template=base.template,
        end_tokens=base.end_tokens,
        ranks=ranks,
    )


def critics_of(
    setup: TeamSetup,
    policies: Mapping[str, Policy],
    shared: SharedModels,
    bases: Mapping[str, str | Path],
    only: Container[str] | None = None,
    ranks: Ranks | None = None,
) -> dict[str, Critic]:
    """Build every critic of the team, on the trunk that the config chooses, and the reward
    model. With `only`, those with these names; `policies` then has the ones they judge. With
    `ranks`, these processes divide the weights of a critic that trains all of them."""
    config, critics = setup.config, {}
    chosen = config.critic or CriticConfig()
    for agent, name in setup.team.critics.items():
        if name in critics or (only is not None and name not in only):
            continue
        player = policies[setup.team.policy_of(agent, 0)]
        if chosen.train == "policy":
            critics[name] = Critic.on(name, player, owns_trunk=False)
        else:
            model = chosen.model or config.policies[player.name].model
            critics[name] = _critic(
                name, chosen.train, model, chosen.lora, config, shared, bases, ranks
            )
    wanted = config.reward_model
    if wanted is not None and (only is None or REWARD_MODEL in only):
        critics[REWARD_MODEL] = _critic(
            REWARD_MODEL,
            wanted.train,
            config.model_of_reward,
            wanted.lora,
            config,
            shared,
            bases,
            ranks,
        )
    return critics


def _critic(
    name: str,
    train: Literal["full", "lora", "head"],
    model: str,
    lora: Lora | None,
    config: RunConfig,
    shared: SharedModels,
    bases: Mapping[str, str | Path],
    ranks: Ranks | None,
) -> Critic:
    if train == "full":
        backbone = load_model(config.models[model], bases[model], full=True, ranks=ranks)
        return Critic.on(name, Policy(name, backbone), owns_trunk=True)
    if train == "lora":
        seed = derive(config.seed, "adapter", name) % 2**63
        shared[model].add_adapter(name, lora or Lora(), seed)
        return Critic.on(name, Policy(name, shared[model], name), owns_trunk=True)
    return Critic.on(name, Policy(name, shared[model], trainable=False), owns_trunk=False)


def optimizer_of_critic(critic: str, config: RunConfig) -> Optimizer:
    """Return the optimizer settings of a critic or of the reward model."""
    if critic == REWARD_MODEL and config.reward_model is not None:
        return config.reward_model.optimizer
    return config.critic_optimizer
