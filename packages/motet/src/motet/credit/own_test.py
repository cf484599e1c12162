"""A credit function gets the step, and its mistakes are named as its own."""

import math
import runpy
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from motet.algorithms import ALGORITHMS, credit_function, resolve
from motet.batch import pack
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Fault,
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
from motet.credit.own import CheckedCredit
from motet.errors import ConfigError, MotetError
from tests.fixtures.messages import facts

ROOT = Path(__file__).parents[5]
AGENTS = ("a", "b")
TEAM = Team(dict.fromkeys(AGENTS, ("p",)), decode={})


def crossed(rewards, failed=(), tokens=1):
    """Two samples per agent, in all four joint actions: (0, 0), (0, 1), (1, 0), (1, 1)."""
    made = tuple(
        Completion("p", "x", "stop", tokens=(0,) * tokens, logprobs=(-1.0,) * tokens)
        for _ in range(2)
    )
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    outcomes = tuple(
        Outcome({"a": one, "b": other}, {}, fault=Fault("sandbox", "died", ""))
        if number in failed
        else Outcome({"a": one, "b": other}, dict.fromkeys(AGENTS, reward), end="done")
        for number, ((one, other), reward) in enumerate(zip(pairs, rewards, strict=True))
    )
    prompts = dict.fromkeys(AGENTS, "?")
    root = Round(0, prompts, dict.fromkeys(AGENTS, (1,)), dict.fromkeys(AGENTS, made), outcomes)
    return Episode("e", Task("e", {}), root)


def credit(
    own, rewards=(0.0, 8.0, 2.0, 4.0), name="magrpo", failed=(), scores=None, team=TEAM, tokens=1,
    algorithm=None,
):  # fmt: skip
    return assign_credit(
        [crossed(rewards, failed, tokens)], scores or Scores(), algorithm or ALGORITHMS[name],
        CreditState(), team, 1, own and CheckedCredit(own, "credit function own"),
    )  # fmt: skip


def by_sample(result):
    return {(one.id.agent, one.id.index): one.advantage for one in result.samples}


def test_lenient_credit_by_hand():
    """Sample 0 of a took part in rewards 0 and 8, so its best is 8; sample 1 in 2 and 4, best 4.
    Their mean is 6. Sample 0 of b: max(0, 2) = 2; sample 1: max(8, 4) = 8; their mean is 5."""
    lenient = runpy.run_path(str(ROOT / "examples" / "own_credit.py"))["lenient"]
    assert by_sample(credit(lenient)) == {
        ("a", 0): 2.0, ("a", 1): -2.0, ("b", 0): -3.0, ("b", 1): 3.0,
    }  # fmt: skip


def test_the_step_has_samples_returns_groups_and_the_algorithms_own_advantages():
    seen = []

    def own(step):
        seen.append(step)
        return 2.0 * step.advantages_S

    plain, doubled = credit(None), credit(own)
    (step,) = seen
    assert step.returns_S.tolist() == [4.0, 3.0, 1.0, 6.0]
    assert (step.group_S.tolist(), step.groups) == ([0, 0, 1, 1], 2)
    assert step.group_mean(step.returns_S).tolist() == [3.5, 3.5, 3.5, 3.5]
    assert step.group_mean(torch.tensor([1, 2, 5, 9]).double()).tolist() == [1.5, 1.5, 7.0, 7.0]
    assert step.agents == AGENTS
    assert step.actions.sample_NJ.tolist() == [[0, 0, 1, 1], [2, 3, 2, 3]]
    assert step.actions.returns_NJ.tolist() == [[0.0, 8.0, 2.0, 4.0]] * 2
    assert step.values_S is None
    assert [sample.id for sample in step.samples] == [one.id for one in plain.samples]
    assert by_sample(doubled) == {key: 2 * value for key, value in by_sample(plain).items()}
    assert doubled.state == plain.state


