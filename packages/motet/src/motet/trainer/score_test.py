"""Tests of `score`: it requests each thing that an algorithm needs, once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from motet.algorithms import resolve
from motet.core import (
    Completion,
    Episode,
    Fault,
    Outcome,
    Round,
    SampleId,
    ScoreRequest,
    Scores,
    Task,
    Team,
    ValueEstimate,
    ValueId,
    ValueRequest,
)
from motet.settings import Algorithm
from motet.trainer.score import score
from tests.fixtures.messages import facts

TEAM = Team({"a": ("p",), "b": ("q",)}, decode={}, critics={"a": "critic-a", "b": "critic-b"})
COLD = Team(TEAM.agents, decode={}, frozen=frozenset({"q"}), critics={"a": "critic-a"})
JOINT = Team(TEAM.agents, decode={}, critics=dict.fromkeys(TEAM.agents, "critic-joint"))


class Notebook:
    """A scorer that records its requests. Its answers show which request they belong to."""

    def __init__(self) -> None:
        self.calls: list[list[ScoreRequest | ValueRequest]] = []

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        self.calls.append(list(requests))
        return [(-float(number),) * len(request.tokens) for number, request in enumerate(requests)]

    async def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]:
        self.calls.append(list(requests))
        return [
            ValueEstimate((number,), (0,), (float(number),)) for number, _ in enumerate(requests)
        ]


def said(agent: str, *tokens: int) -> Completion:
    policy = {"a": "p", "b": "q"}[agent]
    return Completion(
        policy, "x", "stop", tokens=tokens, logprobs=(-1.0,) * len(tokens), temperature=0.7
    )


def episode() -> Episode:
    """An episode of two turns.

    At the first turn there are two samples each, and one joint action fails. At the second turn
    only b acts.
    """
    after = Round(
        1, {"b": "more?"}, {"b": (4,)}, {"b": (said("b", 9),)}, (Outcome({"b": 0}, {}, end="done"),)
    )
    samples = {"a": (said("a", 5, 6), said("a", 7)), "b": (said("b", 8), said("b", 8, 8))}
    outcomes = (
        Outcome({"a": 0, "b": 0}, {}, next=after),
        Outcome({"a": 1, "b": 1}, {}, fault=Fault("reward", "x", "")),
    )
    return Episode(
        "e",
        Task("e", {}),
        Round(0, {"a": "A?", "b": "B?"}, {"a": (1, 2), "b": (3,)}, samples, outcomes),
    )


FAILED = Episode("f", Task("f", {}), None, fault=Fault("environment", "died", ""))


def asked(algorithm: Algorithm, team: Team = TEAM) -> tuple[Notebook, Scores]:
    notebook = Notebook()
    return notebook, asyncio.run(score(notebook, [episode(), FAILED], algorithm, team))


def test_nobody_is_asked_for_what_no_algorithm_needs():
    notebook, scores = asked(resolve("magrpo", {}))
    assert notebook.calls == []
    assert scores == Scores()


@pytest.mark.parametrize("where", ["loss", "reward"])
def test_the_reference_of_every_completion_is_asked_for_once_at_its_own_temperature(where):
    notebook, scores = asked(resolve("magrpo", {"kl_in": where, "kl_coefficient": 0.1}))
    (requests,) = notebook.calls
    assert requests == [
        ScoreRequest("p", (1, 2), (5, 6), 0.7),
        ScoreRequest("p", (1, 2), (7,), 0.7),
        ScoreRequest("q", (3,), (8,), 0.7),
        ScoreRequest("q", (3,), (8, 8), 0.7),
        ScoreRequest("q", (4,), (9,), 0.7),
    ]
    assert scores.reference[SampleId("e", (0,), "b", 0)] == (-4.0,)


def test_a_teacher_scores_what_its_agent_wrote_after_the_same_prompt():
    taught = replace(TEAM, teachers={"b": ("first", "later")})
    before, after = (
        asked(resolve("distillation", {}), team)[0].calls[0] for team in (TEAM, taught)
    )
    assert [replace(request, policy="") for request in after] == [
        replace(request, policy="") for request in before
    ]
    assert {(old.policy, new.policy) for old, new in zip(before, after, strict=True)} == {
        ("p", "p"),
        ("q", "first"),
        ("q", "later"),
    }


def test_no_reference_is_asked_for_of_who_is_never_trained():
    notebook, _ = asked(resolve("magrpo", {"kl_in": "loss", "kl_coefficient": 0.1}), COLD)
    assert {request.policy for request in notebook.calls[0]} == {"p"}


def test_own_critics_read_each_round_once_for_each_agent_that_acts_in_it():
    notebook, scores = asked(resolve("iac", {}))
    assert notebook.calls == [
        [
            ValueRequest("critic-a", "A?"),
            ValueRequest("critic-b", "B?"),
            ValueRequest("critic-b", "more?"),
        ]
    ]
    assert {id: said.values for id, said in scores.values.items()} == {
        ValueId("e", (), "a"): (0.0,),
        ValueId("e", (), "b"): (1.0,),
        ValueId("e", (0,), "b"): (2.0,),
    }


def test_an_agent_without_a_critic_is_not_valued():
    notebook, scores = asked(resolve("iac", {}), COLD)
    assert notebook.calls == [[ValueRequest("critic-a", "A?")]]
    assert list(scores.values) == [ValueId("e", (), "a")]


def test_a_joint_critic_reads_each_round_once():
    notebook, scores = asked(resolve("maac", {}), JOINT)
    assert notebook.calls == [
        [ValueRequest("critic-joint", "a: A?\nb: B?"), ValueRequest("critic-joint", "b: more?")]
    ]
    assert list(scores.values) == [ValueId("e", (), None), ValueId("e", (0,), None)]


def test_in_token_scope_every_completion_is_read_behind_the_tokens_of_its_prompt():
    algorithm = resolve("maporl", {})
    notebook, scores = asked(algorithm)
    references, values = notebook.calls
    assert len(references) == len(values) == 5
    assert values[0] == ValueRequest("critic-a", prompt_tokens=(1, 2), completion=(5, 6))
    assert values[-1] == ValueRequest("critic-b", prompt_tokens=(4,), completion=(9,))
    assert [(id.agent, id.path, id.index) for id in scores.values] == [
        ("a", (), 0), ("a", (), 1), ("b", (), 0), ("b", (), 1), ("b", (0,), 0)
    ]  # fmt: skip


def test_a_critic_of_the_first_observation_reads_every_turn_behind_the_first_prompt():
    notebook, _ = asked(resolve("maporl", {"critic_view": "first"}))
    _, values = notebook.calls
    assert values[0] == ValueRequest("critic-a", prompt_tokens=(1, 2), completion=(5, 6))
    assert values[-1] == ValueRequest("critic-b", prompt_tokens=(3,), completion=(9,))


def test_the_first_observation_is_for_the_values_of_tokens():
    with pytest.raises(ValueError, match=facts("view first … every turn … same value")):
        resolve("iac", {"critic_view": "first"})
