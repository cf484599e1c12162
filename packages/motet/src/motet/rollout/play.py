"""Play one task and return its Episode, a tree of Rounds.

    observe -> sample all acting agents -> pair their samples -> step every joint action
            -> choose the outcomes to expand -> repeat below them

A failed joint action becomes a Fault on its Outcome; its siblings stay. If a whole Round fails
(observing or sampling fails, or every joint action fails), the parent Outcome is marked as failed,
or the Episode if there is no parent. Kept as a leaf, the parent would silently count as a zero
return, although its return is unknown. So every valid Outcome that was expanded has a valid Outcome
below it.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

from motet.core import (
    Completion,
    End,
    Environment,
    Episode,
    Fault,
    Message,
    Outcome,
    Path,
    Prompt,
    Reply,
    Round,
    Sampled,
    SampleRequest,
    Task,
    Team,
    Transition,
    class_name,
)
from motet.core.coalitions import coalitions
from motet.core.seeding import derive
from motet.errors import ConfigError, EnvironmentFault, shortened
from motet.rollout.faults import attempt
from motet.rollout.waves import Waves
from motet.settings import Plan
from motet.settings.rollout import Defaulting
from motet.user_code.retries import again
from motet.user_code.timeouts import at_once, within


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
    absent: Defaulting = "none"

    @property
    def once(self) -> "_Game":
        """The same game, of which one path is played."""
        return replace(self, plan=self.plan.once, absent="none")

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
    absent: Defaulting = "none",
) -> Episode:
    """Play `task` in a rollout task of `waves`. The plan must have passed `check_plan`.

    Args:
        episode_id: unique in the run. All random numbers follow from it and from `run_seed`.
        greedy: take the most likely token everywhere.
        greedy_path: also play one greedy path, as `Episode.greedy`. If it fails, the episode fails,
            because ReMax needs both.
        absent: whose default is also played in place of a sample, in `Round.without`: that of each
            agent that learns ("one"), of all sets of agents ("all"), or of nobody.

    Raises: ConfigError and TrainingDiverged from the environment, and any exception of the sampler.
    The environment is closed in all cases.
    """
    game = _Game(episode_id, environment, team, plan, waves, run_seed, greedy, absent)
    starts = _Starts(game, task)
    try:
        state = await starts.open()
        played = [(game, state)]
        if greedy_path:
            other = state if environment.branches else await starts.open()
            played.append((replace(game.once, greedy=True), other))
        roots = await waves.run([_round(tree, first, (), starts) for tree, first in played])
    finally:
        closed = await starts.close()
    fault = next((part for part in (*roots, closed) if isinstance(part, Fault)), None)
    if fault is not None:
        return Episode(episode_id, task, None, fault=fault)
    rounds = [root for root in roots if isinstance(root, Round)]
    return Episode(episode_id, task, rounds[0], greedy=rounds[1] if greedy_path else None)


class _Starts:
    """The start states of one episode, which are closed when it ends.

    All states start from the same task and seed. An environment that branches needs one; another
    one needs a start of its own for each joint action of the first Round.
    """

    def __init__(self, game: _Game, task: Task) -> None:
        self._game, self._task = game, task
        self._opened: list[Any] = []

    async def open(self) -> Any | Fault:
        environment, plan, key = self._game.environment, self._game.plan, self._game.key("start")

        async def begin() -> Any:
            # Noted at once: if the game is cancelled before it has this state, it is closed too.
            state = await environment.start(self._task, key)
            self._opened.append(state)
            return state

        def start() -> Awaitable[Any]:
            return within(plan.timeout_seconds, "start", begin)

        return await attempt(again(plan.retries, start))

    async def each(self, state: Any, prompts: Mapping[str, Prompt], count: int) -> list[Any]:
        """Return `count` states for the joint actions of the first Round, `state` among them.

        A Fault stands for a state that could not be started, or that shows other prompts.
        """
        if self._game.environment.branches:
            return [state] * count
        others = [self._equal(prompts) for _ in range(count - 1)]
        return [state, *await self._game.waves.run(others)]

    async def _equal(self, prompts: Mapping[str, Prompt]) -> Any | Fault:
        state = await self.open()
        if isinstance(state, Fault):
            return state
        seen = await attempt(_observe(self._game, state))
        if isinstance(seen, Fault):
            return seen
        if seen == prompts:
            return state
        agent = next(name for name in (*prompts, *seen) if seen.get(name) != prompts.get(name))
        return Fault(
            "environment",
            "unequal_starts",
            f"two starts of task {self._task.id} with one seed show {agent} different prompts: "
            f"{shortened(repr(prompts.get(agent)))} and {shortened(repr(seen.get(agent)))}; "
            "expected equal ones, because their completions are compared: draw only from `seed`",
        )

    async def close(self) -> Fault | None:
        """Close all states, also if the game is cancelled meanwhile. Returns the first Fault."""
        closing = asyncio.ensure_future(self._close_all())
        try:
            ended = await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait({closing})
            raise
        return next((fault for fault in ended if isinstance(fault, Fault)), None)

    async def _close_all(self) -> list[Fault | None]:
        close, limit = self._game.environment.close, self._game.plan.timeout_seconds

        async def closed(state: Any) -> Fault | None:
            return await attempt(within(limit, "close", partial(close, state), even_given_up=True))

        return await asyncio.gather(*map(closed, self._opened))


async def _round(game: _Game, state: Any, path: Path, starts: _Starts) -> Round | Fault:
    if isinstance(state, Fault):
        return state
    prompts = await attempt(_observe(game, state))
    if isinstance(prompts, Fault):
        return prompts
    count = game.plan.samples[len(path)]
    picks_J = joint_actions(list(prompts), count, game.plan.pairing)
    picks_W = _picks_without(game, list(prompts), picks_J, path)
    tried = len(picks_J) + len(picks_W)
    states = [state] * tried if path else await starts.each(state, prompts, tried)
    requests = [_request(game, prompt, path, agent, count) for agent, prompt in prompts.items()]
    asked = [half for request in requests for half in halves(request, game.team)]
    answers = await game.waves.ask(asked)
    unanswered = next((answer for answer in answers if isinstance(answer, Fault)), None)
    if unanswered is not None:
        return unanswered
    sampled = joined(asked, answers)
    samples = {agent: answer.completions for agent, answer in sampled.items()}
    steps = [
        _step(game, states[k], path, _number(game.plan, k, picks), picks, samples)
        for k, picks in enumerate([*picks_J, *picks_W])
    ]
    # A single one needs no rollout task of its own.
    stepped = [await steps[0]] if len(steps) == 1 else await game.waves.run(steps)
    after_J, after_W = _halved([state for _, state in stepped], len(picks_J))
    stepped_J, stepped_W = _halved([outcome for outcome, _ in stepped], len(picks_J))
    outcomes_J = stopped_together(game.plan, stepped_J)
    outcomes_W = _stopped_with(outcomes_J, stepped_W, game.plan)
    growing = _grow(game, outcomes_J, after_J, path, starts)
    without: tuple[Outcome, ...] = ()
    if outcomes_W:
        playing = _played_on(game, outcomes_W, after_W, path, starts, first=len(picks_J))
        grown_J, without = await game.waves.run([growing, playing])
    else:
        grown_J = await growing
    faults = [outcome.fault for outcome in grown_J if outcome.fault is not None]
    if len(faults) == len(grown_J):
        return faults[0]
    prompt_tokens = {agent: answer.prompt_tokens for agent, answer in sampled.items()}
    return Round(len(path), prompts, prompt_tokens, samples, grown_J, without)


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
    return {agent: game.team.with_system(agent, prompt) for agent, prompt in prompts.items()}


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


# ------------------------------------------------------------------------------------------- asking


def halves(request: SampleRequest, team: Team) -> list[SampleRequest]:
    """Return the requests for one agent's samples: one, or one to each of two teams.

    The team gives the first half of the samples of a Round, and its comparator the second.
    """
    agent = request.id[3]
    if agent not in team.comparator:
        return [request]
    half = len(request.keys) // 2
    other = replace(
        request,
        id=(*request.id, "comparator"),
        policy=team.comparator[agent],
        keys=request.keys[half:],
    )
    return [replace(request, keys=request.keys[:half]), other]


def joined(
    requests: Sequence[SampleRequest], answers: Sequence[Sampled | Fault]
) -> dict[str, Sampled]:
    """Return agent -> its prompt and all its samples, in the order of the requests.

    The prompt's tokens are those of the agent's own policy. Faults are left out.
    """
    found: dict[str, Sampled] = {}
    for request, answer in zip(requests, answers, strict=True):
        agent = request.id[3]
        if isinstance(answer, Fault):
            continue
        first = found[agent] if agent in found else replace(answer, completions=())
        found[agent] = replace(first, completions=first.completions + answer.completions)
    return found


def joint_actions(
    agents: Sequence[str], samples: int, pairing: Literal["aligned", "crossed"]
) -> tuple[dict[str, int], ...]:
    """Return the joint actions of one Round, each as agent -> index of its sample.

    aligned: the g-th samples of all agents form joint action g; J = G. crossed: all combinations,
    where the index of the last agent changes fastest; J = G^N.
    """
    if pairing == "aligned":
        return tuple(dict.fromkeys(agents, g) for g in range(samples))
    picks_J = product(range(samples), repeat=len(agents))
    return tuple(dict(zip(agents, picks, strict=True)) for picks in picks_J)


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

    If the game continues, `end` and `next` of the outcome are filled in later. `state` is a Fault
    if the start for this joint action failed. Agents that are not in the picks give their default.
    """
    if isinstance(state, Fault):
        return Outcome(picks, {}, fault=state), None
    defaults = game.environment.defaults
    replies = {
        agent: drawn[picks[agent]].reply if agent in picks else Reply(defaults.get(agent, ""))
        for agent, drawn in samples.items()
    }
    led_to = await attempt(_transition(game, state, replies, game.key(path, index, "step")))
    if isinstance(led_to, Fault):
        return Outcome(picks, {}, fault=led_to), None
    return Outcome(
        picks, led_to.rewards, led_to.terms, end=end_of(game.plan, len(path), led_to)
    ), led_to.state


