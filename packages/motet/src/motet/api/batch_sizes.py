"""What a step plays, and its largest batches: of completions sampled, and of tokens learnt."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.config.schema import RunConfig
from motet.models.memory import Shape


@dataclass(frozen=True)
class Sizes:
    """What the estimates need to know besides the config."""

    shapes: Mapping[str, Shape]
    """Model -> its shape."""
    prompts: Mapping[str, int]
    """Agent -> tokens of its longest first prompt."""
    tasks: int
    """Tasks per step."""
    evaluated: int
    """Games of an evaluation."""


@dataclass(frozen=True)
class Play:
    """The completions of one agent at one turn of a step, all of the longest length."""

    agent: str
    policy: str
    prompts: int
    samples: int
    """Completions for each prompt."""
    prompt: int
    """Tokens of a prompt."""
    answer: int
    """Tokens of a completion."""

    @property
    def rows(self) -> int:
        return self.prompts * self.samples

    @property
    def length(self) -> int:
        return self.prompt + self.answer


def plays_of(config: RunConfig, sizes: Sizes) -> list[Play]:
    """Return what the agents play in a step if no branch ends early and all act at every turn.

    A prompt grows by one completion of every agent per turn.
    """
    plan = config.rollout
    answers = {agent: config.decode_of(agent).max_new_tokens for agent in config.team}
    said = sum(answers.values())
    return [
        Play(
            agent,
            player.policy[min(turn, len(player.policy) - 1)],
            sizes.tasks * rounds,
            samples,
            sizes.prompts[agent] + turn * said,
            answers[agent],
        )
        for turn, (rounds, samples) in enumerate(
            zip(plan.rounds(len(config.team)), plan.samples, strict=True)
        )
        for agent, player in config.team.items()
    ]


def rows_played(config: RunConfig, sizes: Sizes, model: str) -> tuple[int, int]:
    """Return the maximum number of completions sampled at once on a model, and their length with
    the prompt."""
    together: Counter[str] = Counter()  # adapters on one base model are sampled in one batch
    for player in config.team.values():
        mine = [name for name in player.policy if config.policies[name].model == model]
        lora = {name for name in mine if config.policies[name].train == "lora"}
        together.update({"adapters" if name in lora else name for name in mine})
    plays = plays_of(config, sizes)
    widest, length = max(play.rows for play in plays), max(play.length for play in plays)
    rows = max(widest, sizes.evaluated) * max(together.values(), default=0)
    most = max(1, config.train.tokens_per_batch // length)
    return min(rows, config.train.rows_per_batch, most), length


def tokens_learnt(config: RunConfig, sizes: Sizes, model: str, *, by_critics: bool) -> int:
    """Return the maximum number of tokens of one micro-batch of a model.

    A policy's batch contains a prompt once for all its completions, a critic's batch once per
    completion.
    """
    learnt: dict[str, list[Play]] = {}
    for play in plays_of(config, sizes):
        policy = config.policies[play.policy]
        if by_critics or (policy.model == model and policy.train != "frozen"):
            learnt.setdefault("critics" if by_critics else play.policy, []).append(play)
    return max((_tokens_at_once(config, turns, by_critics) for turns in learnt.values()), default=0)


def _tokens_at_once(config: RunConfig, turns: Sequence[Play], by_critics: bool) -> int:
    """Return the tokens of the largest micro-batch of one policy.

    The budget counts a batch as rows times the longest row, with a prompt in every row, as
    `motet.batch.pack` does.
    """

    def tokens(play: Play, rows: int) -> int:
        return (
            rows * play.answer
            + (rows if by_critics else math.ceil(rows / play.samples)) * play.prompt
        )

    budget = config.train.token_budget
    rows = [math.ceil(play.rows / config.algorithm.minibatches) for play in turns]
    whole = sum(map(tokens, turns, rows))
    if sum(rows) * max(play.length for play in turns) <= budget:
        return whole
    fitting = [
        tokens(play, min(most, max(1, budget // play.length)))
        for play, most in zip(turns, rows, strict=True)
    ]
    return min(whole, max(fitting))
