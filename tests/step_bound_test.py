"""`train.max_step_kl` bounds what a training step changes, in every way of learning."""

import asyncio
import math
from collections import Counter
from dataclasses import replace
from statistics import variance
from types import SimpleNamespace

import pytest

import motet
from motet.core import Completion, SampleId, TrainSample
from motet.trainer import step_bound
from motet.trainer.step_bound import (
    FIRST,
    MOST,
    MOST_NOISE,
    Probe,
    chosen,
    distance,
    noise_in,
    noise_of,
)
from tests.small_runs import LORA, TINY, run_config, steps, weights

WILD = {"optimizer": {"learning_rate": 0.3}, "train": {"steps": 4, "tasks_per_step": 4}}
"""Without a bound, a step of this rate moves a completion by several nats."""


def trained(tmp_path, name="run", bound=None, **sections):
    config = run_config(**WILD | sections)
    config["train"] = config["train"] | {"max_step_kl": bound}
    motet.train(config | {"name": name}, runs=tmp_path, show="silent")
    return tmp_path / name


@pytest.mark.parametrize(
    "sections",
    [
        {},
        pytest.param({"policies": LORA}, marks=pytest.mark.wide),
        pytest.param(
            {"team": {"a": "p", "b": "p"}, "policies": {"p": {"model": "tiny"}}},
            marks=pytest.mark.wide,
        ),
        pytest.param({"rollout": {"samples": [2, 2]}}, marks=pytest.mark.wide),
        {"algorithm": {"name": "ippo", "minibatches": 2, "epochs": 2}},
        {"algorithm": {"name": "madpo"}, "rollout": {"samples": [4]}},
    ],
    ids=["two models", "adapters", "one policy", "tree", "ippo", "pairs"],
)
def test_no_step_moves_the_team_further_than_its_bound(tmp_path, sections):
    rows = steps(trained(tmp_path, bound=0.05, **sections))
    assert len(rows) == 4
    far = [row for row in rows if row["learn/step_kl_asked"] > 0.05]
    assert far, "the rate is meant to be too high"
    for row in rows:
        assert 0.0 <= row["learn/step_kl"] <= 0.05
        each = [value for key, value in row.items() if key.startswith("learn/step_kl/")]
        assert each
        assert (row["learn/step_scaled"] < 1.0) == (row["learn/step_kl_asked"] > 0.05)


def test_a_step_within_its_bound_is_to_the_bit_the_step_without_one(tmp_path):
    gentle = {"optimizer": {"learning_rate": 1e-3}}
    free = trained(tmp_path, "free", None, **gentle)
    bound = trained(tmp_path, "bound", 1000.0, **gentle)
    assert weights(free) == weights(bound)
    assert all(row["learn/step_scaled"] == 1.0 for row in steps(bound))
    assert not any("learn/step_kl" in row for row in steps(free))


def test_a_step_to_weights_that_are_not_finite_is_undone(tmp_path):
    exploding = {"policies": LORA, "optimizer": {"learning_rate": 3e37, "clip_norm": 1e30}}
    exploding["train"] = {"steps": 1, "tasks_per_step": 4}
    run = trained(tmp_path, bound=0.3, **exploding)
    (row,) = steps(run)
    assert row["learn/step_scaled"] == 0.0
    assert row["learn/step_kl"] == pytest.approx(0.0, abs=1e-9)
    assert "learn/step_kl_asked" not in row
    config = run_config(**exploding | {"optimizer": {"learning_rate": 1e-60}})
    motet.train(config | {"name": "still"}, runs=tmp_path, show="silent")
    assert weights(run) == weights(tmp_path / "still")


def test_the_rate_falls_after_a_step_that_was_scaled_back(tmp_path):
    first, second, *_ = steps(trained(tmp_path, bound=0.01))
    assert first["learn/step_scaled"] < 1.0
    assert first["learn/learning_rate/p"] == 0.3
    assert second["learn/learning_rate/p"] == pytest.approx(0.3 / 1.5)


def probe_of(before):
    """Return a probe of completions of the agents, and their ids: (agent, turn, index) -> nats."""
    ids = {key: SampleId("e", (0,) * key[1], key[0], key[2]) for key in before}
    return ids, Probe(
        (),
        {ids[key]: nats for key, nats in before.items()},
        {id: (turn, agent, agent) for (agent, turn, _), id in ids.items()},
    )


