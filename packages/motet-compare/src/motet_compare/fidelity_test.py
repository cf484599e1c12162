"""The fidelity of credit: high where advantages say what completions change, else near 0."""

import asyncio

import pytest
import torch

from motet.core import Completion, Environment, Sampled, Task, Team, Transition
from motet.errors import ConfigError
from motet.evaluation.intervals import Estimate
from motet.settings import Algorithm, CriticCredit, Decode, Plan
from motet_compare.fidelity import Effect, Fixed, correlation, effect_of, fidelity_of

TASKS = [Task(f"t{number}", {}) for number in range(12)]
TEAM = Team({"a": ("p",), "b": ("q",)}, {"a": Decode(), "b": Decode()})
PATHS = Plan(samples=(4, 1))
LEAVE_ONE_OUT = Algorithm(baseline="leave_one_out", group_by="task", repeat_last_reward=False)


class Coins:
    """A sampler of heads (1) and tails (0), that are drawn with the keys of completions."""

    def __init__(self):
        self.asked = []

    async def sample(self, requests, on_answer=None):
        self.asked += [request.id for request in requests]
        return [
            Sampled(
                (1,),
                tuple(
                    Completion(request.policy, str(key // 7 % 2), "stop", 0, (2,), (-0.7,))
                    for key in request.keys
                ),
            )
            for request in requests
        ]


class FirstCoin(Environment):
    """Two turns; only the first coin of a counts, and the start draws what heads are worth."""

    agents = ("a", "b")
    branches = True

    async def start(self, task, seed):
        return (1 if seed % 2 else -1,)

    def observe(self, state):
        return dict.fromkeys(self.agents, f"turn {len(state)}")

    async def step(self, state, replies, seed):
        state = (*state, int(replies["a"].text))
        done = len(state) == 3
        value = float(state[0] * state[1]) if done else 0.0
        return Transition(state, dict.fromkeys(self.agents, value), done)


def found(algorithm=LEAVE_ONE_OUT, plan=PATHS, own=None):
    return asyncio.run(fidelity_of(FirstCoin(), TASKS, Coins(), TEAM, plan, algorithm, own, seed=3))


def test_credit_is_faithful_where_a_completion_counts_and_not_where_it_is_noise():
    fidelity = found()
    assert fidelity.agents["a"].mean > 0.6
    assert abs(fidelity.agents["b"].mean) < 0.5
    assert fidelity.agents["b"].low < 0.0 < fidelity.agents["b"].high
    assert fidelity.all.low < fidelity.all.mean < fidelity.all.high


def test_crossed_games_give_less_credit_for_another_agent_s_luck():
    crossed = found(plan=Plan(samples=(4, 1), pairing="crossed"))
    assert abs(crossed.agents["b"].mean) < 0.1
    assert crossed.agents["a"].mean > found().agents["a"].mean - 0.1


def test_an_own_credit_rule_has_a_fidelity_too():
    wrong_way = found(own=lambda step: -step.advantages_S)
    assert wrong_way.agents["a"].mean == pytest.approx(-found().agents["a"].mean)
    assert found(own=lambda step: torch.ones(len(step.samples))).all is None


def test_credit_that_needs_more_than_rewards_is_refused():
    with pytest.raises(ConfigError, match="the algorithm custom needs a critic"):
        found(Algorithm(credit=CriticCredit(view="own")))


def test_recorded_completions_are_given_in_place_of_new_ones():
    coins, said = Coins(), Completion("p", "recorded", "stop", 0, (9,), (-1.0,))
    seen = []

    class Request:
        def __init__(self, turn, agent):
            self.id, self.keys, self.policy = ("e", (0,) * turn, turn, agent), (1, 2), "p"

    asked = [Request(0, "a"), Request(0, "b"), Request(1, "a")]
    fixed = Fixed(coins, {"e": {(0, "b"): said}})
    answers = asyncio.run(fixed.sample(asked, lambda place, answer: seen.append(place)))
    assert answers[1].completions == (said, said)
    assert [one.completions[0].text for one in (answers[0], answers[2])] == ["0", "0"]
    assert (coins.asked, seen) == ([asked[0].id, asked[2].id], [1])


def test_an_agent_s_own_completion_explains_all_of_its_returns_or_nothing():
    for plan in (PATHS, Plan(samples=(2, 2))):
        own = found(plan=plan).own
        assert own["a"].mean == pytest.approx(1.0, abs=0.1)
        assert own["b"].mean < 0.1


def test_of_two_coins_that_both_count_each_explains_half():
    class BothCoins(FirstCoin):
        async def step(self, state, replies, seed):
            heads = sum(int(reply.text) for reply in replies.values())
            return Transition((*state, heads), dict.fromkeys(self.agents, float(heads)), True)

    many = [Task(f"t{number}", {}) for number in range(150)]
    team, plan = TEAM, Plan(samples=(4,))
    rule = Algorithm(baseline="leave_one_out", repeat_last_reward=False)
    own = asyncio.run(fidelity_of(BothCoins(), many, Coins(), team, plan, rule, None, seed=3)).own
    assert own["a"].mean == pytest.approx(0.5, abs=0.08)
    assert own["b"].mean == pytest.approx(0.5, abs=0.08)
    assert own["a"].low < 0.5 < own["a"].high


def test_an_effect_by_hand():
    # Means 3 and 1; variances 2 and 0, of two games each.
    assert effect_of([2.0, 4.0], [1.0, 1.0]) == Effect(2.0, 4.0 - 1.0, 0.0)
    assert effect_of([2.0], [1.0, 1.0]) is None


def test_a_replay_is_measured_on_the_path_that_is_trained():
    plan = Plan(samples=(4, 2), expand="replay")
    rule = Algorithm(baseline="leave_one_out", repeat_last_reward=False)
    both = found(rule, plan)
    assert both.completions == len(TASKS) * 2 * 2 * 2, "two turns, agents and completions"


def test_a_correlation_by_hand():
    rows = [("t", 0.0, 1.0), ("t", 1.0, 3.0), ("u", 2.0, 2.0)]
    # means 1 and 2: covariance (−1·−1 + 0·1 + 1·0)/3 = 1/3, variances 2/3 and 2/3
    assert correlation(rows, 0).mean == pytest.approx(0.5)
    assert isinstance(correlation(rows, 0), Estimate)
    assert correlation([("t", 1.0, 0.0), ("t", 1.0, 1.0), ("u", 1.0, 2.0)], 0) is None
    assert correlation([], 0) is None
