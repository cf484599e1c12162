"""The trees of a step as one table of N agents, J joint actions and S samples.

Maps values per joint action to values per sample and back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from motet.core import Outcome, Path, Round, SampleId, TrainSample
from motet.credit.returns import (
    Forest,
    bonuses,
    repeat_last_reward,
    segment_mean,
    tree_fold,
    turn_returns,
)
from motet.errors import ConfigError
from motet.settings import Algorithm


@dataclass(frozen=True)
class Table:
    """The joint actions and samples of a step, parents before children.

    Failed joint actions are left out, and samples that only took part in failed ones.
    """

    agents: Sequence[str]
    samples: Sequence[TrainSample]
    """The completions, without advantages. Their shares lack the weights of turns."""
    agent_S: Tensor
    """int64: each sample's agent, as an index into `agents`."""
    outcomes: Sequence[Outcome]
    """The joint actions."""
    forest: Forest
    sample_NJ: Tensor
    """int64: the sample that an agent contributed to a joint action, or -1 if it did not act."""
    place_J: Tensor
    """int64: the index of a joint action in its Round."""
    size_J: Tensor
    """int64: the number of joint actions of its Round, those that failed included."""
    missing_J: Tensor
    """int64: the number of turns of the plan that were not played because the environment or a stop
    rule ended the branch."""
    places: Sequence[tuple[str, Path]]
    """Episode and path of the Round of each joint action."""
    once_S: Tensor
    """bool: whether a sample was only drawn to play a game to its end (`Outcome.once`)."""

    @classmethod
    def of(cls, roots: Sequence[tuple[str, Round]], agents: Sequence[str], turns: int) -> "Table":
        """Flatten all trees of a step.

        Args:
            roots: (episode id, tree) for each task of the step.
            turns: the turn limit of the plan.
        """
        samples: list[TrainSample] = []
        outcomes: list[Outcome] = []
        nodes: list[tuple[int, int, int]] = []
        picked: list[list[int]] = []
        numbers: list[tuple[int, int]] = []
        places: list[tuple[str, Path]] = []
        once: list[bool] = []
        for number, (episode, path, round_, parent, share) in enumerate(_rounds(roots)):
            row_of: dict[tuple[str, int], int] = {}
            for sample in _samples(round_, episode, path, share):
                row_of[sample.id.agent, sample.id.index] = len(samples)
                samples.append(sample)
                once.append(share == 0.0)
            for place, outcome in _valid(round_).items():
                picks = outcome.picks
                numbers.append((place, len(round_.outcomes)))
                places.append((episode, path))
                outcomes.append(outcome)
                nodes.append((parent, number, round_.turn))
                picked.append([row_of[a, picks[a]] if a in picks else -1 for a in agents])
        parent_J, round_J, turn_J = torch.tensor(nodes, dtype=torch.int64).reshape(-1, 3).T
        place_J, size_J = torch.tensor(numbers, dtype=torch.int64).reshape(-1, 2).T
        pruned = [outcome.end == "pruned" for outcome in outcomes]
        ended = [outcome.end in ("done", "stopped") for outcome in outcomes]
        return cls(
            agents=agents,
            samples=samples,
            agent_S=torch.tensor([agents.index(sample.id.agent) for sample in samples]),
            outcomes=outcomes,
            forest=Forest(parent_J, round_J, turn_J, torch.tensor(pruned, dtype=torch.bool)),
            sample_NJ=torch.tensor(picked, dtype=torch.int64).reshape(-1, len(agents)).T,
            place_J=place_J,
            size_J=size_J,
            missing_J=torch.where(torch.tensor(ended, dtype=torch.bool), turns - 1 - turn_J, 0),
            places=places,
            once_S=torch.tensor(once, dtype=torch.bool),
        )

    @property
    def acts_NJ(self) -> Tensor:
        return self.sample_NJ >= 0

    @property
    def stopped_S(self) -> Tensor:
        """bool [S]: whether `rollout.stop_at_reward` ended all joint actions of a sample."""
        stopped = [outcome.end == "stopped" for outcome in self.outcomes]
        stopped_J = torch.tensor(stopped, dtype=torch.float64)
        return self.of_samples(stopped_J.expand(self.sample_NJ.shape)) == 1.0

    def of_samples(self, figures_NJ: Tensor) -> Tensor:
        """Average over the joint actions that each sample took part in. [N, J] -> [S]"""
        acts_NJ = self.acts_NJ
        return segment_mean(figures_NJ[acts_NJ], self.sample_NJ[acts_NJ], len(self.samples))

    def of_actions(self, figures_S: Tensor) -> Tensor:
        """Look up the value of the sample that each agent contributed; 0 if it did not act. [S] ->
        [N, J]"""
        return torch.cat([figures_S, figures_S.new_zeros(1)])[self.sample_NJ]

    def paid_by(self, term: str, known: Sequence[str]) -> tuple["Table", tuple[str, ...]]:
        """Return the table with a term in place of the rewards: `term`, or `term/AGENT` of each
        agent. A joint action without it, such as one before the end, has 0.

        Args:
            known: each `term/AGENT` that an earlier step had (`CreditState.terms`). Also returned,
                with those of this step.

        Raises: ConfigError if neither a joint action nor an earlier step has it for an agent.
        """
        outcomes, seen = [], dict.fromkeys(known)
        for outcome in self.outcomes:
            own = {}
            for agent in self.agents:
                key = f"{term}/{agent}"
                name = key if key in outcome.terms else term
                if name in outcome.terms:
                    seen[key] = None
                own[agent] = outcome.terms.get(name, 0.0)
            outcomes.append(replace(outcome, rewards=own))
        missing = next((agent for agent in self.agents if f"{term}/{agent}" not in seen), None)
        if missing is not None:
            there = dict.fromkeys(name for outcome in self.outcomes for name in outcome.terms)
            raise ConfigError(
                f"algorithm.credit.terms names {term!r}, which no joint action of the step has for "
                f"{missing}; the terms are {', '.join(there) or 'none'}: name those"
            )
        return replace(self, outcomes=outcomes), tuple(seen)

    # ------------------------------------------------------------ rewards and returns

    def rewards_NJ(self, algorithm: Algorithm) -> Tensor:
        """Return each agent's reward for each joint action, float64 [N, J].

        With `returns: tree`, `reward_sharing` and `repeat_last_reward` are applied.
        """
        rewards_NJ = torch.tensor(
            [[outcome.rewards[a] for outcome in self.outcomes] for a in self.agents],
            dtype=torch.float64,
        )
        if algorithm.returns != "tree":
            return rewards_NJ
        if algorithm.reward_sharing == "all":
            rewards_NJ = rewards_NJ.mean(0, keepdim=True).expand_as(rewards_NJ)
        if algorithm.repeat_last_reward:
            rewards_NJ = repeat_last_reward(rewards_NJ, self.missing_J, algorithm.gamma)
        return rewards_NJ

    def extras_NJ(self, algorithm: Algorithm) -> Tensor:
        """Return what is added to the return of one turn of one agent only: its bonus and
        incentives. float64 [N, J]

        Raises: ConfigError if incentives are set and an outcome does not say who was right.
        """
        bonus_J = [outcome.bonus for outcome in self.outcomes]
        extras_NJ = torch.tensor(
            [[bonus.get(agent, 0.0) for bonus in bonus_J] for agent in self.agents],
            dtype=torch.float64,
        )
        if not algorithm.incentives.any:
            return extras_NJ
        right_J = [outcome.right for outcome in self.outcomes]
        missing = [agent for agent in self.agents for right in right_J if agent not in right]
        if missing:
            raise ConfigError(
                f"algorithm.incentives need to know who is right, but a transition of the "
                f"environment does not say it of {missing[0]}: give it right={{agent: ...}} for "
                "every agent, use an environment with gold labels, or drop algorithm.incentives"
            )
        right_NJ = torch.tensor(
            [[right[agent] > 0.5 for right in right_J] for agent in self.agents]
        )
        return extras_NJ + bonuses(right_NJ, self.forest, algorithm.incentives)

    def returns_NJ(
        self, algorithm: Algorithm, penalty_S: Tensor, later_J: Tensor | None = None
    ) -> Tensor:
        """Return the return of every joint action for every agent, computed without values. float64
        [N, J]

        `later_J`: importance ratios of later joint actions (`credit.ratios`).

        With `returns: tree` a KL penalty is part of the reward, so it also lowers the returns of
        earlier turns. With the other rules nothing propagates across turns, so the penalty only
        affects its own sample.
        """
        rewards_NJ, penalty_NJ = self.rewards_NJ(algorithm), self.of_actions(penalty_S)
        if algorithm.returns == "tree":
            # With V = 0 and λ = 1 it makes no difference who acts.
            everywhere_NJ = torch.ones_like(rewards_NJ, dtype=torch.bool)
            folded_NJ = tree_fold(
                rewards_NJ - penalty_NJ,
                None,
                everywhere_NJ,
                self.forest,
                algorithm.gamma,
                1.0,
                algorithm.pruned,
                later_J,
            )
        else:
            read_NJ = turn_returns(
                rewards_NJ,
                self.forest,
                algorithm.returns,
                algorithm.gamma,
                algorithm.reward_sharing,
                later_J,
            )
            folded_NJ = read_NJ - penalty_NJ
        return folded_NJ + self.extras_NJ(algorithm)


