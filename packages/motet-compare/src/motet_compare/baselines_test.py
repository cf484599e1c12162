import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from motet.core import Completion, Sampled, Task, Team
from motet.errors import ConfigError, EnvironmentFault
from motet.settings import Decode, Plan
from motet.trainer.progress import Progress
from motet_compare.baselines import (
    BEST,
    DISCUSSION,
    MAJORITY,
    NAIVE,
    PIPELINE,
    SINGLE,
    UNTRAINED,
    EvalContext,
    Lineup,
    play_baselines,
)
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Talk
from tests.fixtures.messages import facts, says

TASKS = [Task(name, {}) for name in "xyz"]
"""The tests use three tokens per answer, so a game of two agents and one turn costs six."""


def numbers(said):
    return [int(text) for turn in said for _, text in turn]


@dataclass
class Sum(Talk):
    """Rewards the sum of the numbers in all turns."""

    pay: Any = lambda said: float(sum(numbers(said)))


class Votes(Sum):
    def answer(self, task, texts):
        return texts["ann"][0]


def play(game, *, turns=1, samples=1, budget=None, sampler=None, team=PAIR, soloist="bob"):
    context = EvalContext(
        TASKS, sampler or KeySampler(), 0, "evaluate", samples, Progress("silent").counter
    )
    found, left_out = asyncio.run(
        play_baselines(
            context, Lineup("the team", game, team, Plan(samples=(1,) * turns)), soloist, budget
        )
    )
    return {one.protocol: one for one in found}, left_out


def test_as_many_samples_are_drawn_as_the_tokens_allow():
    for budget, n in ((None, 1), (1.0, 1), (17.9, 2), (18.0, 3)):
        found, _ = play(Sum(), budget=budget)
        assert (found[BEST].n, found[BEST].tokens_per_task, found[MAJORITY].n) == (n, 6.0 * n, n)
    assert found[BEST].seconds_per_task == found[MAJORITY].seconds_per_task > 0


def test_samples_that_were_drawn_already_are_not_drawn_again():
    sampler = KeySampler()
    play(Sum(), samples=3, budget=18.0, sampler=sampler)
    drawn = len(
        [request for request in sampler.requests if len(request.keys) == 3 and request.id[2] == 0]
    )
    sampler = KeySampler()
    play(Sum(), samples=3, budget=24.0, sampler=sampler)
    again = [request for request in sampler.requests if len(request.keys) == 4]
    assert (drawn, len(again)) == (
        3 * (2 + 1 + 2),
        3 * 2,
    )  # per task: the team, the first agent of the pipeline, the drafts


def test_the_best_and_the_commonest_are_chosen_from_the_same_samples():
    found, _ = play(Votes(), samples=5, budget=24.0)
    games = found[UNTRAINED].games
    best, voted = found[BEST].games, found[MAJORITY].games
    for task in range(len(TASKS)):
        first = games[task][:4]
        assert best[task] == [max(first, key=lambda game: game.reward)]
        digits = [game.last_words["ann"][0] for game in first]
        assert voted[task] == [first[digits.index(max(digits, key=digits.count))]]
    assert says(found[MAJORITY].note, "common answer … team")
    assert says(play(Sum(), budget=12.0)[0][MAJORITY].note, "common text … team")


def test_samples_that_are_left_answer_the_task_again():
    """Of one sample, best and majority are the untrained team. Of two, five samples give two
    answers."""
    found, _ = play(Votes(), samples=5)
    assert found[BEST].games == found[MAJORITY].games == found[UNTRAINED].games
    assert found[BEST].note == found[MAJORITY].note
    assert says(found[BEST].note, "team itself … budget … one sample")
    found, _ = play(Votes(), samples=5, budget=12.0)
    assert [len(games) for games in found[BEST].games] == [2, 2, 2]
    for games, answers in zip(found[UNTRAINED].games, found[BEST].games, strict=True):
        assert [game.reward for game in answers] == [
            max(a.reward, b.reward) for a, b in (games[:2], games[2:4])
        ]


