"""The keys of a run config: sections of `parts` and `services`, and records of `settings`.

A single agent or policy may override common settings (`team.aux.decode`, `policies.aux.optimizer`).
It sets only the fields that differ; `decode_of` and `optimizer_of` return the complete settings.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_serializer,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from motet.algorithms import resolve
from motet.config.cluster import ClusterConfig
from motet.config.foreign_keys import foreign_advice
from motet.config.parts import (
    AgentConfig,
    AtOnce,
    CentralizedConfig,
    CriticConfig,
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    Named,
    PolicyConfig,
    TrainConfig,
    written_out,
)
from motet.config.report import ReportConfig
from motet.config.services import (
    ComparatorConfig,
    EndpointConfig,
    SandboxConfig,
    VerifierConfig,
)
from motet.errors import ConfigError
from motet.settings import (
    AlarmBounds,
    Algorithm,
    Decode,
    Optimizer,
    Plan,
    RewardModel,
    Schedule,
    Settings,
    Warmup,
)

DEFAULT_ALGORITHM = "magrpo"
SettingsType = TypeVar("SettingsType", bound=Settings)


def tupled(value: Any) -> Any:
    """Convert lists to tuples.

    Behind a validator that runs before, strict validation sees Python values and accepts no list
    where a tuple is expected.
    """
    if isinstance(value, Mapping):
        return {key: tupled(item) for key, item in value.items()}
    return tuple(tupled(item) for item in value) if isinstance(value, list | tuple) else value


def _filled_from_its_row(value: Any) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("name", DEFAULT_ALGORITHM), str):
        return value
    name = value.get("name", DEFAULT_ALGORITHM)
    try:
        return {**resolve(name, {}).model_dump(), **tupled(value), "name": name}
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


FOLDER_NAME = r"[\w][\w.+=-]{0,99}"
_RUN_NAME = r"[\w][\w.+=-]{0,199}"


def _run_name(name: str) -> str:
    if not re.fullmatch(_RUN_NAME, name):
        raise ValueError(
            f"got {name!r}, expected a folder name: at most 200 letters, digits and _ . - + ="
        )
    return name


class RunKeys(Settings):
    """Every key of a run config. `schema.RunConfig` also checks that they fit together."""

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
    models: dict[str, ModelConfig] = Field(min_length=1)
    """Base models, by names of your choice."""
    warmup: Warmup | None = None
    """Supervised warm-up on demonstrations of the environment, before training."""
    policies: dict[str, PolicyConfig] = Field(min_length=1)
    """Policies, by names of your choice."""
    team: dict[
        str, Annotated[AgentConfig, BeforeValidator(lambda player: tupled(written_out(player)))]
    ] = Field(min_length=1)
    """Maps each agent of the environment to the policy that plays it. Agents with the same policy
    share its weights."""
    decode: Decode = Decode()
    """Sampling settings of all completions."""
    optimizer: Optimizer = Optimizer()
    """Optimizer settings of all trained policies."""
    rollout: Plan = Plan()
    """How many completions are sampled at each turn."""
    algorithm: Annotated[
        Algorithm, BeforeValidator(_filled_from_its_row), AfterValidator(_known_parts)
    ] = Field(default_factory=lambda: resolve(DEFAULT_ALGORITHM, {}))
    """The learning rule: the name of a row of the table in `motet.algorithms`, and the fields that
    differ from that row."""
    credit: str | None = None
    """Your own credit function, at package.module:NAME or ./file.py:NAME. It gets a
    `motet.CreditStep` and returns the advantage of each sample, which replaces that of the
    algorithm."""
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
        row = resolve(value.name, {}).model_dump(mode="json")
        return {
            key: item
            for key, item in value.model_dump(mode="json").items()
            if key == "name" or item != row[key]
        }

    @property
    def places(self) -> Mapping[tuple[str | int, ...], str]:
        """Where each key is set, for error messages about options. Empty for a config built in
        Python."""
        return self._places.of

    @property
    def frozen(self) -> frozenset[str]:
        """Policies that are never trained."""
        return frozenset(name for name, policy in self.policies.items() if policy.train == "frozen")

    def decode_of(self, agent: str) -> Decode:
        """The sampling settings of `agent`: the common ones, overridden by its own."""
        return _over(self.decode, self.team[agent].decode)

    @property
    def critic_of(self) -> Mapping[str, str]:
        """Agent -> the name of its critic. Empty if the algorithm uses no critics.

        With own view, agents whose policies are all frozen have no critic.
        """
        if self.algorithm.critic_view is None:
            return {}
        if self.algorithm.critic_view == "joint":
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

    @property
    def critic_optimizer(self) -> Optimizer:
        """The optimizer settings of critics: the common ones, overridden by their own."""
        return _over(self.optimizer, self.critic.optimizer if self.critic is not None else None)

    @property
    def model_of_reward(self) -> str:
        """The base model of the reward model."""
        chosen = self.reward_model.model if self.reward_model is not None else None
        first = next(iter(self.team.values())).policy[0]
        return chosen or self.policies[first].model

    def optimizer_of(self, policy: str) -> Optimizer:
        """The optimizer settings of `policy`: the common ones, overridden by its own."""
        return _over(self.optimizer, self.policies[policy].optimizer)


def _over(common: SettingsType, own: SettingsType | None) -> SettingsType:
    return (
        common
        if own is None
        else common.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})
    )


def validation_error(problems: Sequence[tuple[tuple[str, ...], str]]) -> ValidationError:
    """Build a ValidationError for these keys. Pydantic merges it with its own errors."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("motet", "{text}", {"text": text}), loc=location, input=None
        )
        for location, text in problems
    ]
    return ValidationError.from_exception_data("config", details)
