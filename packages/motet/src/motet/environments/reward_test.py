import asyncio

import numpy as np
import pytest
import torch

from codejudge import SandboxFault
from motet.core import Score, Task
from motet.environments.reward import ask
from motet.errors import RewardFault

TASK = Task("t1", {"word": "hi"})
TEXTS = {"a": "hi", "b": "ho"}


def score(reward):
    rewards, score = asyncio.run(ask(reward, TASK, TEXTS, ("a", "b")))
    assert score.rewards == rewards
    return score


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
        (float("nan"), "gave a nan; expected a finite number"),
        (np.float32("nan"), r"gave a np\.float32\(nan\); expected a finite number"),
        (torch.tensor(float("inf")), r"gave a tensor\(inf\); expected a finite number"),
        (np.array([1.0]), r"gave a array\(\[1\.\]\); expected a finite number"),
        (np.complex64(1), "expected a finite number"),
        (np.str_("1"), r"gave a np\.str_\('1'\); expected a finite number"),
        (10**400, "expected a finite number"),
        (None, "gave a None"),
        ("1", "gave a '1'"),
        ({"a": 1.0}, "gave rewards for a; expected a, b"),
        (Score(1.0, right={"c": 1.0}), "gave right for c; expected agents of a, b"),
        (Score(1.0, bonus={"a": float("nan")}), "gave bonus of a nan; expected a finite number"),
        (Score(1.0, success="yes"), "gave success 'yes'; expected a finite number"),
        (Score(1.0, {"style": float("inf")}), "gave metric style inf"),
    ],
)
def test_what_is_no_score_is_a_fault_and_never_a_zero(result, message):
    with pytest.raises(RewardFault, match=message):
        score(lambda task, texts: result)


def test_an_integer_that_python_does_not_write_is_a_fault_too():
    with pytest.raises(RewardFault, match="gave a an integer of thousands of digits; expected a"):
        score(lambda task, texts: 10**5000)
