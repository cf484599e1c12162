"""The rows of a step as tensors: agents N, joint actions J, samples S, and how figures pass between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core import PERSONAL, RIGHT
from motet.credit.flatten import Rows
from motet.credit.incentives import bonuses
from motet.credit.returns import Forest, absorb, tree_fold, turn_returns
from motet.credit.segments import segment_mean
from motet.errors import ConfigError
from motet.settings import Algorithm


@dataclass(frozen=True)
class Table:
    """`sample_NJ` is the row of the sample an agent contributed to a joint action, -1 where it was silent."""

    rows: Rows
    agents: Sequence[str]
    forest: Forest
    sample_NJ: Tensor
    agent_S: Tensor
    """int64 [S]: each sample's agent, as a place in `agents`."""

    @classmethod
    def of(cls, rows: Rows, agents: Sequence[str]) -> "Table":
        picked = [[action.picks[a] if a in action.picks else -1 for action in rows.actions] for a in agents]
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
        """A sample's figure is the mean over the joint actions it took part in. [S]"""
        acts_NJ = self.acts_NJ
        return segment_mean(figures_NJ[acts_NJ], self.sample_NJ[acts_NJ], len(self.rows.samples))

    def of_actions(self, figures_S: Tensor) -> Tensor:
        """Each agent's figure of the sample it contributed, 0 where it was silent. [N, J]"""
        return torch.cat([figures_S, figures_S.new_zeros(1)])[self.sample_NJ]

    # ------------------------------------------------------------------------------------------------ what was earned

    def rewards_NJ(self, algorithm: Algorithm) -> Tensor:
        """What each joint action earned each agent; for the fold after sharing and absorbing. float64 [N, J]"""
        actions = self.rows.actions
        rewards_NJ = torch.tensor([[action.rewards[a] for action in actions] for a in self.agents], dtype=torch.float64)
        if algorithm.returns != "tree":
            return rewards_NJ
        if algorithm.share == "all":
            rewards_NJ = rewards_NJ.mean(0, keepdim=True).expand_as(rewards_NJ)
        if algorithm.absorb:
            rewards_NJ = absorb(rewards_NJ, torch.tensor([action.missing for action in actions]), algorithm.discount)
        return rewards_NJ

    def extras_NJ(self, algorithm: Algorithm) -> Tensor:
        """What belongs to one turn of one agent and is never folded: its personal term, and incentives. float64 [N, J]

        Raises: ConfigError where incentives are asked for and an outcome does not say who was right.
        """
        actions = self.rows.actions
        extras_NJ = torch.tensor(
            [[_term(action.terms, PERSONAL + agent) for action in actions] for agent in self.agents],
            dtype=torch.float64,
        )
        if not algorithm.incentives.any:
            return extras_NJ
        missing = [a for a in self.agents for action in actions if RIGHT + a not in action.terms]
        if missing:
            raise ConfigError(
                f"algorithm.incentives need to know who was right, but an outcome has no term {RIGHT}{missing[0]}: "
                f"use an environment with gold labels, or drop them"
            )
        right_NJ = torch.tensor([[action.terms[RIGHT + agent] > 0.5 for action in actions] for agent in self.agents])
        return extras_NJ + bonuses(right_NJ, self.forest, algorithm.incentives)

    def returns_NJ(self, algorithm: Algorithm, penalty_S: Tensor) -> Tensor:
        """The return of every joint action for every agent, with nobody's value in it. float64 [N, J]

        In the fold a penalty is part of the reward, so earlier turns answer for later divergence; a rule that replaces the fold
        lets nothing cross a turn, so each sample answers for its own.
        """
        rewards_NJ, penalty_NJ = self.rewards_NJ(algorithm), self.of_actions(penalty_S)
        if algorithm.returns == "tree":
            everywhere_NJ = torch.ones_like(
                rewards_NJ, dtype=torch.bool
            )  # with V = 0 and λ = 1 silence changes nothing
            folded_NJ = tree_fold(
                rewards_NJ - penalty_NJ, None, everywhere_NJ, self.forest, algorithm.discount, 1.0, algorithm.pruned
            )
        else:
            read_NJ = turn_returns(rewards_NJ, self.forest, algorithm.returns, algorithm.discount, algorithm.share)
            folded_NJ = read_NJ - penalty_NJ
        return folded_NJ + self.extras_NJ(algorithm)


def _term(terms: Mapping[str, float], name: str) -> float:
    return terms[name] if name in terms else 0.0