def test_a_failed_joint_action_is_left_out():
    def own(step):
        assert step.actions.returns_NJ.shape == (2, 3)
        return step.returns_S

    assert by_sample(credit(own, failed={1}))[("a", 0)] == 0.0


def test_a_sample_that_has_nothing_to_compare_with_gets_credit_too():
    # Only joint action 0 is left: one sample per agent.
    assert len(credit(None, failed={1, 2, 3}).samples) == 0
    assert len(credit(lambda step: step.returns_S + 1.0, failed={1, 2, 3}).samples) == 2


def test_the_values_of_critics_are_given():
    ids = {agent: ValueId("e", (), agent) for agent in AGENTS}
    estimate = {"a": 0.5, "b": 0.25}
    scores = Scores(
        values={ids[agent]: ValueEstimate((1,), (0,), (estimate[agent],), 0) for agent in AGENTS}
    )
    team = Team(TEAM.agents, {}, critics={"a": "critic-a", "b": "critic-b"})
    result = credit(lambda step: step.values_S, name="iac", scores=scores, team=team)
    assert by_sample(result) == {("a", 0): 0.5, ("a", 1): 0.5, ("b", 0): 0.25, ("b", 1): 0.25}
    assert len(result.values) == 2


def test_advantages_may_be_whole_numbers_and_keep_no_gradient():
    result = credit(lambda step: torch.tensor([1, 2, 3, 4]))
    assert by_sample(result)[("a", 1)] == 2.0
    with_gradient = torch.ones(4, requires_grad=True)
    assert by_sample(credit(lambda step: with_gradient * 2))[("b", 0)] == 2.0


def test_credit_may_be_per_token_in_every_batch():
    def own(step):
        return [torch.tensor([1.0, -2.0])] * len(step.samples)

    result = credit(own, tokens=2)
    assert set(by_sample(result).values()) == {(1.0, -2.0)}
    assert result.metrics["credit/advantage_abs"] == 1.5
    (batch,) = pack(result.samples, 1000, "sequence_sum", {"p": 8})
    assert batch.advantages_BL.tolist() == [[1.0, -2.0]] * 4


def test_credit_per_token_is_weighed_by_importance_ratios():
    ids = [SampleId("e", (), agent, index) for agent in AGENTS for index in range(2)]
    scores = Scores(present=dict.fromkeys(ids, (-1.0, -0.5)))
    algorithm = resolve("magrpo", {"importance_cap": 100.0})

    def credited(own):
        return by_sample(credit(own, tokens=2, scores=scores, algorithm=algorithm))

    per_sample = credited(lambda step: torch.ones(4))
    per_token = credited(lambda step: [torch.ones(2)] * 4)
    assert per_token == {key: (value, value) for key, value in per_sample.items()}
    assert per_sample["a", 0] != 1.0


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([torch.ones(2)] * 3, "list of 3 … 4 tensors … per sample"),
        (
            [torch.ones(2)] * 3 + [torch.ones(3)],
            "sample 3 … tensor … [3] … per token",
        ),
        ([torch.ones(2)] * 3 + [1.0], "sample 3 … float … tensor of 2 finite numbers"),
        ([torch.tensor([0.0, math.nan])] * 4, "sample 0 … nan … token 1 … 0 others"),
        ([1.0] * 4, "list … list of 4 tensors … per token"),
    ],
)
def test_a_mistake_in_credit_per_token_is_named(returned, said):
    with pytest.raises(MotetError, match=facts(f"credit function own … {said}")):
        credit(lambda step: returned, tokens=2)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "None … tensor of 4 finite numbers … per sample … return"),
        ([1.0] * 4, "list … tensor of 4 … torch.tensor(...)"),
        (torch.ones(3), "[3] … torch.float32 … [4]"),
        (torch.ones(4, 1), "tensor … [4, 1] … [4]"),
        (torch.tensor([0.0, math.nan, 1.0, math.inf]), "nan … sample 1 … 1 others"),
        (torch.tensor(1.0), "tensor … [] … [4]"),
    ],
)
def test_a_mistake_is_named_as_that_of_the_function(returned, said):
    with pytest.raises(MotetError, match=facts(f"credit function own … {said}")):
        credit(lambda step: returned)


