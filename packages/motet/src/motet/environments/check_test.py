import asyncio
import time
from dataclasses import dataclass, replace

import pytest

from motet.core import Demonstration, Drawing, Environment, Task, Transition
from motet.environments.check import ODD_REPLIES, check_environment, conform
from motet.errors import EnvironmentFault
from tests.fixtures.messages import says

TASKS = [Task("t", {"word": "yes"})]


@dataclass(frozen=True)
class Turn:
    word: str
    number: int = 0


class NoTasks(Environment):
    """Two turns. One agent writes the word, then the other one does."""

    agents = ("a", "b")
    branches = True

    async def start(self, task, seed):
        return Turn(task.fields["word"])

    def observe(self, state):
        return {self.agents[state.number]: f"say {state.word}"}

    async def step(self, state, replies, seed):
        right = float(all(reply.text == state.word for reply in replies.values()))
        done = state.number == 1
        return Transition(
            replace(state, number=state.number + 1),
            {"a": right, "b": right},
            done,
            success=right,
        )

    def solve(self, state, seed):
        return {self.agents[state.number]: state.word}

    def demonstrate(self, task, seed):
        return Demonstration("a", "say yes", "yes")

    def convention(self, task, agent, text):
        return text[:3]


class Alone(NoTasks):
    agents = ("a",)

    def observe(self, state):
        return {"a": f"say {state.word}"}

    async def step(self, state, replies, seed):
        return replace(await super().step(state, replies, seed), rewards={"a": 0.5})

    def solve(self, state, seed):
        return {"a": state.word}


class Good(NoTasks):
    def tasks(self, split):
        return [Task(f"{split} {word}", {"word": word}) for word in ("yes", "no")]

    def answer(self, task, texts):
        return texts["b"][:1] or None

    def drawing(self, task, texts):
        return Drawing([{"said": [[texts[agent][:1] for agent in self.agents]]}])

    def alone(self):
        return Alone()


class NoAgents(Good):
    agents = ()


class TwiceTheSame(Good):
    agents = ("a", "a")


class MaybeBranches(Good):
    branches = "yes"


class OneSplitTwice(Good):
    def tasks(self, split):
        return TASKS


class SetsInFields(Good):
    def tasks(self, split):
        return [Task(split, {"words": ("yes",)})]


class Fragile(Good):
    async def step(self, state, replies, seed):
        [reply.text[0] for reply in replies.values()]
        return await super().step(state, replies, seed)


class Quiet(Good):
    def observe(self, state):
        return {}


class Stranger(Good):
    def observe(self, state):
        return {"c": "say"}


class ListPrompt(Good):
    def observe(self, state):
        return {"a": ["say"]}


class Forgetful(Good):
    async def step(self, state, replies, seed):
        return replace(await super().step(state, replies, seed), rewards={"a": 1.0})


class NotANumber(Good):
    async def step(self, state, replies, seed):
        return replace(
            await super().step(state, replies, seed), rewards={"a": 1.0, "b": float("nan")}
        )


class Silent(Good):
    async def step(self, state, replies, seed):
        return replace(await super().step(state, replies, seed), success=None)


class Overjoyed(Good):
    async def step(self, state, replies, seed):
        return replace(await super().step(state, replies, seed), success=2.0)


class Identity(Good):
    class State:
        word, number = "yes", 0

    async def start(self, task, seed):
        return self.State()


class Counting(Good):
    count = 0

    async def step(self, state, replies, seed):
        self.count += 1
        return replace(
            await super().step(state, replies, seed),
            success=0.0,
            metrics={"count": float(self.count)},
        )


class Writing(Good):
    """Its state is a list that `step` modifies."""

    async def start(self, task, seed):
        return []

    def observe(self, state):
        return {"a": "say"}

    async def step(self, state, replies, seed):
        state.append(1)
        return Transition(list(state[:0]), {"a": 0.0, "b": 0.0}, True, success=0.0)


class Endless(Good):
    async def step(self, state, replies, seed):
        return Transition(state, {"a": 0.0, "b": 0.0}, False)


