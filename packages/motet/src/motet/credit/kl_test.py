"""Tests the KL penalty in the reward: its value, which samples it affects, and how its coefficient
adapts."""

import itertools

import pytest
import torch

from motet.algorithms import resolve
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
    ValueEstimate,
    ValueId,
)
from motet.credit.assign import assign_credit

AGENTS = ("a", "b")
TEAM = Team({"a": ("p",), "b": ("q",)}, decode={})


def path(*turns: tuple[float, tuple[float, ...], tuple[float, ...]]) -> Episode:
    """Return a path without branches. Each turn is (reward, log π of a's tokens, log π of b's
    tokens)."""
    below = None
    for number in reversed(range(len(turns))):
        reward, *said = turns[number]
        samples = {
            agent: (
                Completion(policy, "x", "stop", tokens=(7,) * len(logprobs), logprobs=logprobs),
            )
            for agent, policy, logprobs in zip(AGENTS, ("p", "q"), said, strict=True)
        }
        outcome = Outcome(
            dict.fromkeys(AGENTS, 0),
            dict.fromkeys(AGENTS, reward),
            {},
            below,
            None if below else "done",
        )
        below = Round(
            number, dict.fromkeys(AGENTS, "?"), dict.fromkeys(AGENTS, (1,)), samples, (outcome,)
        )
    return Episode("e", Task("e", {}), below)


ONE = path((1.0, (-1.0, -2.0), (-0.5,)))
REFERENCE = {SampleId("e", (), "a", 0): (-1.5, -4.0), SampleId("e", (), "b", 0): (-0.25,)}
"""k1 is 0.5 and 2 nats for a's tokens, and -0.25 for b's."""


def credit(
    episode,
    name="mareinforce",
    *,
    reference=REFERENCE,
    values=None,
    state=None,
    team=TEAM,
    **fields,
):
    algorithm = resolve(name, {"kl_in": "reward", "kl_coefficient": 0.1, **fields})
    turns = 1 + max(len(id.path) for id in reference)
    return assign_credit(
        [episode], Scores(reference, values or {}), algorithm, state or CreditState(), team, turns
    )


def advantages(result):
    return {(sample.id.agent, sample.turn): sample.advantage for sample in result.samples}


def test_a_completion_pays_the_sum_over_its_tokens_of_log_pi_minus_log_pi_ref():
    assert advantages(credit(ONE)) == {
        ("a", 0): pytest.approx(1 - 0.1 * 2.5),
        ("b", 0): pytest.approx(1 + 0.1 * 0.25),
    }


def test_the_price_adapts_by_ziegler_for_each_policy():
    # β·(1 + clip(KL/target − 1, ±0.2)·n/horizon). a: 2.5/2 − 1 = 0.25 is clipped to 0.2. b: −0.25/2
    # − 1 is clipped to −0.2.
    state = credit(ONE, kl_target=2.0, kl_horizon=10).state
    assert state.kl_coefficients == {"p": pytest.approx(0.1 * 1.02), "q": pytest.approx(0.1 * 0.98)}
    # 2.2 nats: 10% above the target, not clipped.
    near = {
        **REFERENCE,
        SampleId("e", (), "a", 0): (-1.0, -4.2),
    }
    assert credit(ONE, reference=near, kl_target=2.0, kl_horizon=10).state.kl_coefficients[
        "p"
    ] == pytest.approx(0.101)


def together() -> tuple[Episode, Team]:
    """Return the same path with one policy for both agents, and the team."""
    said = {
        agent: (Completion("p", "x", "stop", tokens=one.tokens, logprobs=one.logprobs),)
        for agent, (one,) in ONE.root.samples.items()
    }
    root = Round(0, ONE.root.prompts, ONE.root.prompt_tokens, said, ONE.root.outcomes)
    return Episode("e", ONE.task, root), Team(dict.fromkeys(AGENTS, ("p",)), decode={})


def test_two_agents_of_one_policy_adapt_one_coefficient_by_their_mean():
    shared, team = together()
    # (2.5 − 0.25)/2 = 1.125 nats; 1.125/1.25 − 1 = −0.1; n/horizon = 2/10
    state = credit(shared, team=team, kl_target=1.25, kl_horizon=10).state
    assert state.kl_coefficients == {"p": pytest.approx(0.1 * (1 - 0.1 * 0.2))}


def test_no_step_is_larger_than_a_fifth_however_many_completions_it_has():
    shared, team = together()
    state = credit(shared, team=team, kl_target=0.1, kl_horizon=1).state
    assert state.kl_coefficients == {"p": pytest.approx(0.12)}


def test_the_next_step_pays_what_this_one_adapted_and_adapts_from_there():
    fields = {"kl_target": 2.0, "kl_horizon": 10}
    first = credit(ONE, **fields)
    assert advantages(first)["a", 0] == pytest.approx(1 - 0.1 * 2.5)
    second = credit(ONE, state=first.state, **fields)
    assert advantages(second)["a", 0] == pytest.approx(1 - 0.102 * 2.5)
    assert second.state.kl_coefficients["p"] == pytest.approx(0.102 * 1.02)
    assert second.metrics["credit/kl_coefficient/p"] == pytest.approx(0.102)