def test_an_exception_is_named_with_its_place():
    def own(step):
        return step.returns_S / step.nothing

    with pytest.raises(MotetError, match=r"credit function own raised AttributeError: .*own_test"):
        credit(own)


def test_a_mistake_inside_a_library_is_placed_where_the_function_called_it():
    def own(step):
        return torch.stack([step.returns_S, step.returns_S], dim=5).sum(0)  # no such dim

    with pytest.raises(MotetError, match=r"raised IndexError: .*own_test\.py:\d+ in own: return"):
        credit(own)


def test_too_little_memory_is_no_mistake_of_the_function():
    def own(step):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        credit(own)


@pytest.mark.parametrize(
    ("returned", "said"),
    [([1.0] * 4, "returned a list"), (torch.full((4,), math.nan), "returned nan for sample 0")],
)
def test_a_plain_function_in_a_loop_by_hand_is_checked_too(returned, said):
    def mine(step):
        return returned

    with pytest.raises(MotetError, match=rf"credit function .*mine {said}"):
        assign_credit([crossed((0.0, 8.0, 2.0, 4.0))], Scores(), ALGORITHMS["magrpo"],
                      CreditState(), TEAM, 1, mine)  # fmt: skip


def test_mistakes_of_an_own_baseline_are_named_too(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from motet.credit.baselines import Baseline\n"
        "def half(comparison):\n    return comparison.returns_S[:1]\n"
        "def undefined(comparison):\n    return comparison.returns_S / 0.0\n"
        "nothing = Baseline(lambda comparison: None, siblings=False)\n"
    )
    for name, said in (
        ("half", "tensor of shape [1]"),
        ("undefined", "not finite"),
        ("nothing", "None"),
    ):
        algorithm = resolve("magrpo", {"baseline": f"./mine.py:{name}"}, tmp_path)
        with pytest.raises(MotetError, match=facts(f"baseline ./mine.py:{name} … {said}")):
            assign_credit([crossed((1.0, 2.0, 3.0, 4.0))], Scores(), algorithm, CreditState(),
                          TEAM, 1)  # fmt: skip


def test_a_config_names_a_function_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text("class Own: pass\nnumber = 3\ndef own(step): pass\n")
    assert callable(credit_function("./mine.py:own", tmp_path))
    for name, said in (
        ("lenient", "algorithm.credit.function … 'lenient' … function … package.module:NAME"),
        ("./mine.py:Own", "type type … function"),
        ("./mine.py:number", "type int … function"),
        ("./mine.py:other", "algorithm.credit.function … defines no 'other'"),
    ):
        with pytest.raises(ConfigError, match=facts(said)):
            credit_function(name, tmp_path)


def test_the_function_of_an_algorithm_is_passed_in_a_loop_by_hand():
    """Credit is pure: it loads nothing."""
    algorithm = resolve("magrpo", {"credit": {"function": "./mine.py:own"}})
    episodes = [crossed((1.0, 2.0, 3.0, 4.0))]
    with pytest.raises(ConfigError, match=r"function is \./mine\.py:own.*pass the function"):
        assign_credit(episodes, Scores(), algorithm, CreditState(), TEAM, 1)
    found = assign_credit(
        episodes, Scores(), algorithm, CreditState(), TEAM, 1, lambda step: step.returns_S + 7.0
    )
    assert [one.advantage for one in found.samples] == [8.5, 10.5, 9.0, 10.0]


def test_pairs_have_no_credit_function():
    with pytest.raises(ValidationError, match=facts("pairs … no function … kind: group")):
        resolve("madpo", {"credit": {"function": "./mine.py:own"}})
