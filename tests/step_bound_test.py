"""`train.max_step_kl` bounds what a training step changes, in every way of learning."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
import torch

import motet
from motet.batch import pack
from motet.core import Completion, SampleId, TrainSample
from motet.trainer.step_bound import FIRST, MOST, Probe, chosen, distance
from tests.small_runs import LORA, run_config, steps, weights

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


class Moved:
    """A learner whose completions have become more or less likely."""

    def __init__(self, by):
        self.by = by

    async def logprobs(self, batch):
        return torch.tensor([[-3.0 + self.by[id.agent, id.index]] for id in batch.ids])


def test_the_distance_of_a_step_is_the_divergence_of_the_joint_action():
    """e^x - 1 - x of the changes 1, -2, 0 and 0.5 nats is 0.71828, 1.13534, 0 and 0.14872."""
    moved = {("a", 0): 1.0, ("a", 1): -2.0, ("b", 0): 0.0, ("b", 1): 0.5}
    rows = [
        TrainSample(
            SampleId("e", (), agent, index), turn=0, prompt_tokens=(1,),
            completion=Completion(agent, "", "stop", tokens=(2,), logprobs=(-3.0,)),
            advantage=1.0, share=0.5,
        )
        for agent, index in moved
    ]  # fmt: skip
    batches = pack(rows, 1000, "sequence_sum", {"a": 1, "b": 1})
    probe = Probe(
        batches,
        {row.id: -3.0 for row in rows},
        {row.id: (0, row.id.agent, row.policy) for row in rows},
    )
    each, team = asyncio.run(distance({"a": Moved(moved), "b": Moved(moved)}, probe, probe.first))
    assert each == pytest.approx({"a": (0.71828 + 1.13534) / 2, "b": 0.14872 / 2}, abs=1e-4)
    assert team == pytest.approx(0.92681 + 0.07436, abs=1e-4)


def test_agents_of_different_turns_do_not_share_a_bound():
    """What moves in one joint action adds up. The team's distance is that of the worse turn."""
    rows = [
        TrainSample(
            SampleId("e", (0,) * turn, "a", 0), turn=turn, prompt_tokens=(1,),
            completion=Completion("a", "", "stop", tokens=(2,), logprobs=(-3.0,)),
            advantage=1.0, share=0.5,
        )
        for turn in (0, 1)
    ]  # fmt: skip
    probe = Probe(
        pack(rows, 1000, "sequence_sum", {"a": 1}),
        {rows[0].id: -3.0, rows[1].id: -3.5},
        {row.id: (row.turn, "a", "a") for row in rows},
    )
    _, team = asyncio.run(distance({"a": Moved({("a", 0): 0.0})}, probe, probe.first))
    assert team == pytest.approx(0.14872, abs=1e-4)


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


def test_a_step_that_seems_near_its_bound_is_measured_on_more_samples(tmp_path, monkeypatch):
    """Far below the bound, `FIRST` completions of an agent are enough."""
    monkeypatch.setattr("motet.trainer.step_bound.FIRST", 1)
    rows, measured = {}, []

    async def counted(learners, probe, batches):
        measured.append(sum(len(batch.ids) for batch in batches))
        return await distance(learners, probe, batches)

    monkeypatch.setattr("motet.trainer.step_bound.distance", counted)
    for bound in (1000.0, 0.01):
        measured.clear()
        trained(tmp_path, f"bound{bound}", bound, train={"steps": 1, "tasks_per_step": 4})
        rows[bound] = list(measured)
    assert rows[1000.0] == [2], "one of each agent"
    assert rows[0.01][0] == 2
    assert len(rows[0.01]) > 2
    assert set(rows[0.01][1:]) == {16}, "all of each agent"


def test_every_run_has_a_bound_unless_it_says_null(tmp_path):
    config = run_config()
    motet.train(config, runs=tmp_path, show="silent")
    assert all("learn/step_kl" in row for row in steps(tmp_path / "run"))
    config["train"]["max_step_kl"] = None
    motet.train(config | {"name": "free"}, runs=tmp_path, show="silent")
    assert not any("learn/step_kl" in row for row in steps(tmp_path / "free"))