class WrongSolution(Good):
    def solve(self, state, seed):
        return dict.fromkeys(self.agents, "perhaps")


class NobodysSolution(Good):
    def solve(self, state, seed):
        return {}


class StrangeDemonstration(Good):
    def demonstrate(self, task, seed):
        return Demonstration("c", "say", "yes")


class Unlabelled(Good):
    def convention(self, task, agent, text):
        return None


class Wavering(Good):
    count = 0

    def answer(self, task, texts):
        self.count += 1
        return str(self.count)


class AnswersInNumbers(Good):
    def answer(self, task, texts):
        return 7


class UnevenDrawing(Good):
    def drawing(self, task, texts):
        return Drawing([{"said": [["a", "b"], ["c"]]}])


class TwoAlone(Good):
    def alone(self):
        return Good()


class WrongAlone(Good):
    class Mute(Alone):
        def observe(self, state):
            return {}

    def alone(self):
        return self.Mute()


class Unclosed(Good):
    async def close(self, state):
        raise OSError("busy")


def awaiting(answer):
    """Return a plain function that returns a coroutine, which nothing at its definition shows."""

    async def coroutine():
        return answer

    return lambda *given: coroutine()


class HiddenAsync(Good):
    observe = awaiting({"a": "say"})


class HiddenAsyncSolution(Good):
    solve = awaiting({"a": "yes"})


class NoSolution(Good):
    def solve(self, state, seed):
        return None


class NoTasksAtAll(Good):
    def tasks(self, split):
        return None


class RowsForTasks(Good):
    def tasks(self, split):
        return [{"word": split}]


class GeneratedTasks(Good):
    def tasks(self, split):
        yield from super().tasks(split)


class TextForDemonstration(Good):
    def demonstrate(self, task, seed):
        return "yes"


class TextForDrawing(Good):
    def drawing(self, task, texts):
        return "a picture"


class NobodyAlone(Good):
    def alone(self):
        return None


class WordForSuccess(Good):
    async def step(self, state, replies, seed):
        moved = await super().step(state, replies, seed)
        return replace(moved, success="yes" if moved.done else None)


def test_tasks_may_come_from_a_generator():
    assert check_environment(GeneratedTasks()).rules == check_environment(Good()).rules


def test_a_sound_environment_gets_a_report_of_every_rule():
    report = check_environment(Good())
    assert str(report).startswith("Good keeps 17 rules of environments:")
    assert report.environment == "Good"
    assert min(report.rules.values()) >= 1


def test_callers_with_an_event_loop_await_the_same():
    assert asyncio.run(conform(Good(), TASKS)) == check_environment(Good(), TASKS)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("kind", "rule", "got"),
    [
        (NoAgents, "unique names", "agents []"),
        (TwiceTheSame, "unique names", "['a', 'a']"),
        (MaybeBranches, "True or False", "branches 'yes'"),
        (NoTasks, "tasks have", "no method tasks"),
        (OneSplitTwice, "no eval task … train task", "t … in train … in eval"),
        (SetsInFields, "plain JSON", "JSON … {'words': ['yes']}"),
        (Fragile, "no reply raises", "every agent … nothing: IndexError"),
        (Quiet, "observe(state)", "no prompts"),
        (Stranger, "observe(state)", "agents ['c']"),
        (ListPrompt, "observe(state)", "['say'] for a"),
        (Forgetful, "for every agent", "rewards={'a': 1.0}"),
        (NotANumber, "finite numbers", "nan"),
        (Silent, "last transition … `success`", "success None"),
        (Overjoyed, "in [0, 1]", "success 2.0"),
        (Identity, "can be copied", "Identity.State"),
        (Counting, "equal transitions", "'count': 2.0"),
        (Writing, "does not change … `state`", "[] before"),
        (Endless, "every episode ends", "32 turns"),
        (WrongSolution, "have success 1", "{'success': 0.0}"),
        (NobodysSolution, "for every acting agent", "nothing for a"),
        (StrangeDemonstration, "for a known agent", "agent='c'"),
        (Unlabelled, "string … any text", "None"),
        (Wavering, "the same … called again", "'1' … '2'"),
        (AnswersInNumbers, "a string or None", "7"),
        (UnevenDrawing, "titled grids of names", "[['a', 'b'], ['c']]"),
        (TwoAlone, "one agent", "agents ['a', 'b']"),
        (
            HiddenAsync,
            "no reply raises",
            "nothing: TypeError: 'coroutine' object",
        ),
        (HiddenAsyncSolution, "no reply raises", "solve: TypeError: 'coroutine' object"),
        (NoSolution, "no reply raises", "solve: TypeError: 'NoneType' object"),
        (NoTasksAtAll, "no reply raises", "tasks('train'): TypeError: 'NoneType' object"),
        (RowsForTasks, "tasks have", "[{'word': 'train'}] … no Tasks"),
        (TextForDemonstration, "for a known agent", "yes"),
        (TextForDrawing, "titled grids of names", "'a picture'"),
        (NobodyAlone, "one agent", "None"),
        (WordForSuccess, "in [0, 1]", "success 'yes'"),
        (Unclosed, "no reply raises", "close: OSError: busy"),
    ],
)
def test_a_broken_rule_is_named_with_what_was_got(kind, rule, got):
    with pytest.raises(EnvironmentFault) as caught:
        check_environment(kind())
    assert says(caught.value, f"{kind.__name__} … Rule: … {rule} … Got: … {got}")


