"""The flattened step as tensors, with N agents, J joint actions and S samples.

Maps values per joint action to values per sample and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core import PERSONAL, RIGHT
from motet.credit.flatten import FlatStep
from motet.credit.incentives import bonuses
from motet.credit.returns import Forest, repeat_last_reward, tree_fold, turn_returns
from motet.credit.segments import segment_mean
from motet.errors import ConfigError
from motet.settings import Algorithm


@dataclass(frozen=True)
class Table:
    """The joint actions and samples of a step.

    `sample_NJ` is the row of the sample that an agent contributed to a joint action, or -1 if the
    agent did not act.
    """

    rows: FlatStep
    agents: Sequence[str]
    forest: Forest
    sample_NJ: Tensor
    agent_S: Tensor
    """int64 [S]: each sample's agent, as an index into `agents`."""

    @classmethod
    def of(cls, rows: FlatStep, agents: Sequence[str]) -> "Table":
        picked = [
            [action.picks[a] if a in action.picks else -1 for action in rows.actions]
            for a in agents
        ]
        forest = Forest(
            parent_J=torch.tensor([action.parent for action in rows.actions]),
            round_J=torch.tensor([action.round for action in rows.actions]),
            turn_J=torch.tensor([action.turn for action in rows.actions]),
            pruned_J=torch.tensor([action.pruned for action in rows.actions]),
        )
        agent_S = torch.tensor([agents.index(sample.id.agent) for sample in rows.samples])
        return cls(rows, agents, forest, torch.tensor(picked), agent_S)

    @property
    def acts_NJ(self) -> Tensor:
        return self.sample_NJ >= 0

    def of_samples(self, figures_NJ: Tensor) -> Tensor:
        """Average over the joint actions that each sample took part in. [N, J] -> [S]"""
        acts_NJ = self.acts_NJ
        return segment_mean(figures_NJ[acts_NJ], self.sample_NJ[acts_NJ], len(self.rows.samples))

    def of_actions(self, figures_S: Tensor) -> Tensor:
        """Look up the value of the sample that each agent contributed; 0 if it did not act. [S] ->
        [N, J]"""
        return torch.cat([figures_S, figures_S.new_zeros(1)])[self.sample_NJ]

    # ------------------------------------------------------------ rewards and returns

    def rewards_NJ(self, algorithm: Algorithm) -> Tensor:
        """Return each agent's reward for each joint action, float64 [N, J].

        With `returns: tree`, `reward_sharing` and `repeat_last_reward` are applied.
        """
        actions = self.rows.actions
        rewards_NJ = torch.tensor(
            [[action.rewards[a] for action in actions] for a in self.agents], dtype=torch.float64
        )
        if algorithm.returns != "tree":
            return rewards_NJ
        if algorithm.reward_sharing == "all":
            rewards_NJ = rewards_NJ.mean(0, keepdim=True).expand_as(rewards_NJ)
        if algorithm.repeat_last_reward:
            rewards_NJ = repeat_last_reward(
                rewards_NJ, torch.tensor([action.missing for action in actions]), algorithm.gamma
            )
        return rewards_NJ

    def extras_NJ(self, algorithm: Algorithm) -> Tensor:
        """Return what is added to the return of one turn of one agent only: the personal term and
        incentives. float64 [N, J]

        Raises: ConfigError if incentives are set and an outcome does not say who was right.
        """
        actions = self.rows.actions
        extras_NJ = torch.tensor(
            [
                [_term(action.terms, PERSONAL + agent) for action in actions]
                for agent in self.agents
            ],
            dtype=torch.float64,
        )
        if not algorithm.incentives.any:
            return extras_NJ
        missing = [a for a in self.agents for action in actions if RIGHT + a not in action.terms]
        if missing:
            raise ConfigError(
                f"algorithm.incentives need to know who was right, but an outcome has no term "
                f"{RIGHT}{missing[0]}: "
                f"use an environment with gold labels, or drop them"
            )
        right_NJ = torch.tensor(
            [[action.terms[RIGHT + agent] > 0.5 for action in actions] for agent in self.agents]
        )
        return extras_NJ + bonuses(right_NJ, self.forest, algorithm.incentives)

    def returns_NJ(self, algorithm: Algorithm, penalty_S: Tensor) -> Tensor:
        """Return the return of every joint action for every agent, computed without values. float64
        [N, J]

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
            )
        else:
            read_NJ = turn_returns(
                rewards_NJ,
                self.forest,
                algorithm.returns,
                algorithm.gamma,
                algorithm.reward_sharing,
            )
            folded_NJ = read_NJ - penalty_NJ
        return folded_NJ + self.extras_NJ(algorithm)


def _term(terms: Mapping[str, float], name: str) -> float:
    return terms[name] if name in terms else 0.0
