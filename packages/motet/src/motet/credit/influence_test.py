"""Causal influence by hand: what is measured, how it is pooled, and what an advantage gets."""

import math
from dataclasses import replace

import pytest
import torch

from motet.algorithms import ALGORITHMS, check_plan, plays_absent, resolve
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    Round,
    SampleId,
    Scores,
    Task,
    Team,
)
from motet.credit.assign import assign_credit
from motet.credit.influence import answers, caused, pooled, similarity, standardised
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.settings import Plan
from tests.fixtures.messages import facts

PAIR = ("a", "b")
TEAM = Team({"a": ("p",), "b": ("q",)}, decode={})


def said(agent, *texts):
    policy = {"a": "p", "b": "q"}[agent]
    return tuple(Completion(policy, text, "stop", tokens=(7,), logprobs=(-1.0,)) for text in texts)


def round_of(turn, samples, outcomes, without=(), prompt=0):
    return Round(
        turn,
        dict.fromkeys(samples, "?"),
        dict.fromkeys(samples, (prompt,)),
        samples,
        tuple(outcomes),
        tuple(without),
    )


def heard(worth, prompt, *texts):
    """The second turn: b answers."""
    last = [Outcome({"b": g}, dict.fromkeys(PAIR, worth), end="done") for g in range(len(texts))]
    return round_of(1, {"b": said("b", *texts)}, last, prompt=prompt)


def game(*games):
    """a speaks, and then b. `games`: what a says, what b answers, and what both earn."""
    nothing = dict.fromkeys(PAIR, 0.0)
    outcomes = [
        Outcome({"a": g}, nothing, next=heard(worth, g + 1, *answered))
        for g, (_, answered, worth) in enumerate(games)
    ]
    silent = Outcome({}, nothing, next=heard(0.0, 99, "?"), once=True)
    return round_of(0, {"a": said("a", *(text for text, *_ in games))}, outcomes, [silent])


def influence(*nats):
    """What a's messages change: for each, one number for each answer of b."""
    return {
        (SampleId("e", (g,), "b", index), "a"): value
        for g, values in enumerate(nats)
        for index, value in enumerate(values)
    }


FOUR = game(("x", ("1", "2"), 0.0), ("x", ("1",), 1.0), ("y", ("3",), 1.0), ("z", ("4",), 0.0))
NATS = influence((1.0, 3.0), (6.0,), (0.5,), (-0.5,))


def table_of(root):
    return Table.of([("e", root)], PAIR, 2)


def of_a(table, figures_S):
    return [
        value
        for sample, value in zip(table.samples, figures_S.tolist(), strict=True)
        if sample.id.agent == "a"
    ]


def test_an_answer_is_compared_with_the_prompt_after_the_default():
    found = list(answers([Episode("e", Task("t", {}), FOUR)], TEAM))
    assert [(one.id.path, one.id.index) for one in found] == [
        ((0,), 0), ((0,), 1), ((1,), 0), ((2,), 0), ((3,), 0)
    ]  # fmt: skip
    assert {(one.id.agent, one.sender) for one in found} == {("b", "a")}
    assert [one.prompt_tokens for one in found] == [(1,), (1,), (2,), (3,), (4,)]
    assert {one.instead_tokens for one in found} == {(99,)}


def test_what_a_frozen_agent_answers_is_not_measured():
    frozen = replace(TEAM, frozen=frozenset({"q"}))
    assert list(answers([Episode("e", Task("t", {}), FOUR)], frozen)) == []


def test_a_game_that_ends_without_the_message_says_nothing_of_it():
    ended = replace(FOUR, without=(Outcome({}, dict.fromkeys(PAIR, 0.0), end="done"),))
    assert list(answers([Episode("e", Task("t", {}), ended)], TEAM)) == []


def test_the_influence_of_a_message_is_the_mean_over_its_answers():
    table = table_of(FOUR)
    found_S = caused(table, NATS)
    assert of_a(table, found_S) == [2.0, 6.0, 0.5, -0.5]
    later = [s.id.agent == "b" for s in table.samples]
    assert found_S[torch.tensor(later)].isnan().all()  # nobody speaks after b


