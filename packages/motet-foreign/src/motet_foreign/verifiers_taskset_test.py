"""Tasksets and envs of verifiers, played by hand."""

import asyncio
import sys
import types

import pytest

import motet
from motet.core import Reply
from motet.errors import ConfigError, EnvironmentFault
from motet_foreign.verifiers_taskset import Verifiers

pytest.importorskip("verifiers", reason="verifiers is not installed")
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: int


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=2.0)
    async def right(self, task, trace) -> float:
        return float(trace.last_reply.strip() == str(task.answer))

    @vf.metric
    async def length(self, trace) -> float:
        return float(len(trace.last_reply))


class SumTaskset(vf.Taskset[SumTask]):
    def load(self):
        for number in range(6):
            data = SumData(prompt=f"{number}+1", system_prompt="Add.", answer=number + 1)
            yield SumTask(data, self.config.task)


class TwoConfig(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig()
    checker: vf.AgentConfig = vf.AgentConfig()


class Two(vf.Env[TwoConfig]):
    """Both solve at the same time, then the checker is told both answers."""

    async def run(self, task, agents):
        async with agents.checker.interaction(task) as checker:
            solved, checked = await asyncio.gather(agents.solver.run(task), checker.turn())
            await checker.turn(f"{solved.last_reply} or {checked.last_reply}?")


@pytest.fixture
def module(monkeypatch):
    """Return a function that makes importable modules: (name, the classes in it)."""

    def make(name, *classes):
        made = types.ModuleType(name)
        made.__all__ = [one.__name__ for one in classes]
        for one in classes:
            setattr(made, one.__name__, one)
        made.__spec__ = types.SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, made)

    make("sums_of_test", SumTaskset)
    make("two_of_test", Two)
    return make


def made(**options):
    return Verifiers(Verifiers.Options(**({"taskset": "sums_of_test", "held_out": 2} | options)))


def played(game, answer):
    """Play the first task to its end; returns the prompts of each turn and the last Transition."""

    async def all_turns():
        state, seen = await game.start(game.tasks("train")[0], 0), []
        try:
            while True:
                prompts = game.observe(state)
                seen.append(prompts)
                moved = await game.step(state, {a: Reply(answer(a)) for a in prompts}, 0)
                if moved.done:
                    return seen, moved
                state = moved.state
        finally:
            await game.close(state)

    return asyncio.run(all_turns())


def test_rows_are_tasks_and_rewards_have_their_weights(module):
    game = made()
    assert game.agents == ("agent",)
    assert [task.fields["row"] for task in game.tasks("train")] == [0, 1, 2, 3]
    assert [task.fields["data"]["answer"] for task in game.tasks("eval")] == [5, 6]
    (prompts,), last = played(game, lambda agent: " 1 ")
    assert [(said.role, said.content) for said in prompts["agent"]] == [
        ("system", "Add."),
        ("user", "0+1"),
    ]
    assert (last.rewards, last.success, last.metrics) == (
        {"agent": 2.0},
        1.0,
        {"agent_length": 1.0},
    )
    assert played(game, lambda agent: "2")[1].rewards == {"agent": 0.0}


def test_roles_that_are_asked_together_act_in_one_round(module):
    game = made(env="two_of_test")
    assert game.agents == ("solver", "checker")
    (first, second), last = played(game, {"solver": "1", "checker": "7"}.__getitem__)
    assert set(first) == {"solver", "checker"}
    assert set(second) == {"checker"}
    assert [said.content for said in second["checker"]] == ["Add.", "0+1", "7", "1 or 7?"]
    assert last.rewards == {"solver": 2.0, "checker": 0.0}
    assert last.success == 1.0  # the mean of 2 and 0


def test_an_env_of_verifiers_itself_with_two_roles_ends_at_its_own_limit(module):
    game = made(env="user-sim", config={"user": {"max_turns": 2}})
    seen, last = played(game, {"assistant": "1", "user": "What is 0+1?"}.__getitem__)
    assert [set(prompts) for prompts in seen] == [{"user"}, {"assistant"}] * 2
    assert last.rewards == {"assistant": 2.0, "user": 0.0}
    assert last.metrics["assistant_user_turns"] == 2.0


def test_a_role_with_several_traces_earns_their_mean(module):
    answers = iter(["1", "2", "3", "4"])
    seen, last = played(made(env="best-of-n"), lambda agent: next(answers))
    assert len(seen) == 4
    assert last.rewards == {"agent": 0.5}


def test_it_keeps_the_rules_of_environments_with_one_role_and_with_two(module):
    assert motet.check_environment(made())
    assert motet.check_environment(made(env="two_of_test"))


def test_an_error_of_a_reward_is_a_fault_that_names_verifiers(module):
    class Broken(SumTask):
        @vf.reward
        async def other(self, trace) -> float:
            raise KeyError("gold")

    class BrokenTaskset(vf.Taskset[Broken]):
        def load(self):
            return [Broken(SumData(prompt="1", answer=1)) for _ in range(2)]

    module("broken_of_test", BrokenTaskset)
    with pytest.raises(EnvironmentFault, match=r"verifiers raised TaskError: .*KeyError") as told:
        played(made(taskset="broken_of_test"), lambda agent: "1")
    assert told.value.cause == "verifiers.TaskError"


class WithContainer(SumTask):
    NEEDS_CONTAINER = True


class WithSetup(SumTask):
    async def setup(self, trace, runtime):
        """Prepare a runtime."""


class WithRuntime(SumTask):
    @vf.reward
    async def files(self, trace, runtime) -> float:
        return 0.0


class WithStop(SumTask):
    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (WithContainer, "needs a container"),
        (WithSetup, r"sets up a runtime \(setup\)"),
        (WithRuntime, "has a @reward or @metric that reads the runtime"),
        (WithStop, "has @stop or @intercept methods"),
    ],
)
def test_what_needs_programs_of_verifiers_is_refused(module, kind, said):
    class Refused(vf.Taskset[kind]):
        def load(self):
            return [kind(SumData(prompt="1", answer=1)) for _ in range(2)]

    module("refused_of_test", Refused)
    with pytest.raises(
        ConfigError, match=f"taskset 'refused_of_test': the task {kind.__name__} {said}"
    ):
        made(taskset="refused_of_test")


def test_a_judge_of_the_config_is_refused(module):
    judges = [{"id": "reference"}]
    with pytest.raises(ConfigError, match="is scored by a judge, which is a model behind an end"):
        made(config={"taskset": {"task": {"judges": judges}}})


def test_a_taskset_that_is_not_there_is_one_line(module):
    with pytest.raises(
        ConfigError, match="taskset 'no_such_taskset': verifiers raised Module"
    ) as t:
        made(taskset="no_such_taskset")
    assert "\n" not in str(t.value)
