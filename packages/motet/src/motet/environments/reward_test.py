import asyncio

import numpy as np
import pytest
import torch

from codejudge import SandboxFault
from motet.core import Score, Task
from motet.environments.reward import ask
from motet.errors import RewardFault
from tests.fixtures.messages import facts

TASK = Task("t1", {"word": "hi"})
TEXTS = {"a": "hi", "b": "ho"}


def score(reward):
    said = asyncio.run(ask(reward, TASK, TEXTS, ("a", "b")))
    return Score(
        said.rewards, said.metrics, success=said.success, right=said.right, bonus=said.bonus
    )


def test_a_function_that_returns_a_number_rewards_every_agent_alike():
    assert score(lambda task, texts: texts["a"] == task.fields["word"]) == Score(
        {"a": 1.0, "b": 1.0}
    )


def test_async_functions_classes_and_numpy_numbers_are_rewards_too():
    async def function(task, texts):
        return {"a": 1, "b": np.float32(0.5)}

    class Judge:
        async def score(self, task, texts):
            return Score(2.0, {"length": len(texts["a"])})

    assert score(function) == Score({"a": 1.0, "b": 0.5})
    assert score(Judge()) == Score({"a": 2.0, "b": 2.0}, {"length": 2.0})


@pytest.mark.parametrize(
    "given",
    [np.bool_(True), np.int64(1), np.float16(1), np.array(1), np.array(True), torch.tensor(1),
     torch.tensor(1.0, requires_grad=True), torch.tensor(True)],
    ids=repr,
)  # fmt: skip
def test_scalars_of_numpy_and_torch_are_numbers(given):
    found = score(lambda task, texts: Score({"a": given, "b": 0}, {"right": given}))
    assert found == Score({"a": 1.0, "b": 0.0}, {"right": 1.0})
    assert {type(one) for one in (*found.rewards.values(), *found.metrics.values())} == {float}


def test_a_score_says_of_agents_what_a_transition_says():
    given = Score(1, {"n": 2}, success=True, right={"a": np.bool_(True)}, bonus={"b": np.int64(-1)})
    found = score(lambda task, texts: given)
    assert (found.success, found.right, found.bonus) == (1.0, {"a": 1.0}, {"b": -1.0})
    assert {type(one) for one in (found.success, found.right["a"], found.bonus["b"])} == {float}


def test_an_exception_is_a_fault_that_names_the_reward_and_the_task():
    def broken(task, texts):
        return texts["c"]

    with pytest.raises(RewardFault, match="reward broken on task t1: KeyError: 'c'"):
        score(broken)


def test_a_fault_of_motet_keeps_its_boundary():
    def boxed(task, texts):
        raise SandboxFault("down")

    with pytest.raises(SandboxFault, match="down"):
        score(boxed)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (float("nan"), "nan … reward of a … finite number"),
        (np.float32("nan"), "np.float32(nan) … reward of a … finite number"),
        (torch.tensor(float("inf")), "tensor(inf) … reward of a … finite number"),
        (np.array([1.0]), "array([1.]) … reward of a … finite number"),
        (1j, "1j … reward of a … finite number"),
        (np.str_("1"), "np.str_('1') … reward of a … finite number"),
        (10**400, "reward of a … finite number"),
        (None, "None … reward of a … finite number"),
        ("1", "'1' … reward of a … finite number"),
        ({"a": 1.0}, "a … every agent … a, b"),
        (Score(1.0, right={"c": 1.0}), "right for c … a, b"),
        (Score(1.0, bonus={"a": float("nan")}), "nan … bonus of a … finite number"),
        (Score(1.0, success="yes"), "'yes' … success … finite number"),
        (Score(1.0, {"style": float("inf")}), "inf for style"),
    ],
)
def test_what_is_no_score_is_a_fault_and_never_a_zero(result, message):
    with pytest.raises(RewardFault, match=facts(message)):
        score(lambda task, texts: result)


def test_an_integer_that_python_does_not_write_is_a_fault_too():
    with pytest.raises(RewardFault, match=facts("integer … thousands of digits")):
        score(lambda task, texts: 10**5000)


@pytest.mark.parametrize(
    ("error", "passes"),
    [(ConnectionError("down"), True), (TimeoutError(), True), (KeyError("gold"), False)],
)
def test_the_fault_says_whether_the_error_may_pass(error, passes):
    def judge(task, texts):
        raise error

    with pytest.raises(RewardFault) as raised:
        score(judge)
    assert raised.value.may_pass is passes