async def _transition(
    game: _Game, state: Any, replies: Mapping[str, Reply], seed: int
) -> Transition:
    """Take one step and check its result. Raises: EnvironmentFault, as `Transition.checked`."""
    plan, environment = game.plan, game.environment
    retries = plan.retries if environment.branches else 0

    def step() -> Awaitable[Transition]:
        return within(plan.timeout_seconds, "step", lambda: environment.step(state, replies, seed))

    return (await again(retries, step)).checked(game.team.agents)


# ----------------------------------------------------------------------------------- without agents


def _picks_without(
    game: _Game, acting: Sequence[str], picks_J: Sequence[Mapping[str, int]], path: Path
) -> list[dict[str, int]]:
    """Return the picks of the joint actions in which some agents give their defaults, each once."""
    if game.absent == "none":
        return []
    if game.absent == "all":
        present = coalitions(acting, game.episode, path)
    else:
        learn = [a for a in acting if game.team.policy_of(a, len(path)) not in game.team.frozen]
        present = [frozenset(acting) - {agent} for agent in learn]
    found = (
        {agent: pick for agent, pick in picks.items() if agent in those}
        for picks in picks_J
        for those in present
    )
    return list({tuple(picks.items()): picks for picks in found}.values())


def _number(plan: Plan, place: int, picks: Mapping[str, int]) -> int:
    """Return the number that the seed of a step depends on. A joint action without some agents has
    that of the aligned one with them, so that both have the same luck."""
    return next(iter(picks.values()), place) if plan.pairing == "aligned" else place