def _valid(round_: Round) -> dict[int, Outcome]:
    """Return the joint actions that did not fail, by their index."""
    return {index: one for index, one in enumerate(round_.outcomes) if one.fault is None}


def _rounds(
    roots: Sequence[tuple[str, Round]],
) -> Iterator[tuple[str, Path, Round, int, float]]:
    """Yield every Round that has a valid joint action: (episode, path, Round, parent, share).

    `parent` is the number of the valid joint action that led there, or -1. `share` is the Round's
    share of the training step: 0 where a game was played to its end once.
    """
    pending: list[tuple[str, Path, Round, int, float]] = [
        (episode, (), root, -1, 1.0 / len(roots)) for episode, root in reversed(roots)
    ]
    count = 0
    while pending:
        episode, path, round_, parent, share = pending.pop()
        valid = _valid(round_)
        if not valid:
            continue
        yield episode, path, round_, parent, share
        went_on = [outcome for outcome in valid.values() if outcome.next is not None]
        expanded = sum(not outcome.once for outcome in went_on)
        # The expanded joint actions also carry the share of those that are not trained on.
        going_on = len(went_on) + sum(outcome.end == "pruned" for outcome in valid.values())
        children = [
            (
                episode,
                (*path, index),
                outcome.next,
                number,
                0.0 if outcome.once else share * (going_on / len(valid)) / expanded,
            )
            for number, (index, outcome) in enumerate(valid.items(), start=count)
            if outcome.next is not None
        ]
        pending += reversed(children)
        count += len(valid)


def _samples(round_: Round, episode: str, path: Path, share: float) -> Iterator[TrainSample]:
    """Yield the samples that took part in a valid joint action.

    Those of one agent divide the share of the Round equally.
    """
    for agent, completions in round_.samples.items():
        valid = _valid(round_).values()
        took_part = sorted({one.picks[agent] for one in valid if agent in one.picks})
        for index in took_part:
            yield TrainSample(
                id=SampleId(episode, path, agent, index),
                turn=round_.turn,
                prompt_tokens=round_.prompt_tokens[agent],
                completion=completions[index],
                advantage=0.0,
                share=share / len(took_part),
            )
