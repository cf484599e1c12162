"""Which process trains what: the homes of a run with a `cluster` section."""

from dataclasses import dataclass

from motet.assembly.models import optimizer_of_critic
from motet.config.schema import RunConfig
from motet.core import Team
from motet.errors import ConfigError
from motet.trainer.components import REWARD_MODEL


@dataclass(frozen=True)
class HomePlan:
    """The processes of one base model in training, and everything that lives there.

    It has a fully trained policy with its reference, or a model with its adapters and frozen
    policies. Each critic lives with the first policy of its agents that is not behind an endpoint,
    and the reward model with the first of the team.
    """

    name: str
    """The name of the policy, or of the model that carries adapters and frozen policies."""
    model: str
    policies: tuple[str, ...]
    critics: tuple[str, ...]
    gpus: int
    ranks: int
    """The number of its processes: one for each GPU."""
    full: bool
    """Whether its policy trains all weights. Several processes then have a shard of them each."""

    @property
    def residents(self) -> tuple[str, ...]:
        """All policies and critics that live here."""
        return (*self.policies, *self.critics)


def homes_of(config: RunConfig, team: Team) -> list[HomePlan]:
    """Return the homes of a run, in the order of the team's policies.

    Raises: ConfigError for two homes of one name, for GPUs of an unknown home, for a model whose
    device does not go with the GPUs of its home, and for an optimizer that cannot train shards.
    """
    assert config.cluster is not None
    policies: dict[tuple[str, str], list[str]] = {}
    """(kind, name of the home) -> its policies."""
    home_of: dict[str, tuple[str, str]] = {}
    for name in team.policies:
        chosen = config.policies[name]
        if chosen.model is None:  # behind an endpoint
            continue
        home = ("policies", name) if chosen.train == "full" else ("models", chosen.model)
        policies.setdefault(home, []).append(name)
        home_of[name] = home
    critics: dict[tuple[str, str], list[str]] = {home: [] for home in policies}
    for critic in dict.fromkeys(team.critics.values()):
        valued = [agent for agent in team.critics if team.critics[agent] == critic]
        played = [name for agent in valued for name in team.agents[agent] if name in home_of]
        critics[home_of[played[0]]].append(critic)
    if config.reward_model is not None:
        critics[next(iter(home_of.values()))].append(REWARD_MODEL)
    names = [name for _, name in policies]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"policies.{name} and models.{name} would both be the home {name}; expected "
                "different names: rename one of them"
            )
    learners = config.cluster.learners
    unknown = sorted(set(learners.gpus_of) - set(names))
    if unknown:
        raise ConfigError(
            f"cluster.learners.gpus_of names {unknown[0]}; homes are: {', '.join(names)}"
        )
    found = []
    for home, own in policies.items():
        gpus = learners.gpus_of.get(home[1], learners.gpus)
        model = config.policies[own[0]].model
        assert model is not None
        _check_device(config, home[1], model, gpus)
        ranks, full = gpus or learners.ranks, home[0] == "policies"
        here = tuple(own), tuple(critics[home])
        found.append(HomePlan(home[1], model, *here, gpus, ranks, full))
        _check_optimizers(config, found[-1])
    return found


def _check_device(config: RunConfig, home: str, model: str, gpus: int) -> None:
    device = config.models[model].device
    expected = "auto or cuda" if gpus else "auto or cpu"
    if device not in expected.split(" or "):
        raise ConfigError(
            f"models.{model}.device is {device}, but home {home} has {gpus} GPUs by "
            f"cluster.learners; expected {expected}, because Ray chooses the GPU"
        )


def _check_optimizers(config: RunConfig, home: HomePlan) -> None:
    if not home.full or home.ranks == 1:
        return
    settings = {name: config.optimizer_of(name) for name in home.policies}
    settings |= {name: optimizer_of_critic(name, config) for name in home.critics}
    for name, optimizer in settings.items():
        if optimizer.kind == "adamw_8bit":
            raise ConfigError(
                f"the optimizer of {name} is adamw_8bit, but the {home.ranks} processes of home "
                f"{home.name} divide its weights among them, which bitsandbytes cannot train: use "
                "kind: adamw, or one process (cluster.learners)"
            )