def _stopped_with(
    outcomes_J: Sequence[Outcome], without: Sequence[Outcome], plan: Plan
) -> list[Outcome]:
    """With `stop_by: round`, end the joint actions without some agents where those with all end."""
    if plan.stop_by != "round" or not any(one.end == "stopped" for one in outcomes_J):
        return list(without)
    return [replace(one, end="stopped") if one.fault is None else one for one in without]


def _halved(whole: Sequence[Any], first: int) -> tuple[list[Any], list[Any]]:
    return list(whole[:first]), list(whole[first:])


# ------------------------------------------------------------------------------------------- ending


def end_of(plan: Plan, turn: int, led_to: Transition) -> End | None:
    """Return why a branch ends after this turn (from 0); None if it goes on."""
    if led_to.done:
        return "done"
    if plan.stop_by == "branch" and _reaches(plan, mean_reward(led_to.rewards)):
        return "stopped"
    return "limit" if turn == len(plan.samples) - 1 else None


def stopped_together(plan: Plan, outcomes: list[Outcome]) -> list[Outcome]:
    """With `stop_by: round`, end all joint actions of a Round whose mean reward reaches
    `stop_at_reward`."""
    means = [mean_reward(outcome.rewards) for outcome in outcomes if outcome.fault is None]
    if plan.stop_by != "round" or not means or not _reaches(plan, sum(means) / len(means)):
        return outcomes
    return [
        outcome if outcome.fault is not None else replace(outcome, end="stopped")
        for outcome in outcomes
    ]


