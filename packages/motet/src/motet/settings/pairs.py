"""Which pairs of joint actions are made, and what is learned from them."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from motet.settings.base import Settings


class PairReplay(Settings):
    """From which iterations pairs are drawn (`motet.credit.preferences`).

    An iteration of `algorithm.credit` is a step. One of `reward_model` is a new set of pairs.
    """

    mode: Literal["current", "nearest_k", "all_history", "lambda_decay"] = "current"
    """current: all pairs of the present iteration, and no others. nearest_k: pairs of the last `k`
    iterations, each as likely. all_history: those of all iterations. lambda_decay: an iteration
    that is a iterations old has the weight (1 - decay)·decay^a."""
    k: PositiveInt | None = None
    """nearest_k: the number of iterations, the present one included."""
    decay: float | None = Field(None, ge=0.0, le=1.0)
    """lambda_decay: λ. With 1 all iterations are equally likely."""
    size: PositiveInt | None = None
    """The number of pairs that are drawn. The default is the number of present pairs."""

    @model_validator(mode="after")
    def _only_what_the_mode_reads(self) -> Self:
        readers = {"k": "nearest_k", "decay": "lambda_decay"}
        for name, mode in readers.items():
            value = getattr(self, name)
            if (value is not None) != (self.mode == mode):
                got = "null" if value is None else value
                raise ValueError(
                    f"got {name} {got} with mode {self.mode}, expected {name} with mode {mode} "
                    f"and with no other: set both, or neither"
                )
        if self.size is not None and self.mode == "current":
            raise ValueError(
                f"got size {self.size} with mode current, which takes every pair: drop it, or use "
                "another mode"
            )
        return self


class Pairs(Settings):
    """Which pairs of joint actions are made and learned from (`motet.credit.preferences`)."""

    compare: Literal["all", "halves"] = "all"
    """Which joint actions of a Round may form a pair. all: any two. halves: the g-th of the first
    half and the g-th of the second half, so that no joint action is in two pairs. comlrl's
    iterative trainers do that: with comparator_policy: current both halves come from the present
    policies."""
    select: Literal["reward_gap", "random", "all", "comparator_reward"] = "reward_gap"
    """Which of them are used: those with the largest difference of their returns, random ones, or
    all. comparator_reward: those whose joint action of the second half has the highest return; of
    equal ones, those with the largest difference. Ties are never a pair."""
    pairs: PositiveInt | None = 16
    """The number of pairs per Round, unless `select` is all. null: all of them."""
    replay: PairReplay = PairReplay()
    """Whether pairs of earlier iterations are learned from again."""

    @model_validator(mode="after")
    def _fitting_selection(self) -> Self:
        usual = type(self).model_fields["pairs"].default
        if self.select == "all" and self.pairs not in (None, usual):
            raise ValueError(
                f"got pairs {self.pairs} with select all, which takes every pair: drop one of them"
            )
        if self.select == "comparator_reward" and self.compare != "halves":
            raise ValueError(
                f"got select comparator_reward with compare {self.compare}, expected compare: "
                "halves, because only there is one of the two the comparator"
            )
        return self
