"""Samples of older weights in an exact game: the bias of every correction, through the real code.

Two agents write one or two tokens each, and a reward belongs to each joint action. All joint
actions are enumerated with their probability under the older policies μ. Credit, packing and the
objective then give the expected gradient at the present policies π. It is compared with the
expected gradient of samples of π. docs/algorithms.md ("One step off") has a table of the figures;
`python -m pytest motet/batch/lag_test.py` asserts each of them.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.batch import pack, policy_objective, weighs_completions
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    Round,
    SampleId,
    Scores,
    Task,
    Team,
)
from motet.credit.assign import assign_credit
from motet.settings import Algorithm
from tests.fixtures.wide import widely

AGENTS = ("a", "b")
TEAM = Team({agent: (agent,) for agent in AGENTS}, decode={})
ACTIONS = ((0,), (1, 0), (1, 1))
"""A first token 0 ends the completion; after a 1 one more token follows."""
Tables = Mapping[str, Mapping[tuple[int, ...], Tensor]]
"""Agent -> prefix -> the logits of the next token."""


def tables(seed: int, scale: float, around: Tables | None = None) -> Tables:
    generator = torch.Generator().manual_seed(seed)
    return {
        agent: {
            prefix: scale * torch.randn(2, generator=generator, dtype=torch.float64)
            + (0.0 if around is None else around[agent][prefix])
            for prefix in ((), (1,))
        }
        for agent in AGENTS
    }


PRESENT = tables(0, 1.0)
REFERENCE = tables(3, 0.8, PRESENT)
REWARDS = dict(
    zip(
        itertools.product(ACTIONS, repeat=2),
        torch.randn(9, generator=torch.Generator().manual_seed(4)).tolist(),
        strict=True,
    )
)


@dataclass(frozen=True)
class Gradients:
    """The expected gradient with samples of μ, and with samples of π."""

    lagged: Tensor
    present: Tensor

    @property
    def error(self) -> float:
        return float((self.lagged - self.present).norm() / self.present.norm())

    @property
    def cosine(self) -> float:
        return float(torch.cosine_similarity(self.lagged, self.present, dim=0))


def logprobs(of: Tables, agent: str, action: tuple[int, ...]) -> list[Tensor]:
    return [
        torch.log_softmax(of[agent][action[:place]], 0)[token] for place, token in enumerate(action)
    ]


def entropies(of: Tables, agent: str, action: tuple[int, ...]) -> list[Tensor]:
    rows = [torch.log_softmax(of[agent][action[:place]], 0) for place in range(len(action))]
    return [-(row.exp() * row).sum() for row in rows]


def floats(values: list[Tensor]) -> tuple[float, ...]:
    return tuple(value.item() for value in values)


def expected(algorithm: Algorithm, behaviour: Tables, max_lag: int, rewarded: float) -> Tensor:
    """Return the expected gradient of −loss at π, if the policies of `behaviour` sample."""
    policy = {
        agent: {prefix: logits.clone().requires_grad_() for prefix, logits in rows.items()}
        for agent, rows in PRESENT.items()
    }
    objective = policy_objective(algorithm, max_lag=max_lag)
    total = torch.zeros((), dtype=torch.float64)
    for joint in itertools.product(ACTIONS, repeat=2):
        actions = dict(zip(AGENTS, joint, strict=True))
        then = {agent: floats(logprobs(behaviour, agent, actions[agent])) for agent in AGENTS}
        round_ = Round(
            0,
            dict.fromkeys(AGENTS, "?"),
            dict.fromkeys(AGENTS, (1,)),
            {
                agent: (
                    Completion(agent, "x", "stop", tokens=actions[agent], logprobs=then[agent]),
                )
                for agent in AGENTS
            },
            (
                Outcome(
                    dict.fromkeys(AGENTS, 0),
                    dict.fromkeys(AGENTS, rewarded * REWARDS[joint]),
                    end="limit",
                ),
            ),
        )
        ids = {agent: SampleId("e", (), agent, 0) for agent in AGENTS}
        of_id = {id: agent for agent, id in ids.items()}
        scores = Scores(
            reference={
                ids[agent]: floats(logprobs(REFERENCE, agent, actions[agent])) for agent in AGENTS
            },
            present={
                ids[agent]: floats(logprobs(policy, agent, actions[agent])) for agent in AGENTS
            }
            if weighs_completions(algorithm, max_lag)
            else {},
        )
        credit = assign_credit(
            [Episode("e", Task("t", {}), round_)], scores, algorithm, CreditState(), TEAM, 1
        )
        chance = torch.tensor(sum(map(sum, then.values()))).exp()
        for batch in pack(credit.samples, 1000, algorithm.reduce, dict.fromkeys(AGENTS, 2)):
            agent = of_id[batch.ids[0]]
            now_BL = torch.stack(logprobs(policy, agent, actions[agent]))[None]
            entropy_BL = torch.stack(entropies(policy, agent, actions[agent]))[None]
            total = total - chance * objective(batch, now_BL, entropy_BL)[0]
    weights = [policy[agent][prefix] for agent in AGENTS for prefix in ((), (1,))]
    return torch.cat(torch.autograd.grad(total, weights))


def study(shift: float, rewarded: float = 1.0, **options: Any) -> Gradients:
    """Compare samples of policies that were `shift` logits away (standard deviation) with present
    ones."""
    algorithm = Algorithm(**options)
    older = tables(5, shift, PRESENT)
    return Gradients(
        expected(algorithm, older, 1, rewarded), expected(algorithm, PRESENT, 0, rewarded)
    )


UNCAPPED, KL_ONLY = {"importance_cap": 1e6}, {"rewarded": 0.0, "kl_coefficient": 1.0}
TERMS: dict[str, dict[str, Any]] = {
    "policy_gradient": {},
    "clipped_surrogate": {"policy_loss": "clipped_surrogate"},
    "gspo": {"policy_loss": "gspo", "reduce": "sequence_mean"},
    "cispo": {"policy_loss": "cispo", "clip_low": 1.0, "clip_high": 4.0},
    "k2": {**KL_ONLY, "kl_in": "loss", "kl_estimator": "k2"},
    "k3": {**KL_ONLY, "kl_in": "loss", "kl_estimator": "k3"},
    "k1": {**KL_ONLY, "kl_in": "reward"},
    "entropy": {"rewarded": 0.0, "entropy_coefficient": 1.0},
}
"""Name in the table -> its options. The last four have no reward, so only the term is left."""
FIGURES = {
    # logits between μ and π, cap: term -> error in % with none, token, sequence, joint
    (0.3, 1e6): {
        "policy_gradient": (15, 10, 3, 0),
        "clipped_surrogate": (10, 10, 3, 0),
        "gspo": (11, 11, 8, 0),
        "cispo": (10, 10, 3, 0),
        "k2": (19, 19, 0, 0),
        "k3": (12, 12, 0, 0),
        "k1": (73, 51, 0, 0),
        "entropy": (7, 7, 0, 0),
    },
    (1.0, 1e6): {
        "policy_gradient": (50, 29, 11, 0),
        "clipped_surrogate": (37, 37, 11, 0),
        "gspo": (32, 32, 24, 0),
        "cispo": (29, 29, 11, 0),
        "k2": (50, 50, 0, 0),
        "k3": (31, 31, 0, 0),
        "k1": (211, 176, 0, 0),
        "entropy": (19, 19, 0, 0),
    },
    (1.0, 2.0): {
        "policy_gradient": (50, 33, 29, 27),
        "clipped_surrogate": (37, 37, 29, 27),
        "gspo": (32, 32, 43, 36),
        "cispo": (29, 29, 29, 27),
        "k2": (50, 50, 15, 15),
        "k3": (31, 31, 21, 21),
        "k1": (211, 102, 15, 16),
        "entropy": (19, 19, 0, 0),
    },
}
RATIOS = ("none", "token", "sequence", "joint")


def of(ratio: str) -> dict[str, str]:
    return {"importance_sampling": "none"} if ratio == "none" else {"importance_ratio": ratio}


def row(shift: float, cap: float, term: str) -> list[float]:
    studies = [study(shift, **TERMS[term], **of(ratio), importance_cap=cap) for ratio in RATIOS]
    return [100 * found.error for found in studies]


EACH = [(place, term) for place, terms in FIGURES.items() for term in terms]


@pytest.mark.parametrize(
    "each",
    widely(EACH, keep=[one for one in EACH if one[0] == (1.0, 1e6)]),
    ids=lambda each: f"{each[1]}-{each[0]}",
)
def test_the_bias_of_every_ratio_is_the_figure_of_the_docs(each):
    place, term = each
    assert row(*place, term) == pytest.approx(FIGURES[place][term], rel=0, abs=0.6)


def test_the_table_of_the_docs_has_these_figures():
    text = Path("docs/algorithms.md").read_text()
    for term in TERMS:
        cells = " | ".join(" / ".join(map(str, terms[term])) for terms in FIGURES.values())
        assert f"| {cells} |" in text, f"{term}: {cells}"


@pytest.mark.parametrize("term", TERMS)
def test_joint_ratios_without_a_cap_are_exact(term):
    assert study(1.0, **TERMS[term], **UNCAPPED).error < 1e-5


def test_a_ratio_of_ones_own_turns_the_gradient_and_the_joint_one_does_not():
    cosines = [study(1.0, **UNCAPPED, **of(ratio)).cosine for ratio in RATIOS]
    assert cosines == pytest.approx([0.965, 0.977, 0.994, 1.0], abs=5e-4)


def test_samples_of_the_present_policies_give_the_exact_gradient_of_the_return():
    policy = {
        agent: {prefix: logits.clone().requires_grad_() for prefix, logits in rows.items()}
        for agent, rows in PRESENT.items()
    }
    value = torch.zeros((), dtype=torch.float64)
    for joint, reward in REWARDS.items():
        chance = sum(
            sum(logprobs(policy, agent, action))
            for agent, action in zip(AGENTS, joint, strict=True)
        )
        value = value + torch.as_tensor(chance).exp() * reward
    weights = [policy[agent][prefix] for agent in AGENTS for prefix in ((), (1,))]
    exact = torch.cat(torch.autograd.grad(value, weights))
    assert torch.allclose(expected(Algorithm(), PRESENT, 0, 1.0), exact, atol=1e-6)