def sleeps():
    time.sleep(60)


class SlowStart(Good):
    async def start(self, task, seed):
        sleeps()
        return await super().start(task, seed)


class SlowObserve(Good):
    def observe(self, state):
        sleeps()
        return super().observe(state)


class SlowStep(Good):
    async def step(self, state, replies, seed):
        sleeps()
        return await super().step(state, replies, seed)


class SlowClose(Good):
    async def close(self, state):
        sleeps()


class SlowAnswer(Good):
    def answer(self, task, texts):
        sleeps()


class Waiting(Good):
    async def step(self, state, replies, seed):
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (SlowStart, "start"),
        (SlowObserve, "observe at turn 0"),
        (SlowStep, "step at turn 0"),
        (SlowClose, "close"),
        (SlowAnswer, "answer"),
        (Waiting, "step at turn 0"),
    ],
)
def test_an_author_is_told_what_takes_too_long(kind, what):
    with pytest.raises(EnvironmentFault) as caught:
        check_environment(kind(), timeout_seconds=0.3)
    said = str(caught.value)
    assert says(said, f"{kind.__name__} … Rule: … timeout_seconds … Got: {what} … within 0.3 s")


def test_without_a_limit_nothing_is_said_of_time():
    assert "timeout_seconds" not in str(check_environment(Good(), TASKS, timeout_seconds=None))


def test_the_game_of_one_agent_is_put_to_the_same_test():
    with pytest.raises(
        EnvironmentFault, match=r"^Mute breaks a rule. Rule: observe\(state\) .* Got: no prompts"
    ):
        check_environment(WrongAlone())


def test_what_does_not_branch_need_not_be_a_value():
    class Once(Writing):
        branches = False
        solve = None

        async def step(self, state, replies, seed):
            state.append(1)
            return Transition(state, {"a": 0.0, "b": 0.0}, len(state) == 2, success=0.0)

    assert "every episode ends" in str(check_environment(Once(), TASKS))
    assert "can be copied" not in str(check_environment(Once(), TASKS))


def test_every_episode_is_closed_with_its_starting_state():
    closed = []

    class Door(Good):
        async def close(self, state):
            closed.append(state)

    check_environment(Door(), TASKS)
    assert closed == [Turn("yes")] * (len(ODD_REPLIES) + 1)


def test_long_replies_do_not_flood_the_message():
    class Loud(Good):
        async def step(self, state, replies, seed):
            raise KeyError("".join(reply.text for reply in replies.values()) * 10 + "x" * 5000)

    with pytest.raises(EnvironmentFault) as caught:
        check_environment(Loud(), TASKS)
    assert len(str(caught.value)) < 800
