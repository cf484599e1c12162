"""The run config: its keys, the checks between them, and the config that is read for looking.

A single agent or policy may override common settings (`team.aux.decode`, `policies.aux.optimizer`).
It sets only the fields that differ; `decode_of` and `optimizer_of` return the complete settings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_serializer,
    model_validator,
)

from motet.algorithms import ALGORITHMS, check_names, check_plan, plays_absent, resolve
from motet.config.foreign_keys import foreign_advice
from motet.config.sections import (
    AgentConfig,
    AtOnce,
    CentralizedConfig,
    ClusterConfig,
    ComparatorConfig,
    CriticConfig,
    DataConfig,
    EndpointConfig,
    EndpointPolicy,
    EvaluationConfig,
    ModelConfig,
    Named,
    PolicyConfig,
    ReportConfig,
    SandboxConfig,
    TrainConfig,
    VerifierConfig,
    written_out,
)
from motet.errors import ConfigError
from motet.settings import (
    AlarmBounds,
    Algorithm,
    Decode,
    GroupCredit,
    NoCredit,
    Optimizer,
    Plan,
    PolicyGradient,
    RewardModel,
    Schedule,
    Settings,
    ToolUse,
    Warmup,
    tupled,
    validation_error,
)
from motet.settings.flat_keys import SECTIONS, is_other, laid_on, lifted
from motet.user_code.plugins import is_reference

DEFAULT_ALGORITHM = "magrpo"
SettingsType = TypeVar("SettingsType", bound=Settings)


def _filled_from_its_row(value: Any) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("name", DEFAULT_ALGORITHM), str):
        return value
    name = value.get("name", DEFAULT_ALGORITHM)
    try:
        row = resolve(name, {}).model_dump(exclude_unset=True)
        return {**laid_on(row, lifted(tupled(value))), "name": name}
    except ConfigError as error:
        raise validation_error([(("name",), str(error))]) from error


def _known_parts(algorithm: Algorithm) -> Algorithm:
    try:
        resolve(algorithm.name, algorithm.model_dump())
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return algorithm


@dataclass(frozen=True)
class Places:
    """The file and line where each key is set. Configs with equal values are equal whatever their
    places."""

    of: Mapping[tuple[str | int, ...], str] = field(default_factory=dict, compare=False)
    dropped: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    """Section of the algorithm -> what a lower layer said in it for another kind."""


FOLDER_NAME = r"[\w][\w.+=-]{0,99}"
_RUN_NAME = r"[\w][\w.+=-]{0,199}"


def _run_name(name: str) -> str:
    if not re.fullmatch(_RUN_NAME, name):
        raise ValueError(
            f"got {name!r}, expected a folder name: at most 200 letters, digits and _ . - + ="
        )
    return name


class RunKeys(Settings):
    """Every key of a run config. `RunConfig` also checks that they fit together."""

    name: Annotated[str, AfterValidator(_run_name)]
    """The name of the run. The run folder is runs/NAME."""
    seed: NonNegativeInt = 0
    """The seed of the run. All random numbers are derived from it."""
    threads: AtOnce | None = None
    """Threads that torch uses on the CPU. The default is all of them. The number is recorded,
    because bit-exact results depend on it."""
    environment: Named
    """The environment and its options."""
    reward: Named | None = None
    """A custom reward that replaces the environment's, and its options."""
    centralized: CentralizedConfig | None = None
    """Play the environment with one policy that writes the completions of all its agents.
    `decode.max_new_tokens` is then the limit for all of them together."""
    data: DataConfig = DataConfig()
    """The source of the tasks."""
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    """Base models, by names of your choice. There may be none if all policies are behind
    endpoints."""
    warmup: Warmup | None = None
    """Supervised warm-up on demonstrations of the environment, before training."""
    policies: dict[str, PolicyConfig] = Field(min_length=1)
    """Policies, by names of your choice: each is a model of this run, or one behind an endpoint."""
    team: dict[
        str, Annotated[AgentConfig, BeforeValidator(lambda player: tupled(written_out(player)))]
    ] = Field(min_length=1)
    """Maps each agent of the environment to the policy that plays it. Agents with the same policy
    share its weights."""
    decode: Decode = Decode()
    """Sampling settings of all completions."""
    tools: ToolUse = ToolUse()
    """The limits of tool calls. `team.AGENT.tools` says which tools there are."""
    optimizer: Optimizer = Optimizer()
    """Optimizer settings of all trained policies."""
    rollout: Plan = Plan()
    """How many completions are sampled at each turn."""
    algorithm: Annotated[
        Algorithm, BeforeValidator(_filled_from_its_row), AfterValidator(_known_parts)
    ] = Field(default_factory=lambda: resolve(DEFAULT_ALGORITHM, {}))
    """The learning rule: the name of a row of the table in `motet.algorithms`, and the fields that
    differ from that row."""
    critic: CriticConfig | None = None
    """How critics are built and trained, if the algorithm uses critics. The defaults apply if it is
    left out."""
    reward_model: RewardModel | None = None
    """A model that learns the reward from pairs of joint actions. Its scores replace the
    environment's reward in training, not in evaluations."""
    comparator: ComparatorConfig | None = None
    """Who plays the second half of the answers that `compare: halves` compares. By default both
    halves are those of the team itself."""
    schedule: Schedule = Schedule()
    """Which policies are trained at which step."""
    train: TrainConfig
    """The length of training and the sizes of its batches."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation on the held-out tasks, without training."""
    alarms: AlarmBounds = AlarmBounds()
    """Bounds that raise an alarm when a team collapses."""
    report: ReportConfig = ReportConfig()
    """What is recorded."""
    sandbox: SandboxConfig = SandboxConfig()
    """The sandbox that runs code written by models."""
    expert: EndpointConfig | None = None
    """A model that gives feedback between turns, if the environment asks for one."""
    verifier: VerifierConfig | None = None
    """A model that scores completions, if the environment asks for one."""
    cluster: ClusterConfig | None = None
    """Run the models in processes of their own, on several GPUs and machines. By default all models
    are in this process."""
    _places: Places = PrivateAttr(Places())

    @classmethod
    def advises(cls, key: str) -> str | None:
        """Return where the meaning of another library's key is."""
        return foreign_advice(key)

    def model_post_init(self, context: Any) -> None:
        if context is not None:
            self._places = Places(context)

    @field_serializer("algorithm", mode="wrap")
    def _row_and_what_differs(
        self, value: Algorithm, handler: SerializerFunctionWrapHandler
    ) -> Any:
        return what_differs(value, resolve(value.name, {}))

    @property
    def places(self) -> Mapping[tuple[str | int, ...], str]:
        """Where each key is set, for error messages about options. Empty for a config built in
        Python."""
        return self._places.of

    @property
    def dropped(self) -> Mapping[str, Mapping[str, Any]]:
        """Section of the algorithm -> its keys of a layer below that which named its present kind.
        Empty for a config built in Python."""
        return self._places.dropped

    def with_dropped(self, dropped: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the config with these keys as `dropped`."""
        other = self.model_copy()
        other._places = replace(self._places, dropped=dropped)
        return other

    @property
    def frozen(self) -> frozenset[str]:
        """Policies that are never trained."""
        return frozenset(name for name, policy in self.policies.items() if policy.train == "frozen")

    @property
    def endpoints(self) -> Mapping[str, EndpointConfig]:
        """Policy -> its endpoint, for those that have one instead of a model."""
        return {
            name: policy.endpoint
            for name, policy in self.policies.items()
            if isinstance(policy, EndpointPolicy)
        }

    def model_of(self, *agents: str) -> str | None:
        """The model of the first policy of these agents that has one, in their order. None if all
        are behind endpoints."""
        names = [name for agent in agents for name in self.team[agent].policy]
        models = (self.policies[name].model for name in names)
        return next((model for model in models if model is not None), None)

    @property
    def teachers(self) -> Mapping[str, tuple[str, ...]]:
        """Agent -> its teachers, one per turn, for agents that have some."""
        return {name: one.teacher for name, one in self.team.items() if one.teacher}

    def without_teachers(self) -> Self:
        """Return the config as far as it plays: without teachers, and the policies and models that
        only they use."""
        if not self.teachers:
            return self
        taught = {
            agent: player.model_copy(update={"teacher": None})
            for agent, player in self.team.items()
        }
        playing = {name for player in taught.values() for name in player.policy}
        policies = {name: one for name, one in self.policies.items() if name in playing}
        loaded = {one.model for one in policies.values()}
        models = {name: one for name, one in self.models.items() if name in loaded}
        return self.model_copy(update={"team": taught, "policies": policies, "models": models})

    def decode_of(self, agent: str) -> Decode:
        """The sampling settings of `agent`: the common ones, overridden by its own."""
        return _over(self.decode, self.team[agent].decode)

    @property
    def critic_of(self) -> Mapping[str, str]:
        """Agent -> the name of its critic. Empty if the algorithm uses no critics.

        With own view, agents whose policies are all frozen have no critic.
        """
        if self.algorithm.critic is None:
            return {}
        if self.algorithm.critic.view == "joint":
            return dict.fromkeys(self.team, "critic-joint")
        first: dict[tuple[str, ...], str] = {}
        learning = [
            agent
            for agent, player in self.team.items()
            if not self.frozen.issuperset(player.policy)
        ]
        return {
            agent: first.setdefault(self.team[agent].policy, f"critic-{agent}")
            for agent in learning
        }

    def model_of_critic(self, critic: str) -> str | None:
        """The base model of a critic: its own, or that of the agents it values."""
        chosen = self.critic.model if self.critic is not None else None
        agents = [agent for agent, name in self.critic_of.items() if name == critic]
        return chosen or self.model_of(*agents)

    @property
    def critic_optimizer(self) -> Optimizer:
        """The optimizer settings of critics: the common ones, overridden by their own."""
        return _over(self.optimizer, self.critic.optimizer if self.critic is not None else None)

    @property
    def model_of_reward(self) -> str | None:
        """The base model of the reward model. None if all policies are behind endpoints."""
        chosen = self.reward_model.model if self.reward_model is not None else None
        return chosen or self.model_of(*self.team)

    def optimizer_of(self, policy: str) -> Optimizer:
        """The optimizer settings of `policy`: the common ones, overridden by its own."""
        return _over(self.optimizer, self.policies[policy].optimizer)


def _over(common: SettingsType, own: SettingsType | None) -> SettingsType:
    return (
        common
        if own is None
        else common.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})
    )


# ---------------------------------------------------------------------- checks between the sections


Complaint: TypeAlias = tuple[tuple[str, ...], str]
"""The key, and what is wrong with it."""


def complaints_of(config: RunKeys) -> list[Complaint]:
    """Return what is wrong in a config, of the first check that finds something."""
    return (
        _unfit_names(config)
        or _absent_names(config)
        or _endless_thinking(config)
        or _unfit_critic(config)
        or _unfit_reward_model(config)
        or _unfit_schedule(config)
        or _unfit_pairs(config)
        or _unfit_sampling(config)
        or _unfit_lag(config)
        or _unfit_comparator(config)
        or _unfit_teachers(config)
        or _unfit_snapshots(config)
        or _unused_names(config)
        or _quantised_and_trained(config)
    )


def _endless_thinking(config: RunKeys) -> list[Complaint]:
    """Check that every agent may write more tokens than it may think."""
    found: list[Complaint] = []
    for agent in config.team:
        decode = config.decode_of(agent)
        most = None if decode.thinking is None else decode.thinking.max_tokens
        if most is not None and most >= decode.max_new_tokens:
            text = (
                f"team.{agent} has decode.thinking.max_tokens {most} and decode.max_new_tokens "
                f"{decode.max_new_tokens}, which counts the thinking, too; expected fewer tokens "
                "of thinking"
            )
            found.append((("team", agent), text))
    return found


def _unfit_names(config: RunKeys) -> list[Complaint]:
    """Check the names of policies and models: they are also the names of their folders."""
    named = [
        (section, name) for section in ("models", "policies") for name in getattr(config, section)
    ]
    advice = "expected a folder name: letters, digits and _ . - + ="
    return [
        (key, f"{'.'.join(key)}: {advice}")
        for key in named
        if not re.fullmatch(FOLDER_NAME, key[1])
    ]


def _absent_names(config: RunKeys) -> list[Complaint]:
    found: list[Complaint] = []
    turns = len(config.rollout.samples)
    for agent, player in config.team.items():
        for name in player.policy:
            if name not in config.policies:
                known = ", ".join(config.policies)
                text = (
                    f"team.{agent} names policy {name!r}; policies are: {known}. Use one of "
                    f"these, or add policies.{name}"
                )
                found.append((("team", agent), text))
        if len(player.policy) > turns:
            text = (
                f"team.{agent} lists {len(player.policy)} policies, but rollout.samples has "
                f"{turns} turn(s): list at most one per turn"
            )
            found.append((("team", agent), text))
    for name, policy in config.policies.items():
        if policy.model not in (None, *config.models):
            text = (
                f"policies.{name} names model {policy.model!r}; models are: "
                f"{', '.join(config.models) or '(none)'}"
            )
            found.append((("policies", name), text))
    if config.critic is not None and config.critic.model not in (None, *config.models):
        text = f"critic.model is {config.critic.model!r}; models are: {', '.join(config.models)}"
        found.append((("critic", "model"), text))
    wanted = config.reward_model
    if wanted is not None and wanted.model not in (None, *config.models):
        text = f"reward_model.model is {wanted.model!r}; models are: {', '.join(config.models)}"
        found.append((("reward_model", "model"), text))
    return found


def _unfit_critic(config: RunKeys) -> list[Complaint]:
    rule, critic = config.algorithm.critic, config.critic
    if rule is None:
        text = (
            f"critic is set, but algorithm {config.algorithm.name} has none: set "
            "algorithm.credit.kind: critic, or drop critic"
        )
        return [] if critic is None else [(("critic",), text)]
    taken = [name for name in config.policies if name in config.critic_of.values()]
    if taken:
        return [
            (
                ("policies", taken[0]),
                f"policies.{taken[0]} has the same name as a critic: rename it",
            )
        ]
    critic = critic or CriticConfig()
    if critic.train == "policy" and rule.view == "joint":
        text = (
            "critic.train is policy, but a critic with credit.view joint cannot share the "
            "weights of one policy: use full, lora or head"
        )
        return [(("critic", "train"), text)]
    if critic.train == "policy" and any(len(player.policy) > 1 for player in config.team.values()):
        text = "critic.train is policy, but an agent has a policy per turn: use full, lora or head"
        return [(("critic", "train"), text)]
    return _unfit_for_tokens(config, critic) if rule.scope == "token" else []


def _unfit_for_tokens(config: RunKeys, critic: CriticConfig) -> list[Complaint]:
    """Check that a critic that values tokens reads those of its policies."""
    used = {
        agent: {config.policies[name].model for name in player.policy}
        for agent, player in config.team.items()
    }
    read = {model for models in used.values() for model in models if model is not None}
    if critic.model is not None and read != {critic.model}:
        text = (
            f"critic.model is {critic.model}, but scope token needs the models of the "
            f"policies, which are {', '.join(sorted(read))}: drop critic.model"
        )
        return [(("critic", "model"), text)]
    for agent, models in used.items():
        if len(models) > 1:
            named = sorted(model or "one behind an endpoint" for model in models)
            text = (
                f"team.{agent} uses the models {', '.join(named)}, but scope token "
                "needs one model per agent: use one model"
            )
            return [(("team", agent), text)]
    return []


def _unfit_reward_model(config: RunKeys) -> list[Complaint]:
    wanted, turns = config.reward_model, len(config.rollout.samples)
    if wanted is None:
        return []
    if turns > 1:
        text = (
            f"reward_model compares joint actions of one turn, but rollout.samples has {turns} "
            "turns: use one turn, or drop reward_model"
        )
        return [(("reward_model",), text)]
    if wanted.compare == "halves" and config.rollout.pairing != "aligned":
        text = (
            "reward_model.compare halves needs one joint action per sample, got "
            f"rollout.pairing {config.rollout.pairing}: set rollout.pairing: aligned"
        )
        return [(("reward_model", "compare"), text)]
    if (absent := plays_absent(config.algorithm)) != "none":
        text = (
            f"algorithm {config.algorithm.name} compares with joint actions without "
            f"{'an agent' if absent == 'one' else 'some agents'}, which a learned reward does not "
            "judge: use another baseline, or drop reward_model"
        )
        return [(("reward_model",), text)]
    if "reward-model" in config.policies:
        text = "policies.reward-model has the name of the reward model: rename it"
        return [(("policies", "reward-model"), text)]
    if config.train.steps is not None and wanted.iterations > config.train.steps:
        text = (
            f"reward_model.iterations is {wanted.iterations}, but train.steps is "
            f"{config.train.steps}: use at most one iteration per step"
        )
        return [(("reward_model", "iterations"), text)]
    return []


def _unfit_schedule(config: RunKeys) -> list[Complaint]:
    if config.schedule.kind != "sequential":
        return []
    algorithm, trained = (
        config.algorithm,
        [name for name in config.policies if name not in config.frozen],
    )
    why = ""
    if algorithm.pairs is not None:
        why = "the loss of a pair holds the policies of all agents: use kind: simultaneous"
    elif algorithm.importance_sampling == "none":
        why = (
            "it weighs games by importance ratios, got algorithm.importance_sampling none: use auto"
        )
    elif algorithm.importance_ratio in ("sequence", "token"):
        why = (
            "its ratios are those of joint actions, got algorithm.importance_ratio "
            f"{algorithm.importance_ratio}: use joint"
        )
    elif len(trained) < 2:
        why = f"it is for several policies that learn, got {len(trained)}: use kind: simultaneous"
    return [(("schedule", "kind"), f"schedule.kind sequential: {why}")] if why else []


def _unfit_pairs(config: RunKeys) -> list[Complaint]:
    pairs = config.algorithm.pairs
    if pairs is None:
        return []
    mode = pairs.replay.mode
    if mode != "current" and config.train.steps == 1:
        text = (
            f"algorithm.credit.replay.mode is {mode}, but train.steps is 1, so there are "
            "no earlier pairs: raise train.steps, or use mode: current"
        )
        return [(("algorithm", "credit"), text)]
    if mode != "current" and config.report.episodes == "none":
        text = (
            f"algorithm.credit.replay.mode {mode} reads the recorded "
            "episodes of earlier steps, but report.episodes is none: set report.episodes: all"
        )
        return [(("report", "episodes"), text)]
    linear = [
        name
        for name in config.policies
        if name not in config.frozen and config.optimizer_of(name).schedule == "linear"
    ]
    if pairs.batch_size is not None and linear:
        text = (
            f"algorithm.credit.batch_size is set, and policy {linear[0]} has "
            "optimizer.schedule: linear, but the number of gradient steps is then not known: "
            "use schedule: constant, or algorithm.minibatches in place of batch_size"
        )
        return [(("algorithm", "credit"), text)]
    return []


def _unfit_sampling(config: RunKeys) -> list[Complaint]:
    """Check that a step draws its tasks, where it is said which ones."""
    kind, length = config.train.task_sampling.kind, config.train
    if kind == "uniform":
        return []
    why = ""
    if length.epochs is not None:
        why = f"makes no pass over all tasks, got train.epochs {length.epochs}: set train.steps"
    elif length.tasks_per_step == "all":
        why = "draws the tasks of a step, got train.tasks_per_step all: set a number"
    elif config.rollout.refill:
        why = (
            f"draws the tasks of a step itself, got rollout.refill {config.rollout.refill}, which "
            "draws further ones evenly: set refill: 0, or task_sampling.kind: uniform"
        )
    return [(("train", "task_sampling"), f"train.task_sampling {kind} {why}")] if why else []


def _unfit_lag(config: RunKeys) -> list[Complaint]:
    if config.train.max_lag and config.alarms.rollback is not None:
        text = (
            "alarms.rollback returns to earlier weights, but with train.max_lag 1 the next step is "
            "already played with the ones that it leaves: set rollback: null, or train.max_lag: 0"
        )
        return [(("alarms", "rollback"), text)]
    if not config.train.max_lag or config.report.episodes != "none":
        return []
    text = (
        "train.max_lag 1 resumes from the recorded episodes of the step that was played ahead, "
        "but report.episodes is none: set report.episodes: all, or train.max_lag: 0"
    )
    return [(("report", "episodes"), text)]


def _unfit_comparator(config: RunKeys) -> list[Complaint]:
    comparator, turns = config.comparator, len(config.rollout.samples)
    if comparator is None:
        return []
    pairs = config.algorithm.pairs
    halves = [one for one in (pairs, config.reward_model) if one and one.compare == "halves"]
    if not halves:
        text = (
            "comparator plays the second half of the answers, but nothing compares halves: set "
            "compare: halves in algorithm.credit or reward_model, or drop comparator"
        )
        return [(("comparator",), text)]
    if turns > 1:
        text = (
            f"comparator answers in games of one turn, but rollout.samples has {turns} turns: use "
            "one turn, or drop comparator"
        )
        return [(("comparator",), text)]
    if config.cluster is not None:
        text = "comparator does not work with models in processes of their own: drop cluster"
        return [(("comparator",), text)]
    playing = [name for player in config.team.values() for name in player.policy]
    still = [name for name in playing if name in config.frozen]
    if still and pairs is not None:
        text = (
            f"policy {still[0]} is frozen, so the comparator's answers have no log-probabilities "
            "under it: train it, or drop comparator"
        )
        return [(("comparator",), text)]
    return []


def _unfit_teachers(config: RunKeys) -> list[Complaint]:
    """Check that teachers are frozen models, and that something is learned from them."""
    for agent, names in config.teachers.items():
        wrong = ""
        unknown = [name for name in names if name not in config.policies]
        trained = [name for name in names if name not in {*config.frozen, *unknown}]
        away = [name for name in names if name in config.endpoints]
        if unknown:
            wrong = (
                f"names policy {unknown[0]!r}; policies are: {', '.join(config.policies)}. Use one "
                f"of these, or add policies.{unknown[0]}"
            )
        elif trained:
            wrong = f"names policy {trained[0]}, which is trained: use one with train: frozen"
        elif moving := [name for name in names if config.policies[name].snapshots is not None]:
            wrong = f"names policy {moving[0]}, whose weights change: use one without snapshots"
        elif away:
            wrong = (
                f"names policy {away[0]}, whose endpoint gives no log-probabilities of what others "
                "wrote: use one with a model"
            )
        elif config.algorithm.kl is None:
            wrong = (
                f"is set, but algorithm {config.algorithm.name} has no KL divergence from it: set "
                "algorithm: distillation, or algorithm.kl"
            )
        elif config.algorithm.reset_every is not None:
            wrong = "does not move: drop algorithm.kl.reset_every"
        elif config.cluster is not None:
            wrong = "does not work with models in processes of their own: drop cluster"
        elif config.frozen.issuperset(config.team[agent].policy):
            wrong = f"is set, but {agent} does not learn: train its policy, or drop teacher"
        if wrong:
            return [(("team", agent, "teacher"), f"team.{agent}.teacher {wrong}")]
    if isinstance(config.algorithm.credit, NoCredit) and not config.teachers:
        text = (
            "algorithm.credit.kind none learns from teachers alone, but no agent has one: set "
            "team.AGENT.teacher, or use credit.kind: group (motet distill RUN sets all that a "
            "distillation needs)"
        )
        return [(("algorithm",), text)]
    return []


def _unfit_snapshots(config: RunKeys) -> list[Complaint]:
    """Check that snapshots are those of a trained policy on the same model, in this process."""
    playing = {name for player in config.team.values() for name in player.policy}
    trained = [name for name in config.policies if name in playing - config.frozen]
    found: list[Complaint] = []
    for name, policy in config.policies.items():
        if policy.snapshots is None:
            continue
        of, key = policy.snapshots.of, ("policies", name, "snapshots")
        if of not in trained:
            text = (
                f"policies.{name}.snapshots.of is {of!r}; expected a policy of the team that is "
                f"trained: {', '.join(trained) or '(none)'}"
            )
        elif policy.model != config.policies[of].model:
            text = (
                f"policies.{name} has model {policy.model}, but its snapshots are those of {of}, "
                f"whose model is {config.policies[of].model}: use the same"
            )
        elif config.cluster is not None:
            text = (
                f"policies.{name}.snapshots do not work with models in processes of their own: "
                "drop cluster, or snapshots"
            )
        elif config.train.max_lag:
            text = (
                f"policies.{name}.snapshots are drawn among those of all steps before, but with "
                "train.max_lag 1 a step is played before the last one is learnt: set "
                "train.max_lag: 0"
            )
        else:
            continue
        found.append((key, text))
    return found


def _unused_names(config: RunKeys) -> list[Complaint]:
    playing = {name for player in config.team.values() for name in player.policy}
    playing |= {name for names in config.teachers.values() for name in names}
    playing |= config.frozen if config.comparator is not None else set()  # it may play with them
    loaded = {policy.model for policy in config.policies.values()}
    if config.critic is not None and config.critic.model is not None:
        loaded.add(config.critic.model)
    if config.reward_model is not None and config.reward_model.model is not None:
        loaded.add(config.reward_model.model)
    idle = [
        ("policies", name, "is not used by any agent: add it to team")
        for name in config.policies
        if name not in playing
    ]
    idle += [
        ("models", name, "is not used by any policy: use it in policies")
        for name in config.models
        if name not in loaded
    ]
    return [
        ((section, name), f"{section}.{name} {text}, or drop it") for section, name, text in idle
    ]


def _quantised_and_trained(config: RunKeys) -> list[Complaint]:
    """Refuse to train all weights of a quantized model: gradient steps are far smaller than
    what 8 bits resolve."""
    found: list[Complaint] = []
    critic = config.critic or CriticConfig()
    valued = {config.model_of_critic(name) for name in config.critic_of.values()}
    for model, base in config.models.items():
        if base.quantize == "none":
            continue
        fewer = f"models.{model} has quantize: {base.quantize}"
        for name, policy in config.policies.items():
            if policy.model == model and policy.train == "full":
                text = (
                    f"policies.{name} has train: full, but {fewer}: use train: lora or "
                    "frozen, or quantize: none"
                )
                found.append((("policies", name), text))
        if critic.train == "full" and model in valued:
            text = (
                f"critic has train: full, but {fewer}: use critic.train=lora or head, or "
                "another critic.model"
            )
            found.append((("critic",), text))
        wanted = config.reward_model
        if wanted is not None and wanted.train == "full" and model == config.model_of_reward:
            text = (
                f"reward_model has train: full, but {fewer}: use reward_model.train=lora or "
                "head, or another reward_model.model"
            )
            found.append((("reward_model",), text))
        if config.warmup is not None:
            text = (
                f"warmup trains all weights, but {fewer}: drop warmup (warmup: null), or use "
                "quantize: none"
            )
            found.append((("warmup",), text))
    return found


class RunConfig(RunKeys):
    """The complete config of a run."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        complaints = complaints_of(self)
        if complaints:
            raise validation_error(complaints)
        return self


def check_trainable(config: RunConfig) -> None:
    """Check that the config can be trained. Evaluation does not need this.

    Raises: ConfigError if no policy is trained, or if the algorithm has nothing to compare under
    this plan.
    """
    if config.frozen == set(config.policies):
        away = " or behind an endpoint" if config.endpoints else ""
        raise ConfigError(
            f"every policy is frozen{away} ({', '.join(config.policies)}); expected at least one "
            "with train: full or lora: set it, or use motet evaluate"
        )
    check_plan(config.algorithm, config.rollout, len(config.team))
    tasks = config.train.tasks_per_step
    played = 2 if tasks == "all" else tasks * config.rollout.samples[0]
    critic = config.algorithm.critic
    if critic is not None and critic.whiten and played < 2:
        raise ConfigError(
            "algorithm.credit.whiten needs at least 2 advantages per step, but "
            f"train.tasks_per_step {config.train.tasks_per_step} with rollout.samples "
            f"{list(config.rollout.samples)} "
            f"gives {played} at turn 1: raise one of them, or set whiten: false"
        )


def what_differs(algorithm: Algorithm, row: Algorithm) -> dict[str, Any]:
    """Return the fields of an algorithm that differ from its row, as plain values.

    A section of the row's kind has its kind and what differs; of another kind it has all that is
    not derived.
    """
    said, usual = algorithm.model_dump(mode="json"), row.model_dump(mode="json")
    found = {key: item for key, item in said.items() if key == "name" or item != usual[key]}
    for key in SECTIONS:
        section, below = found.get(key), usual[key]
        if section is None:
            continue
        other = below is None or is_other(below, section, "kind")
        found[key] = {
            name: item
            for name, item in section.items()
            if name == "kind"
            or (f"{key}.{name}" not in algorithm.underived if other else item != below[name])
        }
    return found


# --------------------------------------------------------------------------------- read for looking


class AlgorithmOfCode(Algorithm):
    """An algorithm whose row is code that was not loaded. Only the fields in `model_fields_set` are
    known, and sections that the row completes are as they were written."""

    credit: Any = GroupCredit()
    """The keys of `credit` that the config has."""
    loss: Any = PolicyGradient()
    """The keys of `loss` that the config has."""
    kl: Any = None
    """The keys of `kl` that the config has."""

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        return self  # whether the fields fit together depends on the row


def _filled(value: Any) -> Any:
    name = value.get("name", DEFAULT_ALGORITHM) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(name, str):
        return value
    said = {**lifted(tupled(value)), "name": name}
    if name in ALGORITHMS:
        return laid_on(ALGORITHMS[name].model_dump(exclude_unset=True), said)
    if is_reference(name):
        return AlgorithmOfCode.model_validate(said)
    try:
        return resolve(name, {})
    except ConfigError as error:
        raise validation_error([(("name",), str(error))]) from error


def _of_row_or_code(value: Any, handler: ValidatorFunctionWrapHandler) -> Algorithm:
    filled = _filled(value)
    if isinstance(filled, AlgorithmOfCode):
        return filled
    algorithm: Algorithm = handler(filled)
    try:
        check_names(algorithm)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return algorithm


class RecordedConfig(RunKeys):
    """The complete config of a run, for looking: it loads nothing that it names.

    `RunConfig` resolves the names of its algorithm, which may be Python files. A run folder may
    come from a stranger, so whatever only looks at a run reads this class in its place.
    """

    algorithm: Annotated[Algorithm, WrapValidator(_of_row_or_code)] = Field(
        default_factory=lambda: resolve(DEFAULT_ALGORITHM, {})
    )
    """The learning rule. Its fields are complete if its row is known without loading code."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        unknown = isinstance(self.algorithm, AlgorithmOfCode)
        complaints = [] if unknown else complaints_of(self)
        if complaints:
            raise validation_error(complaints)
        return self

    @field_serializer("algorithm", mode="wrap")
    def _row_and_what_differs(
        self, value: Algorithm, handler: SerializerFunctionWrapHandler
    ) -> Any:
        if isinstance(value, AlgorithmOfCode):
            return value.model_dump(mode="json", exclude_unset=True)
        return what_differs(value, ALGORITHMS[value.name])