def test_naive_concatenation_is_the_first_turn_of_the_untrained_team():
    found, _ = play(Sum(), turns=2)
    for whole, first in zip(found[UNTRAINED].games, found[NAIVE].games, strict=True):
        assert first[0].last_words == {
            a: whole[0].turns[0][0].samples[a][0].text for a in ("ann", "bob")
        }
    assert (found[UNTRAINED].tokens_per_task, found[NAIVE].tokens_per_task) == (12.0, 6.0)


def test_drafts_are_paid_for_and_only_the_last_answers_count():
    found, _ = play(Sum(), turns=2)
    assert (found[PIPELINE].tokens_per_task, found[DISCUSSION].tokens_per_task) == (12.0, 24.0)
    for game, *_ in found[DISCUSSION].games:
        rewards = [game.reward_at(turn) for turn in range(4)]
        said = [
            sum(int(samples[0].text) for samples in round_.samples.values())
            for round_, _ in game.turns
        ]
        assert rewards == [0.0, said[1], 0.0, said[1] + said[3]]


def test_one_agent_alone_has_the_policy_and_the_room_of_the_team_but_no_role():
    class Shared(Sum):
        def alone(self):
            return Sum(agents=("solo",), acting=lambda turn: ("solo",))

    decode = {"ann": Decode(max_new_tokens=5), "bob": Decode(max_new_tokens=7, temperature=0.5)}
    team = replace(PAIR, decode=decode, system={"bob": "You are bob."})
    sampler = KeySampler()
    found, left_out = play(Shared(), team=team, sampler=sampler, budget=6.0)
    (asked,) = {
        (r.policy, r.decode, r.prompt[0].role) for r in sampler.requests if r.id[3] == "solo"
    }
    assert asked == ("bob-policy", Decode(max_new_tokens=12, temperature=0.5), "user")
    assert (found[SINGLE].tokens_per_task, found[BEST].n, left_out) == (3.0, 2, {})
    play(Shared(), team=team, sampler=sampler, soloist="ann")
    assert {r.policy for r in sampler.requests if r.id[3] == "solo"} == {"ann-policy", "bob-policy"}


def test_agents_that_take_turns_have_nobody_to_hear():
    _, left_out = play(Sum(acting=lambda turn: (("ann", "bob")[turn],)), turns=2)
    assert left_out[PIPELINE] == left_out[DISCUSSION]
    assert says(left_out[PIPELINE], "only one agent … each turn")
    assert says(left_out[NAIVE], "not every agent … first turn")


def test_a_game_with_live_state_is_sampled_as_often():
    found, _ = play(Sum(branches=False), budget=18.0)
    same, _ = play(Sum(), budget=18.0)
    assert found[BEST].n == 3
    assert {name: each.games for name, each in found.items()} == {
        name: each.games for name, each in same.items()
    }


def test_answers_whose_tokens_nobody_knows_cannot_be_bought():
    class Endpoint(KeySampler):
        def _answer(self, request):
            return Sampled((), tuple(Completion("api", "1", "stop") for _ in request.keys))

    _, left_out = play(Sum(), sampler=Endpoint())
    assert says(left_out[BEST], "no generated tokens … API")


def test_what_an_author_got_wrong_is_said():
    class Crowd(Sum):
        def alone(self):
            return Sum()

    class Unreadable(Sum):
        def answer(self, task, texts):
            return texts["carl"]

    with pytest.raises(ConfigError, match=facts("alone() … ann, bob … expected one agent")):
        play(Crowd())
    with pytest.raises(EnvironmentFault, match=r"Unreadable\.answer raised KeyError: 'carl'"):
        play(Unreadable())

    class Listed(Sum):
        def answer(self, task, texts):
            return sorted(texts.values())

    with pytest.raises(EnvironmentFault, match=r"Listed\.answer returned list, which has no hash"):
        play(Listed())


def test_a_team_of_one_is_compared_with_its_own_samples_only():
    game = Sum(agents=("ann",), acting=lambda turn: ("ann",))
    found, left_out = play(
        game, team=Team({"ann": ("p",)}, {"ann": Decode()}), soloist="ann", budget=9.0
    )
    assert list(found) == [UNTRAINED, BEST, MAJORITY]
    assert left_out.keys() == {SINGLE, NAIVE, PIPELINE, DISCUSSION}
    assert all(says(reason, "team … one agent") for reason in left_out.values())
    assert found[BEST].n == 3