def test_messages_that_are_alike_share_their_influence():
    table = table_of(FOUR)
    assert of_a(table, pooled(table, caused(table, NATS))) == [4.0, 4.0, 0.5, -0.5]


def test_texts_are_alike_that_differ_in_one_of_many_characters():
    # Of ab: start-a-b and a-b-end. Of abc: start-a-b, a-b-c and b-c-end. 1 / (√2 · √3).
    assert similarity("ab", "abc") == pytest.approx(1 / math.sqrt(6))
    assert similarity("7", "7") == pytest.approx(1.0)
    assert similarity("7", "8") == similarity("12", "21") == similarity("", "1") == 0.0
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    assert similarity(alphabet, alphabet.replace("a", "A")) > 0.9
    assert similarity(alphabet, alphabet[::-1]) == 0.0


def test_an_advantage_gets_the_influence_in_deviations_over_all_messages_of_a_task():
    # 4, 4, 0.5 and −0.5 have the mean 2 and the variance (4 + 4 + 2.25 + 6.25) / 4.
    deviation = math.sqrt(16.5 / 4)
    table = table_of(FOUR)
    found = of_a(table, standardised(table, pooled(table, caused(table, NATS))))
    assert found == pytest.approx(
        [2 / deviation, 2 / deviation, -1.5 / deviation, -2.5 / deviation]
    )


def test_the_standardised_influence_of_many_forgets_how_large_it_is():
    """One of four messages is not the default. b's answer 0 has the probability 3/4 after it, and
    1/4 after the default; each is drawn as often as it is probable."""
    odds = math.log(3.0)
    root = game(
        *[("0", ("0", "1", "1", "1"), 0.0)] * 3,
        ("1", ("0", "0", "0", "1"), 0.0),
    )
    nats = influence(*[(0.0,) * 4] * 3, (odds, odds, odds, -odds))
    table = table_of(root)
    known_S = caused(table, nats)
    assert of_a(table, known_S) == pytest.approx([0.0, 0.0, 0.0, odds / 2])  # KL(¾, ¼ ‖ ¼, ¾)
    found = of_a(table, standardised(table, pooled(table, known_S)))
    assert found == pytest.approx([-(3**-0.5)] * 3 + [3**0.5])


def advantages(root, nats, **changes):
    rule = resolve("dr_mamr", {"repeat_last_reward": False, **changes})
    credit = assign_credit(
        [Episode("e", Task("t", {}), root)],
        Scores(influence=nats),
        rule,
        CreditState(),
        TEAM,
        2,
    )
    found = {(s.id.agent, s.id.path, s.id.index): s.mean_advantage for s in credit.samples}
    return found, credit.metrics


def test_dr_mamr_by_hand_and_how_it_differs_from_a_scaled_group_mean():
    # The returns of a are 0, 1, 1, 0: their advantages are −1, 1, 1, −1 in deviations.
    deviation = math.sqrt(16.5 / 4)
    by_task = {"group_by": "task"}
    found, metrics = advantages(FOUR, NATS, credit=by_task)
    assert [found["a", (), g] for g in range(4)] == pytest.approx(
        [-1 + 0.2 / deviation, 1 + 0.2 / deviation, 1 - 0.15 / deviation, -1 - 0.25 / deviation]
    )
    assert metrics["credit/influence/a"] == 2.0
    assert "credit/influence/b" not in metrics
    plain, _ = advantages(FOUR, {}, credit={**by_task, "influence": 0.0})
    assert [plain["a", (), g] for g in range(4)] == [-1.0, 1.0, 1.0, -1.0]
    # Nobody answers b, so its advantages stay.
    assert {key: it for key, it in found.items() if key[0] == "b"} == {
        key: it for key, it in plain.items() if key[0] == "b"
    }


