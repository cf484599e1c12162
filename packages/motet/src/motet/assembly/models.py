"""Load the models of a run: every policy on its base model, with sampler, learners and critics.

Each base model is loaded once per copy that is needed.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from motet.assembly.endpoints import endpoint_samplers
from motet.assembly.model_card import model_card
from motet.assembly.task_setup import TeamSetup, steps_of
from motet.config.schema import RunConfig
from motet.config.sections import CriticConfig, ModelConfig
from motet.core import Sampler
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic
from motet.models.learner import LocalLearner
from motet.models.sampler import LocalSampler
from motet.models.shards import Ranks, copy_into, read_shards
from motet.models.snapshots import Snapshots
from motet.rollout.answer_file import AnswerFile
from motet.rollout.many_samplers import ManySamplers
from motet.settings import Lora, Optimizer
from motet.trainer.components import REWARD_MODEL
from motet.trainer.model_folders import check_seal, is_sealed, seal
from motet.trainer.stopping import StopRequest


@dataclass(frozen=True)
class LocalModels:
    """A `trainer.components.Models` in this process: every policy on its base model, with the
    sampler and the learners."""

    policies: Mapping[str, Policy]
    local: LocalSampler
    """Samples, scores and publishes, because all three use the same weights."""
    learners: Mapping[str, LocalLearner]
    """Trained policy or critic -> the learner of its backbone."""
    critics: Mapping[str, Critic] = field(default_factory=dict)
    note: str = ""
    """The run and the algorithm that the policies come from, for their README."""
    initial: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    """The reward model -> its weights at the beginning of the run, in main memory."""
    references: Mapping[str, Policy] = field(default_factory=dict)
    """Trained policy -> its reference, if references move (`reset_references`)."""
    endpoints: Mapping[str, Sampler] = field(default_factory=dict)
    """Policy behind an endpoint -> its sampler."""
    snapshots: Mapping[str, Snapshots] = field(default_factory=dict)
    """Policy that plays earlier weights -> these weights."""
    samples_beside = False

    def restart(self, name: str) -> None:
        """Give the reward model its initial weights and a new optimizer."""
        with torch.no_grad():
            for parameter, start in zip(self._parameters(name), self.initial[name], strict=True):
                parameter.copy_(start)
        self._backbone(name).sync_from_master()
        self.learners[name].load_state(name, ({}, {"step": 0}))

    def reset_references(self) -> None:
        """Make the present weights of each trained policy its reference."""
        with torch.no_grad():
            for name, reference in self.references.items():
                for old, new in zip(
                    reference.own_weights(), self.policies[name].own_weights(), strict=True
                ):
                    old.copy_(new)
                reference.backbone.sync_from_master()

    def play_snapshots(self, step: int | None) -> dict[str, int]:
        """Give each policy with snapshots those that it plays at `step`; None: in an evaluation.

        Returns policy -> the step after which its weights were stored.
        """
        return {name: one.play(step) for name, one in self.snapshots.items()}

    def store_snapshots(self, step: int) -> None:
        """Store the weights after `step` where a snapshot is due."""
        for one in self.snapshots.values():
            one.store(step)

    @property
    def sampler(self) -> Sampler:
        return ManySamplers(self.local, self.endpoints) if self.endpoints else self.local

    @property
    def scorer(self) -> LocalSampler:
        return self.local

    @property
    def publisher(self) -> LocalSampler:
        return self.local

    def timings(self) -> dict[str, float]:
        return self.local.timings()

    def publish_metrics(self) -> dict[str, float]:
        """Nothing: the sampler uses the weights that are trained."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return plain values of every trained policy and critic, such as the weight versions."""
        steps = {name: learner.facts(name) for name, learner in self.learners.items()}
        stored = {name: one.steps for name, one in self.snapshots.items()}
        snapshots = {"snapshots": stored} if stored else {}
        return {"versions": dict(self.local.versions), "optimizers": steps, **snapshots}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, facts) of every trained policy and critic.

        The tensors are weights and optimizer states, named `weights.NAME.i` and
        `optimizer.NAME.KEY`, and those of references that move, `reference.NAME.i`, and
        snapshots, `snapshots.NAME.PLACE.i`.
        """
        tensors = {key: weight.detach() for key, weight in self._weights().items()}
        for name, learner in self.learners.items():
            moments, _ = learner.state(name)
            tensors |= {f"optimizer.{name}.{key}": tensor for key, tensor in moments.items()}
        for one in self.snapshots.values():
            tensors |= one.tensors()
        return tensors, self.facts()

    @property
    def write_shards(self) -> None:
        """`state` returns all tensors."""

    def load(
        self,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        shards: Sequence[Path] = (),
    ) -> None:
        """Restore what `state` returned, and what processes with shards wrote into `shards`."""
        tensors = {**tensors, **read_shards(shards, self._like)}
        with torch.no_grad():
            for key, weight in self._weights().items():
                copy_into(weight, tensors[key])
        for reference in self.references.values():
            reference.backbone.sync_from_master()
        for name, learner in self.learners.items():
            self._backbone(name).sync_from_master()
            prefix = f"optimizer.{name}."
            moments = {
                key.removeprefix(prefix): value
                for key, value in tensors.items()
                if key.startswith(prefix)
            }
            learner.load_state(name, (moments, facts["optimizers"][name]))
        for name, one in self.snapshots.items():
            one.load(facts["snapshots"][name], tensors)
        self.local.versions |= facts["versions"]

    def _like(self, key: str) -> Tensor | None:
        """Return the parameter that a tensor of `state` belongs to. None if it is not here."""
        for name in self.learners:
            if key.startswith((f"weights.{name}.", f"optimizer.{name}.")):
                return self._parameters(name)[int(key.rpartition(".")[2])]
        return None

    def _weights(self) -> dict[str, nn.Parameter]:
        """Return what `state` saves, besides optimizers, by its names there."""
        owned = {f"weights.{name}": self._parameters(name) for name in self.learners}
        owned |= {f"reference.{name}": one.own_weights() for name, one in self.references.items()}
        return {f"{name}.{k}": one for name, held in owned.items() for k, one in enumerate(held)}

    def _backbone(self, name: str) -> Backbone:
        return self.critics[name].backbone if name in self.critics else self.policies[name].backbone

    def _parameters(self, name: str) -> list[nn.Parameter]:
        return (
            self.critics[name].parameters()
            if name in self.critics
            else self.policies[name].parameters()
        )

    def save(self, folder: Path) -> None:
        """Save every trained policy in a folder of its own, in the format of transformers or PEFT.

        Each folder has the tokenizer with its chat template, a README, and the hashes of its files.
        """
        for name, policy in self.policies.items():
            if policy.trainable:
                policy.save(folder / name)
            if policy.trainable and policy.backbone.saves:
                seal(folder / name)
                # The README is not sealed: its owner may edit it.
                card = model_card(name, policy.adapter is not None, self.note)
                (folder / name / "README.md").write_text(card, encoding="utf-8")


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


def assemble(
    setup: TeamSetup,
    bases: Mapping[str, str | Path],
    *,
    train: bool,
    trained: Mapping[str, Path] | None = None,
    stop: StopRequest | None = None,
    only: Container[str] | None = None,
    ranks: Ranks | None = None,
    answers: AnswerFile | None = None,
) -> LocalModels:
    """Load every model once per copy that is needed, add adapters, and build sampler and learners.

    Args:
        bases: model name -> where to load it from.
        trained: policy -> the folder it was saved in, to continue with a trained team.
        stop: checked between tokens.
        only: the policies and critics to load; by default all, and the endpoints.
        ranks: other processes that train the same weights.
        answers: what policies behind endpoints have answered before.

    Raises: ConfigError.
    """
    config, saved = setup.config, trained or {}
    shared = SharedModels(config, bases)
    others = config.policies if train and config.comparator is not None else ()
    policies = {
        name: policy_of(name, config, shared, bases, saved, train=train, ranks=ranks)
        for name in dict.fromkeys((*setup.team.policies, *others))
        if name not in config.endpoints and (only is None or name in only)
    }
    references = (
        _references(config, policies, shared, bases)
        if train and config.algorithm.needs_reference
        else {}
    )
    if train:
        references |= _teachers(setup, policies, shared, bases)
    critics = critics_of(setup, policies, shared, bases, only, ranks) if train else {}
    if ranks is not None:
        _shard_the_rest(policies, references, critics, ranks)
    sampler = LocalSampler(
        policies,
        references=references,
        critics=critics,
        rows_per_batch=config.train.rows_per_batch,
        tokens_per_batch=config.train.tokens_per_batch,
        score_tokens=config.train.token_budget,
        between=(stop or StopRequest()).check,
    )
    learners = _learners(setup, policies, critics, ranks) if train else {}
    initial = {
        name: [parameter.detach().cpu().clone() for parameter in critics[name].parameters()]
        for name in (REWARD_MODEL,)
        if name in critics
    }
    note = f"the run {config.name} with {config.algorithm.name}"
    moving = references if config.algorithm.reset_every else {}
    endpoints = endpoint_samplers(config, answers) if only is None else {}
    snapshots = _snapshots(config, policies) if train else {}
    return LocalModels(
        policies, sampler, learners, critics, note, initial, moving, endpoints, snapshots
    )


def _snapshots(config: RunConfig, policies: Mapping[str, Policy]) -> dict[str, Snapshots]:
    return {
        name: Snapshots(
            player, policies[chosen.of], every=chosen.every, keep=chosen.keep, seed=config.seed
        )
        for name, player in policies.items()
        if (chosen := config.policies[name].snapshots) is not None
    }


def policy_of(
    name: str,
    config: RunConfig,
    shared: SharedModels,
    bases: Mapping[str, str | Path],
    saved: Mapping[str, Path],
    *,
    train: bool,
    ranks: Ranks | None = None,
) -> Policy:
    """Load one policy: from its folder in `saved`, or as the config starts it.

    `ranks`: the processes among which its weights are divided, if all of them are trained.
    """
    chosen = config.policies[name]
    assert chosen.model is not None
    if chosen.snapshots is not None:
        return _as_its_source_starts(name, chosen.snapshots.of, config, shared, bases)
    if chosen.train == "full":
        source = saved[name] if name in saved else bases[chosen.model]
        backbone = load_model(config.models[chosen.model], source, full=train, ranks=ranks)
        return Policy(name, backbone, None, trainable=train)
    backbone = shared[chosen.model]
    adapter_folder = saved[name] if name in saved else chosen.adapter
    if adapter_folder is not None:
        if is_sealed(Path(adapter_folder)):
            check_seal(Path(adapter_folder))
        backbone.load_adapter(name, adapter_folder)
    elif chosen.new_adapter is not None:
        backbone.add_adapter(name, chosen.new_adapter, derive(config.seed, "adapter", name) % 2**63)
    else:
        return Policy(name, backbone, None, trainable=False)
    return Policy(name, backbone, name, trainable=train and chosen.train == "lora")


def _as_its_source_starts(
    name: str, of: str, config: RunConfig, shared: SharedModels, bases: Mapping[str, str | Path]
) -> Policy:
    """Load a frozen policy with the weights that another policy starts with."""
    source = config.policies[of]
    assert source.model is not None
    if source.train == "full":
        backbone = load_model(config.models[source.model], bases[source.model], full=False)
        return Policy(name, backbone, None, trainable=False)
    backbone = shared[source.model]
    if source.adapter is not None:
        backbone.load_adapter(name, source.adapter)
    else:
        backbone.add_adapter(
            name, source.new_adapter or Lora(), derive(config.seed, "adapter", of) % 2**63
        )
    return Policy(name, backbone, name, trainable=False)


def _references(
    config: RunConfig,
    policies: Mapping[str, Policy],
    shared: SharedModels,
    bases: Mapping[str, str | Path],
) -> dict[str, Policy]:
    """Return the reference policy of each trained policy: the weights that it started from.

    All full policies of a model share one frozen copy of it. The reference of a new adapter is the
    base model, and that of a saved adapter is a second copy of that adapter. If references move,
    each policy has a copy of its own.
    """
    moves = config.algorithm.reset_every is not None
    alone = {
        name
        for agent, player in config.team.items()
        if agent not in config.teachers
        for name in player.policy
    }
    references: dict[str, Policy] = {}
    for name, policy in policies.items():
        if not policy.trainable or name not in alone:
            continue
        chosen, start = config.policies[name], None
        assert chosen.model is not None
        if moves and policy.adapter is None:
            backbone = load_model(config.models[chosen.model], bases[chosen.model], full=False)
        else:
            backbone = shared[chosen.model]
        if chosen.adapter is not None:
            start = f"{name} at the start"
            backbone.load_adapter(start, chosen.adapter)
        elif moves and chosen.new_adapter is not None:
            start = f"{name} at the start"
            backbone.add_adapter(start, chosen.new_adapter, seed=0)  # equal to the base
        references[name] = Policy(f"{name} (reference)", backbone, start, trainable=False)
    return references


def _teachers(
    setup: TeamSetup,
    policies: Mapping[str, Policy],
    shared: SharedModels,
    bases: Mapping[str, str | Path],
) -> dict[str, Policy]:
    """Load the teachers of the agents.

    Raises: ConfigError if one reads other tokens than its agent writes.
    """
    found: dict[str, Policy] = {}
    for agent, names in setup.team.teachers.items():
        own = policies[setup.team.policy_of(agent, 0)].backbone.tokenizer.get_vocab()
        for name in names:
            if name not in found:
                found[name] = policy_of(name, setup.config, shared, bases, {}, train=False)
            if found[name].backbone.tokenizer.get_vocab() != own:
                raise ConfigError(
                    f"team.{agent}.teacher names policy {name}, which has another tokenizer than "
                    f"policy {setup.team.policy_of(agent, 0)}, so it cannot score what {agent} "
                    "writes; expected models with one tokenizer"
                )
    return found


def _shard_the_rest(
    policies: Mapping[str, Policy],
    references: Mapping[str, Policy],
    critics: Mapping[str, Critic],
    ranks: Ranks,
) -> None:
    """Divide the references of full policies among `ranks`, and the heads of critics on shards.

    Fully trained weights are divided already. Adapters and their bases stay copies, also if a
    reference is such a base.
    """
    frozen = [one.backbone for name, one in references.items() if policies[name].adapter is None]
    for backbone in dict.fromkeys(frozen):
        if not backbone.adapters:
            backbone.shard(ranks)
    for critic in critics.values():
        if critic.backbone.shards is not None:
            critic.backbone.shards.add(critic.head)


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
        if chosen.train == "policy":
            player = policies[setup.team.policy_of(agent, 0)]
            critics[name] = Critic.on(name, player, owns_trunk=False)
        else:
            model = config.model_of_critic(name)
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
    model: str | None,
    lora: Lora | None,
    config: RunConfig,
    shared: SharedModels,
    bases: Mapping[str, str | Path],
    ranks: Ranks | None,
) -> Critic:
    assert model is not None  # a team that is trained has a policy with a model
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


def _learners(
    setup: TeamSetup,
    policies: Mapping[str, Policy],
    critics: Mapping[str, Critic],
    ranks: Ranks | None,
) -> dict[str, LocalLearner]:
    config, due = setup.config, _updates(setup)
    on: dict[int, tuple[list[Policy], list[Critic]]] = {}
    for policy in policies.values():
        if policy.trainable:
            on.setdefault(id(policy.backbone), ([], []))[0].append(policy)
    for critic in critics.values():
        on.setdefault(id(critic.backbone), ([], []))[1].append(critic)
    learners: dict[str, LocalLearner] = {}
    for players, judges in on.values():
        optimizers = {policy.name: config.optimizer_of(policy.name) for policy in players}
        optimizers |= {critic.name: optimizer_of_critic(critic.name, config) for critic in judges}
        learner = LocalLearner(players, optimizers, due, judges, ranks)
        learners |= dict.fromkeys(optimizers, learner)
    return learners


def _updates(setup: TeamSetup) -> dict[str, int]:
    """Policy or critic -> its number of gradient steps in the run, where its schedule ends."""
    config, team = setup.config, setup.team
    policy_turns = team.policy_turns(len(config.rollout.samples))
    learns: dict[str, set[tuple[str, int]]] = {}
    for policy, turn in policy_turns:
        learns.setdefault(policy, set()).add((policy, turn))
        for agent in team.critics:
            if team.policy_of(agent, turn) == policy:
                learns.setdefault(team.critics[agent], set()).add((policy, turn))
    steps = {
        name: sum(
            any(config.schedule.trains(step, *policy_turn, policy_turns) for policy_turn in found)
            for step in range(1, steps_of(setup) + 1)
        )
        for name, found in learns.items()
    }
    critics = set(team.critics.values())
    # The rate of a reward model is constant, so its number of steps does not matter.
    learnt_before = {REWARD_MODEL: 1} if config.reward_model is not None else {}
    return learnt_before | {
        name: count
        * config.algorithm.minibatches
        * (critic_epochs(config) if name in critics else config.algorithm.epochs)
        for name, count in steps.items()
    }


def critic_epochs(config: RunConfig) -> int:
    """Passes of the critics over the value samples of a step."""
    chosen = config.critic.epochs if config.critic is not None else None
    return chosen or config.algorithm.epochs
