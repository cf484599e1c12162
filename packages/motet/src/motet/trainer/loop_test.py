"""Tests of the training loop, on a game without models: what is trained in a step, and how
often."""

import asyncio
import selectors
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.algorithms import resolve
from motet.batch import Batch, Mean, ValueBatch
from motet.config.sections import EvaluationConfig, TrainConfig
from motet.core import (
    CreditState,
    OnAnswer,
    SampleRequest,
    ScoreRequest,
    Task,
    Team,
    Transition,
    ValueEstimate,
    ValueRequest,
)
from motet.errors import MotetError
from motet.settings import AlarmBounds, Plan, Schedule
from motet.trainer import timing
from motet.trainer.components import TrainComponents
from motet.trainer.in_sequence import sequence, together
from motet.trainer.loop import TrainStep
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Talk
from tests.fixtures.one_step import one_step

TASKS = [Task(name, {}) for name in "wxyz"]
SHARED = Team(dict.fromkeys(PAIR.agents, ("p",)), PAIR.decode)


class Stage:
    """A scorer whose every value is 0.5, and a publisher that records its calls."""

    def __init__(self) -> None:
        self.published: list[list[str]] = []

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        return [(-0.7,) * len(request.tokens) for request in requests]

    async def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]:
        counts = [max(1, len(request.completion)) for request in requests]
        return [ValueEstimate((3,) * n, tuple(range(n)), (0.5,) * n) for n in counts]

    async def publish(self, names: Sequence[str]) -> int:
        self.published.append(list(names))
        return len(self.published)