def test_an_agent_that_changes_nothing_gets_less_than_one_that_does():
    """Three turns: a, b, a. What a says changes b's answer by 2 nats, what b says changes
    nothing."""
    nothing = dict.fromkeys(PAIR, 0.0)

    def last(turn, agent):
        return round_of(turn, {agent: said(agent, "!")}, [Outcome({agent: 0}, nothing, end="done")])

    def second(g):
        instead = Outcome({}, nothing, next=last(2, "a"), once=True)
        onward = Outcome({"b": 0}, nothing, next=last(2, "a"))
        return round_of(1, {"b": said("b", f"{g}")}, [onward], [instead])

    root = round_of(
        0,
        {"a": said("a", "x", "y")},
        [Outcome({"a": g}, nothing, next=second(g)) for g in range(2)],
        [Outcome({}, nothing, next=last(1, "b"), once=True)],
    )
    nats = {(SampleId("e", (g,), "b", 0), "a"): 2.0 for g in range(2)}
    nats |= {(SampleId("e", (g, 0), "a", 0), "b"): 0.0 for g in range(2)}
    table = Table.of([("e", root)], PAIR, 3)
    found_S = standardised(table, pooled(table, caused(table, nats)))
    by_place = {
        (s.id.agent, s.turn): value
        for s, value in zip(table.samples, found_S.tolist(), strict=True)
    }
    assert by_place == {("a", 0): 1.0, ("b", 1): -1.0, ("a", 2): 0.0}


def test_several_readers_add_up():
    nothing = dict.fromkeys(("a", "b", "c"), 0.0)
    after = Round(
        1,
        dict.fromkeys(("b", "c"), "?"),
        dict.fromkeys(("b", "c"), (1,)),
        {"b": said("b", "1", "2"), "c": said("b", "3", "4")},
        tuple(Outcome({"b": g, "c": g}, nothing, end="done") for g in range(2)),
    )
    root = round_of(0, {"a": said("a", "x")}, [Outcome({"a": 0}, nothing, next=after)])
    table = Table.of([("e", root)], ("a", "b", "c"), 2)
    nats = {
        (SampleId("e", (0,), agent, index), "a"): value
        for agent, values in (("b", (1.0, 3.0)), ("c", (0.0, 0.5)))
        for index, value in enumerate(values)
    }
    assert of_a(table, caused(table, nats)) == [2.0 + 0.25]


def test_what_is_not_measured_is_refused():
    with pytest.raises(ConfigError, match=facts("Scores.influence … after a … influence: 0")):
        advantages(FOUR, {}, credit={"group_by": "task"})


def test_influence_plays_what_follows_without_each_agent():
    assert plays_absent(ALGORITHMS["dr_mamr"]) == "one"
    assert plays_absent(resolve("dr_mamr", {"credit": {"influence": 0.0}})) == "none"
    assert plays_absent(resolve("shapley", {"credit": {"influence": 0.1}})) == "all"


@pytest.mark.parametrize(
    ("plan", "agents", "message"),
    [
        (Plan(samples=(4,)), 2, "influence 0.1 … got 2 agent(s) … [4] … influence: 0"),
        (Plan(samples=(4, 2)), 1, "influence 0.1 … got 1 agent(s) … several agents"),
        (Plan(samples=(4, 2), expand="random"), 2, "next Round … expand: all or replay"),
    ],
)
def test_plans_without_a_next_turn_of_others_are_refused(plan, agents, message):
    with pytest.raises(ConfigError, match=facts(message)):
        check_plan(ALGORITHMS["dr_mamr"], plan, agents)


def test_trees_paths_and_replays_are_accepted():
    check_plan(ALGORITHMS["dr_mamr"], Plan(samples=(4, 2)), 2)
    check_plan(ALGORITHMS["dr_mamr"], Plan(samples=(4, 2), expand="replay"), 2)
    paths = resolve("dr_mamr", {"credit": {"group_by": "task"}})
    check_plan(paths, Plan(samples=(4, 1)), 2)
