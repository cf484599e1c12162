import asyncio
import re
from functools import partial

import pytest

from motet.core import Environment, PlaysAlone, ReadsRows, Reply, Score, Task, Transition
from motet.environments.check import check_environment
from motet.environments.debate_tiny import TinyDebate
from motet.environments.relay import Relay
from motet.environments.reward import reads_transition
from motet.environments.rewarded import Rewarded, RewardedState
from motet.errors import ConfigError, RewardFault
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


# --------------------------------------------------------------------------------- the transition


def pays_at_the_end(task, texts, transition):
    return float(len(transition.state)) if transition.done else 0.0


class JudgesBoards:
    async def score(self, task, texts, *, transition):
        return Score({"writer": len(transition.state)}, success=transition.success)


@pytest.mark.parametrize("branches", [True, False])
@pytest.mark.parametrize(
    ("reward", "paid"), [(pays_at_the_end, [0.0, 2.0]), (JudgesBoards(), [1.0, 2.0])]
)
def test_a_reward_may_read_the_state_and_the_end(reward, paid, branches, monkeypatch):
    root = played(Board(branches), reward, monkeypatch).root
    first = root.outcomes[0]
    last = first.next.outcomes[0]
    assert [first.rewards["writer"], last.rewards["writer"]] == paid
    assert (last.success, last.end) == (1.0, "done")


def test_a_reward_that_was_retried_reads_the_same_transition(monkeypatch):
    seen = []

    def judge(task, texts, transition):
        seen.append(transition)
        if len(seen) < 3:
            raise ConnectionError("down")
        return 0.0

    assert played(Board(False), judge, monkeypatch).fault is None
    assert seen[0] is seen[1] is seen[2]


class Stateful:
    def __call__(self, task, texts, transition=None):
        return float(transition.done)


@pytest.mark.parametrize(
    ("reward", "reads"),
    [
        (lambda task, texts: 1.0, False),
        (lambda t, x: 1.0, False),
        (lambda task, texts, scale=2.0: scale, False),
        (lambda *given: 1.0, False),
        (lambda task, texts, **more: 1.0, False),
        (max, False),
        (partial(pays_at_the_end), True),
        (pays_at_the_end, True),
        (JudgesBoards(), True),
        (Stateful(), True),
    ],
)
def test_the_name_of_the_parameter_says_whether_a_reward_reads_the_transition(reward, reads):
    assert reads_transition(reward) is reads


@pytest.mark.parametrize(
    ("reward", "parameters"),
    [
        (lambda task: 1.0, "(task)"),
        (lambda task, texts, state: 1.0, "(task, texts, state)"),
        (lambda task, transition: 1.0, "(task, transition)"),
        (lambda task, texts, transition, seed: 1.0, "(task, texts, transition, seed)"),
    ],
)
def test_other_parameters_are_refused_before_any_game(reward, parameters):
    expected = f"has the parameters {parameters}; expected (task, texts), or (task, texts, trans"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        Rewarded(relay(), reward)