@dataclass(eq=False)
class Diary:
    """A learner that records what it gets between two updates.

    `approx_kl`: the divergence that it reports for a policy.
    """

    approx_kl: Mapping[str, Sequence[float]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    values: list[ValueBatch] = field(default_factory=list)
    updates: list[tuple[str, ...]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    async def accumulate(self, batch: Batch, objective: Any) -> dict[str, Mean]:
        self.batches.append(batch)
        before = self.seen.get(batch.policy, 0)
        self.seen[batch.policy] = before + 1
        kl = self.approx_kl[batch.policy][before] if batch.policy in self.approx_kl else 0.0
        return {
            "sampling_logp_difference": Mean(1.0 * before, 1.0),
            "sampling_kl": Mean(0.0, 1.0),
            "approx_kl": Mean(kl, 1.0),
        }

    async def accumulate_values(self, batch: ValueBatch, objective: Any) -> dict[str, Mean]:
        self.values.append(batch)
        return {"value_error": Mean(2.0, 1.0)}

    def precision(self, name: str) -> str:
        return "float32"

    async def step(self, names: Sequence[str]) -> dict[str, dict[str, float]]:
        self.updates.append(tuple(names))
        return {name: {"loss": 0.0} for name in names}


@dataclass
class Parts:
    """The models of a run without models."""

    learners: Mapping[str, Diary]
    sampler: Any = field(default_factory=KeySampler)
    scorer: Stage = field(default_factory=Stage)
    publisher: Stage = field(default_factory=Stage)
    samples_beside = False

    def play_snapshots(self, step: int | None) -> dict[str, int]:
        return {}

    def store_snapshots(self, step: int) -> None:
        pass

    def timings(self) -> Mapping[str, float]:
        return self.sampler.timings() if isinstance(self.sampler, Timed) else {}

    def publish_metrics(self) -> dict[str, float]:
        return {}


def components(
    name: str, team: Team = PAIR, diary: Diary | None = None, **changes: Any
) -> TrainComponents:
    diary = diary or Diary()
    chosen = resolve(name, {"repeat_last_reward": False, **changes.pop("fields", {})})
    if chosen.critic is not None:
        critics = {
            agent: "critic-joint" if chosen.critic.view == "joint" else f"critic-{agent}"
            for agent in team.agents
        }
        team = replace(team, critics=critics)
    made = TrainComponents(
        environment=Talk(pay=lambda said: len(said) + int(said[-1][0][1]) / 1000),
        team=team,
        models=Parts(dict.fromkeys((*team.policies, *team.critics.values()), diary)),
        tasks={"train": TASKS},
        seed=0,
        steps=1,
        tasks_per_step=4,
        plan=Plan(samples=(1, 1)),
        turns=2,
        algorithm=chosen,
        schedule=Schedule(),
        train=TrainConfig(steps=1, token_budget=10**6, max_step_kl=None, max_fault_share=0.0),
        evaluation=EvaluationConfig(),
        alarms=AlarmBounds(max_mismatch=None),
        longest=dict.fromkeys(team.policies, 3),
        critic_epochs=1,
        value_coefficient=1.0,
    )
    return replace(made, **changes)


def go(made: TrainComponents, number: int = 1) -> tuple[Diary, dict[str, float]]:
    step, _ = asyncio.run(one_step(made, TASKS, number, CreditState()))
    return next(iter(made.models.learners.values())), dict(step.metrics)


# ---------------------------------------------------------------------------------- number of steps


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_a_sample_set_gives_epochs_times_minibatches_steps(epochs, minibatches):
    fields = {"epochs": epochs, "minibatches": minibatches}
    diary, _ = go(components("mappo", fields=fields, critic_epochs=epochs))
    assert len(diary.updates) == epochs * minibatches
    assert all(update[-1] == "critic-joint" for update in diary.updates)
    assert (
        sum(len(batch.tokens_BL) for batch in diary.batches) == epochs * 4 * 2 * 2
    )  # tasks, turns, agents
    assert sum(len(batch.tokens_BL) for batch in diary.values) == epochs * 4 * 2  # tasks, turns


def test_critics_may_pass_over_a_step_more_often_than_policies():
    diary, _ = go(components("iac", critic_epochs=3))
    assert diary.updates[0] == ("ann-policy", "bob-policy", "critic-ann", "critic-bob")
    assert diary.updates[1:] == [("critic-ann", "critic-bob")] * 2


def test_two_agents_of_one_policy_take_one_step_on_the_sum_and_not_one_each():
    diary, _ = go(components("mareinforce", SHARED))
    assert diary.updates == [("p",)]
    (batch,) = diary.batches
    assert len(batch.tokens_BL) == 4 * 2 * 2
    assert batch.token_weight_B.sum().item() == pytest.approx(
        4.0
    )  # one for each agent at each turn


def test_every_update_has_the_old_probabilities_of_the_sampling():
    diary, _ = go(components("ippo", fields={"epochs": 3}))
    assert len(diary.batches) == 3 * 2
    for batch in diary.batches:
        assert set(batch.behaviour_logp_BL[batch.mask_BL].tolist()) == {-0.5}


def test_the_sampler_is_compared_with_before_anything_has_moved():
    _, figures = go(components("ippo", fields={"epochs": 3}))
    assert figures["learn/sampling_logp_difference"] == 0.0


# --------------------------------------------------------------------------- stopping at a KL bound


def test_a_policy_that_has_moved_far_enough_is_not_updated_again_and_its_partner_goes_on():
    diary = Diary({"ann-policy": [0.0, 0.04, 0.2], "bob-policy": [0.0, 0.01, 0.02, 0.03]})
    go(components("ippo", diary=diary, fields={"epochs": 4, "stop_at_kl": 0.1}, critic_epochs=5))
    policies = [
        tuple(name for name in update if not name.startswith("critic")) for update in diary.updates
    ]
    both, bob = ("ann-policy", "bob-policy"), ("bob-policy",)
    assert policies == [both, both, bob, bob, ()]
    assert diary.seen == {
        "ann-policy": 3,
        "bob-policy": 4,
    }  # evaluated once more, but not updated
    assert all(set(update) >= {"critic-ann", "critic-bob"} for update in diary.updates)


def test_how_far_one_may_move_is_unlimited_unless_set():
    diary = Diary({name: [0.0, 9.0, 9.0, 9.0] for name in PAIR.policies})
    go(components("ippo", diary=diary))
    assert diary.seen == dict.fromkeys(PAIR.policies, 4)
    assert all(set(update) >= set(PAIR.policies) for update in diary.updates)


# ----------------------------------------------------------------------------------------- schedule


def rows(diary: Diary) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in (*diary.batches, *diary.values):
        name = batch.policy if isinstance(batch, Batch) else batch.critic
        found[name] = found.get(name, 0) + len(batch.tokens_BL)
    return found


@dataclass(eq=False)
class Moving(Diary):
    """A learner whose policy makes what it said more probable with each of its updates: by
    `moves` nats per token."""

    moves: float = 0.1
    read: list[str] = field(default_factory=list)

    async def logprobs(self, batch: Batch) -> Tensor:
        self.read.append(batch.policy)
        updates = sum(batch.policy in names for names in self.updates)
        return batch.behaviour_logp_BL + self.moves * updates * batch.mask_BL


def in_sequence(moves: float = 0.1, **changes: Any) -> tuple[Moving, dict[str, float]]:
    diary = Moving(moves=moves)
    made = components(
        "mareinforce", diary=diary, schedule=Schedule(kind="sequential"), plan=Plan(samples=(1,)),
        turns=1, **changes,
    )  # fmt: skip
    _, metrics = go(made)
    return diary, metrics


def test_in_sequence_the_second_policy_learns_beside_the_first_as_it_has_become():
    diary, _ = in_sequence()
    first, second = (batch.policy for batch in diary.batches)
    assert {first, second} == {"ann-policy", "bob-policy"}
    assert diary.updates == [(first,), (second,)]
    assert diary.read == [first], "the last one need not be read again"
    still, _ = in_sequence(moves=0.0)
    assert [batch.policy for batch in still.batches] == [first, second]
    for moved, was, ratio in zip(diary.batches, still.batches, (1.0, exp(0.3)), strict=True):
        # A completion has three tokens: 0.3 nats.
        assert torch.allclose(moved.advantages_BL, ratio * was.advantages_BL)


def test_in_sequence_the_ratio_of_the_partners_is_bounded_by_its_cap():
    diary, _ = in_sequence(moves=1.0)
    still, _ = in_sequence(moves=0.0)
    assert torch.allclose(diary.batches[1].advantages_BL, 2.0 * still.batches[1].advantages_BL)


def test_the_order_of_a_sequence_changes_from_step_to_step():
    orders = {tuple(sequence({"a", "b", "c"}, 0, number)) for number in range(30)}
    assert len(orders) == 6
    assert sequence({"a", "b"}, 0, 1) == sequence({"b", "a"}, 0, 1)


def test_metrics_of_a_sequence_are_those_of_its_policies_together():
    first = {"learn/step_kl": 0.2, "learn/step_scaled": 0.5, "learn/entropy": 1.0, "only": 3.0}
    second = {"learn/step_kl": 0.1, "learn/step_scaled": 1.0, "learn/entropy": 2.0}
    assert together([first, second]) == pytest.approx(
        {"learn/step_kl": 0.3, "learn/step_scaled": 0.5, "learn/entropy": 1.5, "only": 3.0}
    )


def test_in_round_robin_one_policy_learns_with_its_critic_and_is_published():
    schedule = Schedule(kind="round_robin")
    for number, who in ((1, "ann"), (2, "bob"), (3, "ann")):
        made = components("iac", schedule=schedule)
        diary, _ = go(made, number)
        assert rows(diary) == {f"{who}-policy": 8, f"critic-{who}": 8}
        assert made.models.publisher.published == [[f"{who}-policy"]]


def test_in_round_robin_a_joint_critic_learns_at_every_step():
    diary, _ = go(components("maac", schedule=Schedule(kind="round_robin")))
    assert rows(diary) == {"ann-policy": 8, "critic-joint": 8}


PER_TURN = Team({"ann": ("early", "late"), "bob": ("early", "late")}, PAIR.decode)


def test_a_block_of_a_turn_trains_what_was_said_in_it_alone():
    schedule = Schedule(kind="turns", first_turn_steps=1, block=2)
    for number, who in (
        (1, "early"),
        (2, "late"),
        (3, "late"),
        (4, "early"),
        (5, "early"),
        (6, "late"),
    ):
        made = components("iac", PER_TURN, schedule=schedule)
        diary, _ = go(made, number)
        # The credit of turn one reads the values of both turns, that of turn two only its own.
        values = 8 if who == "early" else 4
        assert rows(diary) == {who: 8, "critic-ann": values, "critic-bob": values}
        assert made.models.publisher.published == [[who]]


def test_a_turn_at_which_nobody_is_trained_has_no_block():
    team = replace(PER_TURN, frozen=frozenset({"early"}))
    for number in (1, 2, 3):
        diary, _ = go(
            components("mareinforce", team, schedule=Schedule(kind="turns", first_turn_steps=1)),
            number,
        )
        assert rows(diary) == {"late": 8}


def test_frozen_policies_are_left_out_of_the_rounds():
    team = replace(PAIR, frozen=frozenset({"ann-policy"}))
    for number in (1, 2):
        diary, _ = go(
            components("mareinforce", team, schedule=Schedule(kind="round_robin")), number
        )
        assert rows(diary) == {"bob-policy": 8}


# ------------------------------------------------------------------------------------------- timing


class Clock(selectors.DefaultSelector):
    """A selector that jumps to the next timer, so that only waiting takes (virtual) time."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        Clock.now += timeout or 0.0
        return super().select(None if timeout is None else 0)


@dataclass
class Slow(Talk):
    """A game whose steps take time, except every fourth: the last of four concurrent games."""

    begun: int = 0

    async def step(self, state: Any, replies: Any, seed: int) -> Transition:
        self.begun += 1
        if self.begun % 4:
            await asyncio.sleep(0.1)
        return await super().step(state, replies, seed)


@dataclass
class Timed(KeySampler):
    """A sampler that spends 20 ms on the prompts and 60 ms on sampling per call, and reports it.

    With `early` it returns all answers before it samples.
    """

    early: bool = False
    spent: dict[str, float] = field(default_factory=lambda: {"prefill": 0.0, "decode": 0.0})

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> Any:
        answers = await super().sample(requests)
        for kind, seconds in (("prefill", 0.02), ("decode", 0.06)):
            begun = Clock.now
            if self.early and on_answer is not None and kind == "decode":
                for place, one in enumerate(answers):
                    on_answer(place, one)
            await asyncio.sleep(seconds)
            self.spent[kind] += Clock.now - begun
        return answers

    def timings(self) -> dict[str, float]:
        return dict(self.spent)


def timed(environment: Talk, sampler: Timed) -> tuple[TrainStep, float]:
    """Return the second of two steps, and its wall-clock seconds."""
    made = components("ippo", environment=environment)
    made = replace(made, models=replace(made.models, sampler=sampler))

    async def main() -> tuple[TrainStep, float]:
        await one_step(made, TASKS, 1, CreditState())
        begun = Clock.now
        step, _ = await one_step(made, TASKS, 2, CreditState())
        return step, Clock.now - begun

    loop = asyncio.SelectorEventLoop(Clock())
    loop.time = lambda: Clock.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "perf_counter", lambda: Clock.now)
        return runner.run(main())


def test_the_stages_of_a_step_add_up_to_what_it_took():
    step, wall = timed(Slow(), Timed())
    assert list(step.seconds)[:7] == [
        "play",
        "score",
        "credit",
        "pack",
        "learn",
        "publish",
        "play/prefill",
    ]
    assert step.took == pytest.approx(wall)
    parts = [value for stage, value in step.seconds.items() if stage.startswith("play/")]
    assert sum(parts) == pytest.approx(step.seconds["play"])


def test_a_slow_environment_is_the_environments_time_and_not_the_models():
    """Two turns: two calls of the sampler, and two concurrent steps of all games."""
    fast, slow = (timed(game, Timed())[0].seconds for game in (Talk(), Slow()))
    assert slow["play/environment"] == pytest.approx(2 * 0.1)
    assert fast["play/environment"] == pytest.approx(0.0)
    for seconds in (fast, slow):
        assert seconds["play/prefill"] == pytest.approx(2 * 0.02)
        assert seconds["play/decode"] == pytest.approx(2 * 0.06)


def test_an_environment_that_steps_while_answers_are_drawn_costs_only_what_is_waited_for():
    """All but the last game of a turn step while the sampler works; the last one has to be waited
    for."""
    seconds = timed(Slow(), Timed(early=True))[0].seconds
    assert seconds["play/environment"] == pytest.approx(2 * (0.1 - 0.06))
    assert seconds["play/decode"] == pytest.approx(2 * 0.06)


def test_play_is_one_stage_where_the_sampler_tells_no_times():
    step, _ = asyncio.run(one_step(components("ippo"), TASKS, 1, CreditState()))
    assert list(step.seconds) == ["play", "score", "credit", "pack", "learn", "publish"]


# ------------------------------------------------------------------------- log-probability mismatch


@dataclass(eq=False)
class Wrong(Diary):
    """A learner whose log-probabilities differ from those of sampling already at the first update.

    `apart`: the difference in nats.
    """

    apart: float = 0.0

    async def accumulate(self, batch: Batch, objective: Any) -> dict[str, Mean]:
        figures = await super().accumulate(batch, objective)
        return {**figures, "sampling_logp_difference": Mean(self.apart + len(self.updates), 1.0)}


@pytest.mark.parametrize(("bound", "apart"), [("dtype", 0.02), (0.5, 0.6)])
def test_log_probabilities_that_sampling_did_not_give_stop_the_step_before_any_update(bound, apart):
    diary = Wrong(apart=apart)
    made = components("ippo", diary=diary, alarms=AlarmBounds(max_mismatch=bound))
    with pytest.raises(MotetError, match=r"policy ann-policy: .* attention: sdpa") as error:
        asyncio.run(one_step(made, TASKS, 1, CreditState()))
    assert "\n" not in str(error.value)
    assert diary.updates == []


@pytest.mark.parametrize(("bound", "apart"), [("dtype", 0.005), (0.5, 0.4), (None, 5.0)])
def test_what_rounding_explains_does_not_stop_and_after_the_first_update_nothing_is_looked_at(
    bound, apart
):
    bounds = AlarmBounds(max_mismatch=bound)
    made = components("ippo", diary=Wrong(apart=apart), fields={"epochs": 2}, alarms=bounds)
    asyncio.run(one_step(made, TASKS, 1, CreditState()))
    assert len(next(iter(made.models.learners.values())).updates) == 2


@dataclass(eq=False)
class OneWrong(Diary):
    """A learner that is wrong about one policy."""

    wrong: str = ""

    async def accumulate(self, batch: Batch, objective: Any) -> dict[str, Mean]:
        figures = await super().accumulate(batch, objective)
        return {
            **figures,
            "sampling_logp_difference": Mean(5.0 if batch.policy == self.wrong else 0.0, 1.0),
        }


def test_a_policy_that_no_sample_of_the_first_update_is_of_is_looked_at_before_its_own_first():
    fields = {"minibatches": 100}  # one update per sample
    first, _ = go(components("ippo", fields=fields))
    late = next(batch.policy for batch in first.batches if batch.policy != first.batches[0].policy)
    diary = OneWrong(wrong=late)
    made = components("ippo", diary=diary, fields=fields, alarms=AlarmBounds())
    with pytest.raises(MotetError, match=rf"policy {late}: log-probabilities in training differ"):
        asyncio.run(one_step(made, TASKS, 1, CreditState()))
    assert diary.updates
    assert all(late not in stepped for stepped in diary.updates)