def test_the_distance_of_a_step_is_the_divergence_of_the_joint_action():
    """e^x - 1 - x of the changes 1, -2, 0 and 0.5 nats is 0.71828, 1.13534, 0 and 0.14872.

    A completion's is the sum of those of its tokens. The variance of the mean of two values is a
    quarter of their squared difference.
    """
    moved = {
        ("a", 0, 0): [1.0], ("a", 0, 1): [-2.0, 0.5], ("b", 0, 0): [0.0], ("b", 0, 1): [0.5],
    }  # fmt: skip
    ids, probe = probe_of({key: [-3.0] * len(by) for key, by in moved.items()})
    found = distance(probe, {ids[key]: [-3.0 + x for x in by] for key, by in moved.items()})
    of_a = (0.71828, 1.13534 + 0.14872)
    assert found.each == pytest.approx({"a": sum(of_a) / 2, "b": 0.14872 / 2}, abs=1e-4)
    assert found.team == pytest.approx(sum(of_a) / 2 + 0.14872 / 2, abs=1e-4)
    assert found.error == pytest.approx(
        ((of_a[1] - of_a[0]) ** 2 / 4 + 0.14872**2 / 4) ** 0.5, abs=1e-4
    )


def test_the_distance_is_unbiased_and_varies_less_by_token_than_by_completion():
    """Two tokens of one bit each move from 1/2 to p and to q. All four completions are equally
    likely before, so their mean is the divergence: KL(1/2 || p) + KL(1/2 || q)."""
    p, q = 0.7, 0.4
    before = {("a", 0, index): [math.log(0.5)] * 2 for index in range(4)}
    after = [[math.log(first), math.log(second)] for first in (p, 1 - p) for second in (q, 1 - q)]
    ids, probe = probe_of(before)
    found = distance(probe, dict(zip(ids.values(), after, strict=True)))
    true = sum(-0.5 * math.log(2 * x) - 0.5 * math.log(2 * (1 - x)) for x in (p, q))
    assert found.team == pytest.approx(true)
    whole = [sum(row) - 2 * math.log(0.5) for row in after]
    by_completion = [math.expm1(x) - x for x in whole]
    assert sum(by_completion) / 4 == pytest.approx(true)
    by_token = [
        sum(math.expm1(x - math.log(0.5)) - (x - math.log(0.5)) for x in row) for row in after
    ]
    assert variance(by_token) < variance(by_completion)


def test_agents_of_different_turns_do_not_share_a_bound():
    """What moves in one joint action adds up. The team's distance is that of the worse turn."""
    ids, probe = probe_of({("a", 0, 0): [-3.0], ("a", 1, 0): [-3.5]})
    found = distance(probe, {id: [-3.0, 0.0] for id in ids.values()})
    assert found.team == pytest.approx(0.14872, abs=1e-4)
    assert found.error == float("inf"), "one completion says nothing of its own error"


def test_what_rounding_adds_is_taken_off_the_distance_of_each_token():
    """e^x - 1 - x of 0.1 and -0.1 nats is 0.0051709 and 0.0048374."""
    ids, probe = probe_of({("a", 0, 0): [-3.0, -3.0], ("b", 0, 0): [-3.0]})
    now = {ids["a", 0, 0]: [-2.9, -3.1], ids["b", 0, 0]: [-2.9]}
    found = distance(probe, now, {"a": 0.005, "b": 0.001})
    assert found.each == pytest.approx({"a": 0.0100083 - 0.01, "b": 0.0051709 - 0.001}, abs=1e-6)
    assert found.team == pytest.approx(0.0000083 + 0.0041709, abs=1e-6)
    read_off = noise_in(probe, now)
    assert read_off == pytest.approx({"a": 0.0100083 / 2, "b": 0.0051709}, abs=1e-6)


def test_no_more_is_taken_for_rounding_than_rounding_can_be():
    learned = {
        "learn/sampling_kl/small": 0.002, "learn/sampling_kl/large": 3.0,
        "learn/sampling_kl/none": float("nan"),
    }  # fmt: skip
    assert noise_of(["small", "large", "none", "unknown"], learned) == {
        "small": 0.002, "large": MOST_NOISE, "none": 0.0, "unknown": 0.0,
    }  # fmt: skip
    ids, probe = probe_of({("a", 0, 0): [-30.0] * 2})
    assert noise_in(probe, {ids["a", 0, 0]: [-1.0, -1.0]}) == {"a": MOST_NOISE}


