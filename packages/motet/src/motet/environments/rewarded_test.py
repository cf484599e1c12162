import asyncio

import pytest

from motet.core import Environment, PlaysAlone, ReadsRows, Reply, Score, Task, Transition
from motet.environments.check import check_environment
from motet.environments.debate_tiny import TinyDebate
from motet.environments.relay import Relay
from motet.environments.rewarded import Rewarded, RewardedState
from motet.errors import RewardFault
from motet.rollout.play import play
from motet.rollout.waves import Waves
from motet.settings import Plan
from tests.fixtures.fake_rollouts import KeySampler, team_of

TASK = Task("12-34", {"a": "12", "b": "34"})


def step(environment, *turns):
    async def run():
        state = await environment.start(TASK, 0)
        for a, b in turns:
            transition = await environment.step(state, {"a": Reply(a), "b": Reply(b)}, 0)
            state = transition.state
        return transition

    return asyncio.run(run())


def relay():
    return Relay(Relay.Options())


def test_the_reward_is_asked_every_turn_and_the_environments_terms_stay():
    def length(task, texts):
        return {agent: float(len(text)) for agent, text in texts.items()}

    environment = Rewarded(relay(), length)
    assert step(environment, ("x", "yz")).rewards == {"a": 1.0, "b": 2.0}
    last = step(environment, ("x", "yz"), ("1234", "1234"))
    assert (last.rewards, last.done) == ({"a": 4.0, "b": 4.0}, True)
    assert last.terms == {"success": 1.0, "a_right": 1.0, "b_right": 1.0}


class WriterThenReviewer(Environment):
    """Two agents take turns; the state is the number of the turn."""

    agents = ("writer", "reviewer")

    def tasks(self, split):
        return [TASK]

    async def start(self, task, seed):
        return 0

    def observe(self, state):
        return {self.agents[state]: "go on"}

    async def step(self, state, replies, seed):
        return Transition(state + 1, {}, done=state == 1)


def test_the_reward_gets_the_latest_text_of_each_agent_that_has_acted():
    seen = []
    environment = Rewarded(WriterThenReviewer(), lambda task, texts: seen.append(texts) or 0.0)

    async def run():
        state = await environment.start(TASK, 0)
        for agent, text in (("writer", "draft"), ("reviewer", "fine")):
            assert list(environment.observe(state)) == [agent]
            state = (await environment.step(state, {agent: Reply(text)}, 0)).state

    asyncio.run(run())
    assert seen == [{"writer": "draft"}, {"writer": "draft", "reviewer": "fine"}]


def test_the_reward_knows_the_task_and_may_name_a_success_of_its_own():
    class Echo:
        async def score(self, task, texts):
            return Score(0.5, {"echo": 2.0}, success=texts["a"] == task.fields["b"])

    terms = step(Rewarded(relay(), Echo()), ("x", "y"), ("34", "")).terms
    assert terms == {"success": 1.0, "echo": 2.0, "a_right": 0.0, "b_right": 0.0}


class Repeats(WriterThenReviewer):
    """Its metrics repeat success."""

    async def step(self, state, replies, seed):
        return Transition(1, {}, True, {"long": 2.0, "success": 1.0, "odd": 0.0}, success=True)


def test_a_success_of_the_rewards_own_counts_also_where_the_metrics_repeat_it():
    def judge(task, texts):
        return Score(0.0, success=0.25, right={"writer": False}, bonus={"writer": -1.0})

    state = RewardedState(TASK, 0, {})
    end = asyncio.run(Rewarded(Repeats(), judge).step(state, {"writer": Reply("a")}, 0))
    assert (end.success, end.right, end.bonus) == (0.25, {"writer": False}, {"writer": -1.0})
    assert list(end.terms.items()) == [
        ("right/writer", False),
        ("long", 2.0),
        ("success", 0.25),
        ("odd", 0.0),
        ("personal/writer", -1.0),
    ]


def test_an_exception_of_the_reward_is_a_fault_and_never_a_zero():
    with pytest.raises(RewardFault, match="ZeroDivisionError"):
        step(Rewarded(relay(), lambda task, texts: 1 / 0), ("x", "y"))


