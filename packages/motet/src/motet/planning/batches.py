"""The largest batches of a run: completions sampled at once, and tokens learnt at once.

The estimates of memory in a dry run and in a plan both use them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.config.schema import RunConfig


def rows_played(config: RunConfig, tasks: int, evaluated: int, model: str, length: int) -> int:
    """Return the maximum number of completions sampled at once on a model.

    Args:
        tasks: tasks per step.
        evaluated: games of an evaluation.
        length: tokens of each completion, including its prompt.
    """
    plan = config.rollout
    agents = len(config.team)
    rounds_T = plan.rounds(agents)
    widest = tasks * max(n * samples for n, samples in zip(rounds_T, plan.samples, strict=True))
    together: Counter[str] = Counter()  # adapters on one base model are sampled in one batch
    for player in config.team.values():
        mine = {
            name: config.policies[name]
            for name in player.policy
            if config.policies[name].model == model
        }
        together.update(
            {"adapters" if policy.train == "lora" else name for name, policy in mine.items()}
        )
    rows = max(widest, evaluated) * max(together.values(), default=0)
    return min(rows, config.train.rows_per_batch, max(1, config.train.tokens_per_batch // length))


@dataclass(frozen=True)
class _Rows:
    """Equally long completions of one turn that a policy or critic is trained on."""

    rows: int
    prompt: int
    answer: int
    sharing: int
    """Completions that share one prompt in a batch."""

    @property
    def length(self) -> int:
        return self.prompt + self.answer

    def tokens(self, rows: int) -> int:
        return rows * self.answer + math.ceil(rows / self.sharing) * self.prompt


def tokens_learnt(
    config: RunConfig, tasks: int, prompts: Mapping[str, int], model: str, *, by_critics: bool
) -> int:
    """Return the maximum number of tokens of one micro-batch of a model.

    A prompt grows by one completion of every agent per turn. A policy's batch contains it once for
    all its completions, a critic's batch once per completion.
    """
    plan = config.rollout
    learnt: dict[str, list[_Rows]] = {}
    said = sum(config.decode_of(agent).max_new_tokens for agent in config.team)
    for turn, (rounds, samples) in enumerate(
        zip(plan.rounds(len(config.team)), plan.samples, strict=True)
    ):
        for agent, player in config.team.items():
            name = player.policy[min(turn, len(player.policy) - 1)]
            who = "critics" if by_critics else name
            if by_critics or config.policies[name].model == model:
                count = tasks * rounds * samples
                prompt, answer = (
                    prompts[agent] + turn * said,
                    config.decode_of(agent).max_new_tokens,
                )
                each = _Rows(
                    math.ceil(count / config.algorithm.minibatches),
                    prompt,
                    answer,
                    1 if by_critics else samples,
                )
                learnt.setdefault(who, []).append(each)
    budget = config.train.token_budget
    return max((_tokens_at_once(rows, budget) for rows in learnt.values()), default=0)


def _tokens_at_once(turns: Sequence[_Rows], budget: int) -> int:
    """Return the tokens of the largest micro-batch of one policy.

    The budget counts a batch as rows times the longest row, with a prompt in every row, as
    `motet.batch.pack` does.
    """
    whole = sum(one.tokens(one.rows) for one in turns)
    if sum(one.rows for one in turns) * max(one.length for one in turns) <= budget:
        return whole
    fitting = [one.tokens(min(one.rows, max(1, budget // one.length))) for one in turns]
    return min(whole, max(fitting))