class Weights:
    """A learner whose step moves every token by `nats`, and whose reading is wrong by ±`wrong`."""

    def __init__(self, nats, wrong):
        self.nats, self.wrong, self.left, self.readings = nats, wrong, 1.0, 0

    async def keep(self, names):
        pass

    async def scale_back(self, names, factor):
        self.left *= factor

    async def read(self, learners, batches):
        self.readings += 1
        sign = [1.0 if (at + self.readings) % 2 else -1.0 for at in range(TOKENS)]
        return {
            id: [-3.0 + self.nats * self.left + self.wrong * one for one in sign]
            for id in probe_of(LONG)[0].values()
        }


TOKENS = 200
LONG = {(agent, 0, index): [-3.0] * TOKENS for agent in ("a", "b") for index in range(4)}


def held(monkeypatch, weights, *, recorded, noise, bound=0.3):
    """Return the metrics of a step that is held to `bound`."""
    probe = replace(probe_of(LONG)[1], recorded=recorded)
    monkeypatch.setattr(step_bound, "present_rows", weights.read)
    components = SimpleNamespace(models=SimpleNamespace(learners={"a": weights, "b": weights}))
    learned = {f"learn/sampling_kl/{name}": noise for name in ("a", "b")}
    return asyncio.run(step_bound.hold(components, probe, bound, learned))


@pytest.mark.parametrize("recorded", [True, False])
def test_a_step_that_only_rounding_makes_long_is_not_undone(monkeypatch, recorded):
    """±0.06 nats for each of 200 tokens of two agents look like 0.72 nats."""
    weights = Weights(nats=1e-6, wrong=0.06)
    found = held(monkeypatch, weights, recorded=recorded, noise=0.0018)
    assert found["learn/step_kl"] == pytest.approx(0.0, abs=0.01)
    if recorded:
        assert found["learn/step_scaled"] == 1.0
        assert weights.readings == 1
    else:
        assert 0.5 < found["learn/step_scaled"] < 1.0, "one try shows that it does not get shorter"
        assert weights.readings == 2
    assert weights.left == found["learn/step_scaled"]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("wrong", [0.0, 0.03])
def test_a_long_step_is_scaled_back_whatever_rounding_adds(monkeypatch, recorded, wrong):
    """0.1 nats for each of 200 tokens of two agents are 2.07 nats, and 0.3 are allowed."""
    weights = Weights(nats=0.1, wrong=wrong)
    found = held(monkeypatch, weights, recorded=recorded, noise=wrong**2 / 2)
    true = 2 * TOKENS * (math.expm1(0.1 * weights.left) - 0.1 * weights.left)
    assert true <= 0.33
    assert found["learn/step_scaled"] == weights.left > 0.2


@pytest.mark.parametrize("recorded", [True, False])
def test_a_step_that_stays_long_however_short_it_is_made_is_undone(monkeypatch, recorded):
    """Nothing so far away is rounding: 0.5 nats per token are 2 * 200 * 0.149 in all."""
    weights = Weights(nats=0.0, wrong=0.5)
    found = held(monkeypatch, weights, recorded=recorded, noise=0.125)
    assert found["learn/step_scaled"] == 0.0 == weights.left


def test_adapters_on_a_model_in_bfloat16_learn_from_long_completions(tmp_path):
    """What rounding adds is beyond this bound, and it was taken for a step too long.

    It adds .005 to .01 nats here, of which all but .0004 (one standard error) are taken off.
    """
    config = run_config(
        models={"tiny": {"embedded": TINY, "device": "cpu", "dtype": "bfloat16"}},
        policies=LORA,
        decode={"max_new_tokens": 96},
        optimizer={"learning_rate": 1e-7},
        train={"steps": 2, "tasks_per_step": 4, "max_step_kl": 0.002},
    )
    motet.train(config, runs=tmp_path, show="silent")
    for row in steps(tmp_path / "run"):
        rounding = sum(row[f"learn/sampling_kl/{name}"] for name in ("p", "q"))
        assert rounding * row["play/completion_length"] > 0.002
        assert row["learn/step_scaled"] == 1.0