def test_who_was_right_is_still_said_and_when_it_pays_is_the_rewards_own_affair():
    debate = TinyDebate(TinyDebate.Options(pay="last_turn"))
    judged = Rewarded(debate, lambda task, texts: 1.0)
    assert (
        judged.says_right,
        Rewarded(relay(), lambda task, texts: 1.0).says_right,
    ) == (True, False)
    assert (debate.rewards_at_end, judged.rewards_at_end) == (True, False)


def test_one_agent_alone_is_judged_by_the_same_reward():
    class Shared(Relay):
        def alone(self):
            return Relay(self.options)

    def length(task, texts):
        return float(sum(map(len, texts.values())))

    assert step(Rewarded(Shared(Relay.Options()), length).alone(), ("x", "yz")).rewards == {
        "a": 3.0,
        "b": 3.0,
    }
    assert not isinstance(Rewarded(relay(), length), PlaysAlone)


def test_a_rewarded_environment_can_do_what_the_bare_one_can():
    environment = Rewarded(relay(), lambda task, texts: 0.0)
    assert environment.tasks("eval") == relay().tasks("eval")
    assert not isinstance(environment, ReadsRows)
    assert "have success 1" in str(check_environment(environment, [TASK]))


def test_a_game_that_is_over_after_some_turns_stays_one():
    assert Rewarded(relay(), lambda task, texts: 0.0).most_turns == 2


# ------------------------------------------------------------------------------------------ retries


class Board(Environment):
    """A live game of two moves: `step` changes its state."""

    agents = ("writer",)

    def __init__(self, branches):
        self.branches, self.steps = branches, 0

    async def start(self, task, seed):
        return []

    def observe(self, state):
        return {"writer": f"move {len(state)}"}

    async def step(self, state, replies, seed):
        self.steps += 1
        moved = [*state, replies["writer"].text]
        if not self.branches:
            state[:] = moved
            moved = state
        over = len(moved) == 2
        return Transition(moved, {"writer": 0.0}, over, success=1.0 if over else None)


class Busy(RewardFault):
    may_pass = True


class Failing:
    """A reward that raises at its first `times` calls."""

    def __init__(self, error, times):
        self.error, self.times, self.calls = error, times, 0

    def score(self, task, texts):
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return 1.0


def played(board, reward, monkeypatch, retries=2):
    monkeypatch.setattr("motet.user_code.retries._FIRST_WAIT_SECONDS", 0.0)
    plan = Plan(samples=(1, 1), retries=retries)
    game = Rewarded(board, reward, plan.retries)

    async def main():
        waves = Waves(KeySampler())
        episode = play(TASK, "e", game, team_of(["writer"]), plan, waves, 0)
        (episode,) = await waves.run([episode])
        return episode

    return asyncio.run(main())


@pytest.mark.parametrize("error", [ConnectionError("down"), TimeoutError("slow"), Busy("later")])
@pytest.mark.parametrize("branches", [True, False])
def test_a_reward_is_asked_again_alone_and_no_step_is_taken_twice(branches, error, monkeypatch):
    board, reward = Board(branches), Failing(error, times=2)
    episode = played(board, reward, monkeypatch)
    assert episode.fault is None
    assert (board.steps, reward.calls) == (2, 4)


@pytest.mark.parametrize("error", [ConnectionError("down"), Busy("later")])
@pytest.mark.parametrize("branches", [True, False])
def test_a_reward_that_stays_away_is_a_fault_with_its_cause_and_line(branches, error, monkeypatch):
    board, reward = Board(branches), Failing(error, times=9)
    fault = played(board, reward, monkeypatch).fault
    assert (fault.where, fault.cause) == ("reward", type(error).__name__)
    assert "raise self.error" in fault.place
    assert (board.steps, reward.calls) == (1, 3)


def test_a_bug_of_the_reward_is_not_asked_again(monkeypatch):
    reward = Failing(KeyError("gold"), times=9)
    assert played(Board(True), reward, monkeypatch).fault.cause == "KeyError"
    assert reward.calls == 1
