"""The homes of a run's config: what each backbone in training holds, and what it does in a step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from motet.config.schema import RunConfig
from motet.config.sections import CriticConfig
from motet.errors import ConfigError
from motet.models.memory import Shape
from motet.planning.batches import rows_played, tokens_learnt
from motet.planning.layouts import HomeNeeds
from motet.planning.throughput import Workload
from motet.settings import Lora


def home_needs(
    config: RunConfig,
    shapes: Mapping[str, Shape],
    prompts: Mapping[str, int],
    tasks: int,
    completion_tokens: int | None = None,
    evaluated: int = 0,
) -> list[HomeNeeds]:
    """Return the homes of a config.

    Args:
        shapes: the shape of each model.
        prompts: tokens of each agent's first prompt.
        tasks: tasks per step.
        completion_tokens: the mean length of a completion. The default is the longest.
        evaluated: games of an evaluation, if that is known.

    Raises: ConfigError if no policy is trained.
    """
    if config.frozen == set(config.policies):
        raise ConfigError("every policy is frozen; expected one with train: full or lora")
    homes: dict[str, HomeNeeds] = {}
    for name, policy in config.policies.items():
        if policy.train == "frozen":
            continue
        shape, adapter = shapes[policy.model], policy.train == "lora"
        work = _work(config, name, shape, prompts, tasks, completion_tokens)
        of = policy.model if adapter else name
        trained = shape.adapter(policy.lora or Lora()) if adapter else shape.parameters
        grown = homes.get(of) or _empty(
            config, of, policy.model, shape, adapter, prompts, tasks, evaluated
        )
        homes[of] = replace(
            grown,
            trained=grown.trained + trained,
            works=(*grown.works, work),
            optimizer=config.optimizer_of(name).kind,
        )
    for critic in dict.fromkeys(config.critic_of.values()):
        _add_critic(config, homes, shapes, critic, prompts, tasks)
    return list(homes.values())


def _empty(
    config: RunConfig,
    name: str,
    model: str,
    shape: Shape,
    adapter: bool,
    prompts: Mapping[str, int],
    tasks: int,
    evaluated: int,
) -> HomeNeeds:
    base, turns = config.models[model], len(config.rollout.samples)
    longest = max(
        prompts[agent] + turns * config.decode_of(agent).max_new_tokens for agent in config.team
    )
    return HomeNeeds(
        name=name,
        shape=shape,
        trained=0,
        adapter=adapter,
        reference=not adapter and config.algorithm.needs_reference,
        works=(),
        width=4 if base.dtype == "float32" else 2,
        quantize=base.quantize,
        batch_tokens=tokens_learnt(config, tasks, prompts, model, by_critics=False),
        checkpointing=base.checkpointing,
        rows=max(1, rows_played(config, tasks, evaluated, model, longest)),
        row_tokens=longest,
    )


def _played(config: RunConfig, policy: str) -> Sequence[tuple[str, int]]:
    """Return the (agent, turn) pairs that a policy plays."""
    return [
        (agent, turn)
        for agent, player in config.team.items()
        for turn in range(len(config.rollout.samples))
        if player.policy[min(turn, len(player.policy) - 1)] == policy
    ]


def _work(
    config: RunConfig,
    policy: str,
    shape: Shape,
    prompts: Mapping[str, int],
    tasks: int,
    completion_tokens: int | None,
) -> Workload:
    """Return what a policy does in a step. A prompt grows by one completion per turn."""
    from motet.batch import weighs_completions

    plan, rounds_T = config.rollout, config.rollout.rounds(len(config.team))
    asked = completions = 0
    read = said = 0.0
    for agent, turn in _played(config, policy):
        answer = completion_tokens or config.decode_of(agent).max_new_tokens
        rounds = tasks * rounds_T[turn]
        asked += rounds
        completions += rounds * plan.samples[turn]
        read += rounds * (prompts[agent] + turn * answer)
        said += rounds * plan.samples[turn] * answer
    if not completions:
        raise ConfigError(
            f"policies.{policy} plays no agent at any turn: drop it, or name it in team"
        )
    model = config.policies[policy].model
    return Workload(
        completions=completions,
        prompt_tokens=read / asked,
        completion_tokens=said / completions,
        per_prompt=completions / asked,
        parameters=shape.parameters,
        adapter=config.policies[policy].train == "lora",
        reference=config.algorithm.needs_reference,
        present=weighs_completions(config.algorithm, config.train.max_lag),
        checkpointing=config.models[model].checkpointing,
        epochs=config.algorithm.epochs,
    )


def _add_critic(
    config: RunConfig,
    homes: dict[str, HomeNeeds],
    shapes: Mapping[str, Shape],
    critic: str,
    prompts: Mapping[str, int],
    tasks: int,
) -> None:
    """Add a critic to the home of the policy that plays its first agent at the first turn.

    It scores and learns from every completion of that agent, each with its whole prompt.
    """
    chosen = config.critic or CriticConfig()
    agent = next(agent for agent, name in config.critic_of.items() if name == critic)
    name = config.team[agent].policy[0]
    policy = config.policies[name]
    of = name if policy.train == "full" else policy.model
    home = homes.get(of) or next(iter(homes.values()))
    shape = shapes[chosen.model or policy.model]
    work = replace(
        home.works[0],
        per_prompt=1.0,
        parameters=shape.parameters,
        adapter=chosen.train in ("lora", "head"),
        reference=True,
        present=False,
        epochs=chosen.epochs or config.algorithm.epochs,
        plays=False,
    )
    trunk = {"full": shape.parameters, "lora": shape.adapter(chosen.lora or Lora())}
    trained = home.trained + trunk.get(chosen.train, 0) + shape.hidden + 1
    tokens = tokens_learnt(config, tasks, prompts, chosen.model or policy.model, by_critics=True)
    homes[home.name] = replace(
        home,
        trained=trained,
        works=(*home.works, work),
        batch_tokens=max(home.batch_tokens, tokens),
    )