def test_the_distance_to_what_is_no_number_is_infinite():
    ids, probe = probe_of({("a", 0, 0): [-3.0], ("a", 1, 0): [-3.0]})
    found = distance(probe, {ids["a", 0, 0]: [-3.0], ids["a", 1, 0]: [float("nan")]})
    assert found.team == float("inf")


def test_pairs_of_earlier_steps_are_measured_from_the_present_weights(tmp_path):
    """Older weights sampled their completions, from which no step at all would seem long."""
    replayed = {"name": "madpo", "preference": {"replay": {"mode": "all_history"}}}
    config = run_config(
        optimizer={"learning_rate": 0.05, "schedule": "linear", "final_fraction": 0.0},
        rollout={"samples": [4]},
        algorithm=replayed,
        train={"steps": 4, "tasks_per_step": 2, "max_step_kl": 1000.0},
    )
    motet.train(config, runs=tmp_path, show="silent")
    *before, last = [row["learn/step_kl_asked"] for row in steps(tmp_path / "run")]
    assert max(before) > 1e-4
    assert last == pytest.approx(0.0, abs=1e-9), "the last step has a learning rate of 0"


def samples_of(agent, turn, count):
    return [
        TrainSample(
            SampleId("e", (0,) * turn, agent, index), turn=turn, prompt_tokens=(1,),
            completion=Completion(agent, "", "stop", tokens=(2,), logprobs=(-3.0,)),
            advantage=1.0, share=0.5,
        )
        for index in range(count)
    ]  # fmt: skip


def test_a_step_is_measured_on_samples_of_every_agent_and_turn_spread_over_the_tasks():
    samples = [*samples_of("a", 0, 128), *samples_of("b", 0, 5), *samples_of("a", 1, 40)]
    first, others = chosen(samples, MOST)
    counts = {}
    for one in first:
        counts.setdefault((one.id.agent, one.turn), []).append(one.id.index)
    assert {place: len(found) for place, found in counts.items()} == {
        ("a", 0): FIRST, ("b", 0): 5, ("a", 1): FIRST,
    }  # fmt: skip
    assert counts["a", 0] == list(range(0, 128, 128 // FIRST)), "at equal distances"
    assert len(first) + len(others) == MOST + 5 + 40
    assert not {one.id for one in first} & {one.id for one in others}


@pytest.mark.parametrize(
    ("prompts", "answers", "read", "of_each"),
    [(64, 4, 16, 4), (256, 1, 64, 1), (2, 128, 2, 32), (8, 8, 8, 8), (100, 2, 32, 2)],
)
def test_few_prompts_are_read_for_many_completions(prompts, answers, read, of_each):
    samples = [
        replace(one, prompt_tokens=(one.id.index // answers,))
        for one in samples_of("a", 0, prompts * answers)
    ]
    first, others = chosen(samples, MOST)
    counts = Counter(one.prompt_tokens for one in (*first, *others))
    assert (len(counts), set(counts.values())) == (read, {of_each})
    assert max(counts)[0] >= prompts * (read - 1) // read, "from all over the step"
    assert len({one.prompt_tokens for one in first}) == min(read, FIRST)


@pytest.mark.parametrize(
    ("bound", "later"),
    [
        (1000.0, []),
        (0.01, [12, 16]),
    ],
)
def test_a_step_that_may_be_too_far_is_measured_on_more_samples(
    tmp_path, monkeypatch, bound, later
):
    """Surely below its bound, `FIRST` completions of each of the two agents are enough. Otherwise
    the others are read too, and all of them after the step is scaled back."""
    monkeypatch.setattr(step_bound, "FIRST", 2)
    measured, read = [], step_bound.present_rows

    async def counted(learners, batches):
        measured.append(sum(len(batch.ids) for batch in batches))
        return await read(learners, batches)

    monkeypatch.setattr(step_bound, "present_rows", counted)
    trained(tmp_path, bound=bound, train={"steps": 1, "tasks_per_step": 4})
    assert measured[0] == 4
    assert list(dict.fromkeys(measured[1:])) == later


def test_every_run_has_a_bound_unless_it_says_null(tmp_path):
    config = run_config()
    motet.train(config, runs=tmp_path, show="silent")
    assert all("learn/step_kl" in row for row in steps(tmp_path / "run"))
    config["train"]["max_step_kl"] = None
    motet.train(config | {"name": "free"}, runs=tmp_path, show="silent")
    assert not any("learn/step_kl" in row for row in steps(tmp_path / "free"))