def test_a_fixed_price_is_not_remembered():
    assert credit(ONE).state == CreditState()


def test_a_frozen_partner_neither_pays_nor_adapts():
    cold = Team(TEAM.agents, decode={}, frozen=frozenset({"q"}))
    only_a = {id: said for id, said in REFERENCE.items() if id.agent == "a"}
    result = credit(ONE, reference=only_a, team=cold, kl_target=2.0, kl_horizon=10)
    assert advantages(result) == {("a", 0): pytest.approx(0.75)}
    assert list(result.state.kl_coefficients) == ["p"]


TWO = path((1.0, (-1.0,), (-1.0,)), (2.0, (-1.0, -1.0), (-1.0,)))
FAR = {
    SampleId("e", (), "a", 0): (-2.0,),
    SampleId("e", (0,), "a", 0): (-2.0, -4.0),
    SampleId("e", (), "b", 0): (-1.0,),
    SampleId("e", (0,), "b", 0): (-1.0,),
}
"""k1 of a is 1 nat in turn one and 4 in turn two (1 and 3); k1 of b is 0."""


def test_in_turn_scope_the_price_is_part_of_the_reward_and_folds():
    critics = Team(TEAM.agents, decode={}, critics={"a": "c", "b": "d"})
    values = {
        ValueId("e", where, agent): ValueEstimate((1,), (0,), (value,))
        for where, value in (((), 0.5), ((0,), 0.25))
        for agent in AGENTS
    }
    # Turn two: 2 − 0.4 − V; turn one: 1 − 0.1 + γ·(V' + λ·A') − V.
    found = credit(
        TWO,
        "iac",
        reference=FAR,
        values=values,
        team=critics,
        repeat_last_reward=False,
        gamma=0.5,
        gae_lambda=0.5,
    )
    assert advantages(found)["a", 1] == pytest.approx(1.6 - 0.25)
    assert advantages(found)["a", 0] == pytest.approx(0.9 + 0.5 * (0.25 + 0.5 * 1.35) - 0.5)
    assert advantages(found)["b", 1] == pytest.approx(2.0 - 0.25)
    assert advantages(found)["b", 0] == pytest.approx(1.0 + 0.5 * (0.25 + 0.5 * 1.75) - 0.5)


def test_in_token_scope_each_token_pays_for_itself():
    critics = Team(TEAM.agents, decode={}, critics={"a": "c", "b": "d"})
    values = {
        ValueId("e", where, agent, 0): ValueEstimate(
            (1,) * count, tuple(range(count)), (0.0,) * count
        )
        for where, agent, count in (((), "a", 1), ((0,), "a", 2), ((), "b", 1), ((0,), "b", 1))
    }
    found = credit(
        TWO,
        "maporl",
        reference=FAR,
        values=values,
        team=critics,
        whiten=False,
        gae_lambda=0.5,
        returns="current",
    )
    # Turn two of a: rewards (−0.1, 2 − 0.3), V = 0, λ = 1/2. The penalty of turn one only affects
    # turn one.
    assert advantages(found)["a", 1] == (pytest.approx(-0.1 + 0.5 * 1.7), pytest.approx(1.7))
    assert advantages(found)["a", 0] == (pytest.approx(1 - 0.1),)
    assert advantages(found)["b", 1] == (pytest.approx(2.0),)


def test_in_the_reward_it_has_the_gradient_of_the_whole_completions_divergence():
    """Over all completions of two tokens with a vocabulary of three: Σ p · A · ∇log π =
    −coefficient · ∇KL(π ‖ π_ref)."""
    generator = torch.Generator().manual_seed(11)
    logits, other = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    logits, reference = logits.requires_grad_(), other.log_softmax(-1)
    logp = logits.log_softmax(-1)
    estimate, divergence = torch.zeros_like(logp[0, 0]), torch.zeros_like(logp[0, 0])
    for first, second in itertools.product(range(3), repeat=2):
        place = ((0, first), (1 + first, second))
        said, known = ([float(table[at]) for at in place] for table in (logp.detach(), reference))
        drawn = logp[place[0]] + logp[place[1]]
        result = credit(
            path((0.0, said, (-0.5,))),
            reference={**REFERENCE, SampleId("e", (), "a", 0): tuple(known)},
        )
        estimate = estimate + drawn.exp().detach() * advantages(result)["a", 0] * drawn
        divergence = divergence + drawn.exp() * (drawn - sum(known))
    (found,) = torch.autograd.grad(estimate, logits, retain_graph=True)
    (exact,) = torch.autograd.grad(divergence, logits)
    assert torch.allclose(found, -0.1 * exact, atol=1e-12)
    assert exact.abs().max() > 0.01
