"""Dry runs count the agents that act at a turn, not all agents of the team."""

import motet
from tests.games import Lottery
from tests.small_runs import run_config


class InTurns(Lottery):
    """`a` acts at even turns, and `b` at odd ones."""

    agents = ("a", "b")

    def __init__(self, most: int = 9) -> None:
        self.most = most

    async def start(self, task, seed):
        return 0

    def observe(self, state):
        return {"ab"[state % 2]: "say"}

    async def step(self, state, replies, seed):
        done = state + 1 == self.most
        return motet.Transition(state + 1, dict.fromkeys("ab", 0.0), done, success=0.0)


def cost(game, samples, **rollout):
    config = run_config(
        rollout={"samples": samples, **rollout}, train={"steps": 1, "tasks_per_step": 8},
        decode={"max_new_tokens": 5},
    )  # fmt: skip
    del config["environment"]
    config["algorithm"] = {"name": "magrpo", "repeat_last_reward": False, "group_by": "task"}
    return motet.dry_run(config, environment=game)


def test_one_agent_at_a_time_gives_its_completions_alone():
    found = cost(InTurns(), [8, 1])
    # 8 tasks · 8 samples of a, then 8 · 8 Rounds with one sample of b
    assert (found.rounds, found.joint_actions, found.completions) == (72, 128, 128)
    assert found.longest_completions == 128 * 5


def test_crossed_joint_actions_are_those_of_the_agents_that_act():
    found = cost(InTurns(), [2, 2], pairing="crossed")
    # 2 joint actions of one agent, not 4 of two
    assert (found.rounds, found.joint_actions, found.completions) == (24, 48, 48)


def test_all_agents_are_assumed_at_turns_that_no_trial_game_reaches():
    assert cost(InTurns(most=1), [2, 1]).completions == 8 * 2 + 8 * 2 * 2
