"""Play one task and return its Episode, a tree of Rounds.

    observe -> sample all acting agents -> pair their samples -> step every joint action
            -> choose the outcomes to expand -> repeat below them

A failed joint action becomes a Fault on its Outcome; its siblings stay. If a whole Round fails
(observing or sampling fails, or every joint action fails), the parent Outcome is marked as failed,
or the Episode if there is no parent. Kept as a leaf, the parent would silently count as a zero
return, although its return is unknown. So every valid Outcome that was expanded has a valid Outcome
below it.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from motet.core import (
    Completion,
    Environment,
    Episode,
    Fault,
    Message,
    Outcome,
    Path,
    Prompt,
    Reply,
    Round,
    SampleRequest,
    Task,
    Team,
    Transition,
)
from motet.errors import ConfigError, EnvironmentFault
from motet.rollout.faults import again, attempt
from motet.rollout.halves import halves, joined
from motet.rollout.pairing import joint_actions
from motet.rollout.prompts import with_system
from motet.rollout.stopping import end_of, mean_reward, stopped_together
from motet.rollout.waves import Waves
from motet.seeding import derive
from motet.settings import Plan
from motet.timeouts import at_once, within


@dataclass(frozen=True)
class _Game:
    """What is constant in one tree."""

    episode: str
    environment: Environment[Any]
    team: Team
    plan: Plan
    waves: Waves
    run_seed: int
    greedy: bool

    def key(self, *what: object) -> int:
        return derive(self.run_seed, self.episode, *what)


async def play(
    task: Task,
    episode_id: str,
    environment: Environment[Any],
    team: Team,
    plan: Plan,
    waves: Waves,
    run_seed: int,
    *,
    greedy: bool = False,
    greedy_path: bool = False,
) -> Episode:
    """Play `task` in a rollout task of `waves`. The plan must have passed `check_plan`.

    Args:
        episode_id: unique in the run. All random numbers follow from it and from `run_seed`.
        greedy: take the most likely token everywhere.
        greedy_path: also play one greedy path, as `Episode.greedy`. If it fails, the episode fails,
            because ReMax needs both.

    Raises: ConfigError and TrainingDiverged from the environment, and any exception of the sampler.
    The environment is closed in all cases.
    """
    game = _Game(episode_id, environment, team, plan, waves, run_seed, greedy)
    limit, key = plan.timeout_seconds, game.key("start")
    state = await attempt(
        again(plan.retries, lambda: within(limit, "start", lambda: environment.start(task, key)))
    )
    if isinstance(state, Fault):
        return Episode(episode_id, task, None, fault=state)
    trees = [_round(game, state, ())]
    if greedy_path:
        single = plan.model_copy(
            update={"samples": (1,) * len(plan.samples), "expand": "all", "pairing": "aligned"}
        )
        trees.append(_round(replace(game, plan=single, greedy=True), state, ()))
    try:
        roots = await waves.run(trees)
    finally:
        closed = await attempt(
            within(limit, "close", lambda: environment.close(state), even_given_up=True)
        )
    fault = next((part for part in (*roots, closed) if isinstance(part, Fault)), None)
    if fault is not None:
        return Episode(episode_id, task, None, fault=fault)
    rounds = [root for root in roots if isinstance(root, Round)]
    return Episode(episode_id, task, rounds[0], greedy=rounds[1] if greedy_path else None)


async def _round(game: _Game, state: Any, path: Path) -> Round | Fault:
    prompts = await attempt(_observe(game, state))
    if isinstance(prompts, Fault):
        return prompts
    count = game.plan.samples[len(path)]
    requests = [_request(game, prompt, path, agent, count) for agent, prompt in prompts.items()]
    asked = [half for request in requests for half in halves(request, game.team)]
    answers = await game.waves.ask(asked)
    unanswered = next((answer for answer in answers if isinstance(answer, Fault)), None)
    if unanswered is not None:
        return unanswered
    sampled = joined(asked, answers)
    samples = {agent: answer.completions for agent, answer in sampled.items()}
    picks_J = joint_actions(dict.fromkeys(prompts, count), game.plan.pairing)
    stepped_J = await game.waves.run(
        [_step(game, state, path, j, picks, samples) for j, picks in enumerate(picks_J)]
    )
    stepped_outcomes_J = stopped_together(game.plan, [outcome for outcome, _ in stepped_J])
    outcomes_J = await _grow(game, stepped_outcomes_J, [below for _, below in stepped_J], path)
    faults = [outcome.fault for outcome in outcomes_J if outcome.fault is not None]
    if len(faults) == len(outcomes_J):
        return faults[0]
    prompt_tokens = {agent: answer.prompt_tokens for agent, answer in sampled.items()}
    return Round(len(path), prompts, prompt_tokens, samples, outcomes_J)


async def _observe(game: _Game, state: Any) -> dict[str, Prompt]:
    """Return the prompts as the policies read them, in the order of the team.

    Raises: EnvironmentFault if a prompt is not valid.
    """
    seen = at_once(
        game.plan.timeout_seconds, "observe", lambda: dict(game.environment.observe(state))
    )
    strangers = [agent for agent in seen if agent not in game.team.agents]
    if strangers or not seen:
        raise EnvironmentFault(
            f"observe gave prompts for {_names(seen)}; expected one or more of "
            f"{_names(game.team.agents)}"
        )
    for agent, prompt in seen.items():
        if not isinstance(prompt, str) and not all(
            isinstance(message, Message) for message in prompt
        ):
            raise EnvironmentFault(
                f"observe gave {agent} a prompt of {prompt!r}; expected a string or a tuple of "
                "core.Message"
            )
    ordered = {agent: seen[agent] for agent in game.team.agents if agent in seen}
    prompts: dict[str, Prompt] = {
        agent: p if isinstance(p, str) else tuple(p) for agent, p in ordered.items()
    }
    system = game.team.system
    return {
        agent: with_system(p, system[agent]) if agent in system else p
        for agent, p in prompts.items()
    }


def _request(game: _Game, prompt: Prompt, path: Path, agent: str, count: int) -> SampleRequest:
    turn = len(path)
    place = (game.episode, path, turn, agent)
    return SampleRequest(
        # A greedy path runs beside the tree of its episode, so it needs an id of its own.
        id=(*place, "greedy") if game.greedy else place,
        policy=game.team.policy_of(agent, turn),
        prompt=prompt,
        decode=game.team.decode[agent],
        keys=tuple(game.key(agent, path, g) for g in range(count)),
        greedy=game.greedy,
    )


# ----------------------------------------------------------------------------------------- stepping


async def _step(
    game: _Game,
    state: Any,
    path: Path,
    index: int,
    picks: Mapping[str, int],
    samples: Mapping[str, Sequence[Completion]],
) -> tuple[Outcome, Any]:
    """Step one joint action. Return its outcome and the next state.

    If the game continues, `end` and `next` of the outcome are filled in later.
    """
    said = {agent: samples[agent][pick] for agent, pick in picks.items()}
    replies = {agent: Reply(completion.text, completion.stop) for agent, completion in said.items()}
    led_to = await attempt(_transition(game, state, replies, game.key(path, index, "step")))
    if isinstance(led_to, Fault):
        return Outcome(picks, {}, fault=led_to), None
    return Outcome(
        picks, led_to.rewards, led_to.terms, end=end_of(game.plan, len(path), led_to)
    ), led_to.state


async def _transition(
    game: _Game, state: Any, replies: Mapping[str, Reply], seed: int
) -> Transition:
    """Take one step and check its result.

    Raises: EnvironmentFault if rewards of agents are missing or a number is not finite.
    """
    plan, environment = game.plan, game.environment
    retries = plan.retries if environment.branches else 0

    def step() -> Awaitable[Transition]:
        return within(plan.timeout_seconds, "step", lambda: environment.step(state, replies, seed))

    led_to = await again(retries, step)
    agents = game.team.agents
    if set(led_to.rewards) != set(agents):
        raise EnvironmentFault(
            f"step gave rewards for {_names(led_to.rewards)}; expected one for every agent: "
            f"{_names(agents)}"
        )
    rewards = {agent: float(led_to.rewards[agent]) for agent in agents}
    terms = {name: float(value) for name, value in led_to.terms.items()}
    for name, value in [*rewards.items(), *terms.items()]:
        if not isfinite(value):
            raise EnvironmentFault(
                f"step gave {value} for {name}; expected a finite number: raise RewardFault if "
                "there is no score"
            )
    return Transition(led_to.state, rewards, led_to.done, terms)


# ---------------------------------------------------------------------------------------- expanding


async def _grow(
    game: _Game, outcomes: Sequence[Outcome], states: Sequence[Any], path: Path
) -> tuple[Outcome, ...]:
    """Return the outcomes together with their subtrees.

    With one outcome to expand, try the next candidate if the subtree of the first fails.
    """
    open_ = [
        j for j, outcome in enumerate(outcomes) if outcome.fault is None and outcome.end is None
    ]
    below: dict[int, Round | Fault | None] = dict.fromkeys(open_)
    for chosen in _choices(game, outcomes, open_, path):
        rounds = await game.waves.run([_round(game, states[j], (*path, j)) for j in chosen])
        below |= zip(chosen, rounds, strict=True)
        if any(isinstance(found, Round) for found in rounds):
            break
    return tuple(
        _joined(outcome, below[j]) if j in below else outcome for j, outcome in enumerate(outcomes)
    )


def _choices(
    game: _Game, outcomes: Sequence[Outcome], open_: Sequence[int], path: Path
) -> list[list[int]]:
    """Return the groups of outcomes to expand; the next group is tried if all of a group fail.

    The groups are: all outcomes at once, or single outcomes in order (best first, or random).
    """
    if game.plan.expand == "all":
        return [list(open_)]
    if game.plan.expand == "best":
        return [[j] for j in sorted(open_, key=lambda j: (-mean_reward(outcomes[j].rewards), j))]
    return [[j] for j in sorted(open_, key=lambda j: game.key(path, j, "expand"))]


def _joined(outcome: Outcome, below: Round | Fault | None) -> Outcome:
    if below is None:
        return replace(outcome, end="pruned")
    if isinstance(below, Fault):
        return Outcome(outcome.picks, {}, fault=below)
    return replace(outcome, next=below)


# -------------------------------------------------------------------------------- checking the plan


def check_plan(
    plan: Plan, environment: Environment[Any], team: Team, greedy_path: bool = False
) -> None:
    """Refuse a plan that cannot be played, before any work.

    The number of Rounds is computed as if all agents act at every turn and no game ends early. It
    is an upper bound.

    Raises: ConfigError with the numbers or names.
    """
    if set(team.agents) != set(environment.agents):
        raise ConfigError(
            f"team.agents names {_names(team.agents)}; expected the agents of the environment: "
            f"{_names(environment.agents)}"
        )
    if environment.most_turns is not None and len(plan.samples) > environment.most_turns:
        raise ConfigError(
            f"rollout.samples {list(plan.samples)} has {len(plan.samples)} turns, but "
            f"{type(environment).__name__} has at most {environment.most_turns}: use "
            f"rollout.samples {list(plan.samples[: environment.most_turns])}"
        )
    rounds = plan.rounds(len(environment.agents))
    if sum(rounds) > plan.max_nodes:
        raise ConfigError(
            f"rollout.samples {list(plan.samples)} with {plan.pairing} pairing and expand "
            f"{plan.expand} makes {' + '.join(map(str, rounds))} = {sum(rounds)} Rounds per task, "
            f"more than rollout.max_nodes {plan.max_nodes}: use fewer samples at early turns, or "
            "raise max_nodes"
        )
    if not environment.branches and (max(plan.samples) > 1 or greedy_path):
        why = f"rollout.samples {list(plan.samples)}" + (
            " with a greedy path" if greedy_path else ""
        )
        raise ConfigError(
            f"{why} steps more than once from one state, but {type(environment).__name__} has "
            f"branches = False: use samples {[1] * len(plan.samples)}, or make its states "
            "immutable values and set branches = True"
        )


def _names(agents: Any) -> str:
    return ", ".join(map(str, agents)) or "nobody"