def _reaches(plan: Plan, reward: float) -> bool:
    return plan.stop_at_reward is not None and reward >= plan.stop_at_reward


def mean_reward(rewards: Mapping[str, float]) -> float:
    """Return the mean reward of all agents."""
    return sum(rewards.values()) / len(rewards)


# ---------------------------------------------------------------------------------------- expanding


async def _grow(
    game: _Game,
    outcomes: Sequence[Outcome],
    states: Sequence[Any],
    path: Path,
    starts: _Starts,
) -> tuple[Outcome, ...]:
    """Return the outcomes together with their subtrees.

    With one outcome to expand, try the next candidate if the subtree of the first fails. A replay
    plays all of them, so there is no other.
    """
    open_ = _open(outcomes)
    if game.plan.expand == "replay" and open_:
        full = _drawn(game, open_, path)[0]
        return await _played_on(game, outcomes, states, path, starts, full)
    below: dict[int, Round | Fault | None] = dict.fromkeys(open_)
    for chosen in _choices(game, outcomes, open_, path):
        rounds = await game.waves.run([_round(game, states[j], (*path, j), starts) for j in chosen])
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
    return [[j] for j in _drawn(game, open_, path)]


def _drawn(game: _Game, open_: Sequence[int], path: Path) -> list[int]:
    """Return the outcomes in random order."""
    return sorted(open_, key=lambda j: game.key(path, j, "expand"))


def _open(outcomes: Sequence[Outcome]) -> list[int]:
    """Return the outcomes after which the game goes on."""
    return [k for k, one in enumerate(outcomes) if one.fault is None and one.end is None]


async def _played_on(
    game: _Game,
    outcomes: Sequence[Outcome],
    states: Sequence[Any],
    path: Path,
    starts: _Starts,
    full: int | None = None,
    first: int = 0,
) -> tuple[Outcome, ...]:
    """Return the outcomes together with their subtrees: a whole tree below `full`, and one path
    below all others. In paths the number of an outcome begins with `first`."""
    open_ = _open(outcomes)
    rounds = [
        _round(game if k == full else game.once, states[k], (*path, first + k), starts)
        for k in open_
    ]
    below = dict(zip(open_, await game.waves.run(rounds), strict=True))
    return tuple(
        _joined(replace(one, once=k != full), below[k]) if k in below else one
        for k, one in enumerate(outcomes)
    )


def _joined(outcome: Outcome, below: Round | Fault | None) -> Outcome:
    if below is None:
        return replace(outcome, end="pruned")
    if isinstance(below, Fault):
        return Outcome(outcome.picks, {}, fault=below)
    return replace(outcome, next=below)


# -------------------------------------------------------------------------------- checking the plan


def check_plan(
    plan: Plan, environment: Environment[Any], team: Team, absent: Defaulting = "none"
) -> None:
    """Refuse a plan that cannot be played, before any work. `absent`: as in `play`.

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
            f"{class_name(environment)} has at most {environment.most_turns}: use "
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
    if not environment.branches and not plan.straight:
        raise ConfigError(
            f"rollout.samples {list(plan.samples)} steps more than once from one state of a later "
            f"turn, but {class_name(environment)} has branches = False: use samples "
            f"{[plan.samples[0]] + [1] * (len(plan.samples) - 1)}, which starts every path anew, "
            "or make its states immutable values and set branches = True"
        )
    if not environment.branches and absent != "none" and len(plan.samples) > 1:
        raise ConfigError(
            f"the algorithm compares with joint actions without agents, which step more than once "
            f"from one state of a later turn with rollout.samples {list(plan.samples)}, but "
            f"{class_name(environment)} has branches = False: use an algorithm that plays none, "
            "such as marloo, or make its states immutable values and set branches = True"
        )


def _names(agents: Any) -> str:
    return ", ".join(map(str, agents)) or "nobody"
