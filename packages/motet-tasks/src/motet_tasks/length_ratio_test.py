import asyncio
from math import exp

import pytest

from motet.core import Reply
from motet.environments.check import check_environment
from motet_tasks.length_ratio import LengthRatio


def score(short, long, **options):
    environment = LengthRatio(LengthRatio.Options(**options))
    replies = {"short": Reply("x" * short), "long": Reply("x" * long)}
    transition = asyncio.run(environment.step("?", replies, 0))
    return transition.rewards["long"]


@pytest.mark.parametrize("options", [{}, {"short_characters": 220, "told": True}])
def test_it_keeps_the_rules_of_environments(options):
    environment = LengthRatio(LengthRatio.Options(**options))
    check_environment(environment, environment.tasks("train")[:3])


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [(10, 20, 1.0), (10, 30, 1.0), (10, 10, exp(-1)), (10, 45, exp(-1.5)), (0, 9, 0.0)],
)
def test_the_story_pays_the_distance_to_the_range(short, long, expected):
    assert score(short, long) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        (200, 500, 1.0),
        (200, 200, 0.5 * (0.5 + 1.0)),
        (250, 625, 0.5 * (1.0 + 0.5)),
        (200, 900, 0.5 * (0.5 + 1.0)),
        (200, 10_000, 0.5 * (-1.0 + 1.0)),
        (0, 500, -1.0),
        (200, 0, -1.0),
    ],
)
def test_with_a_target_both_the_ratio_and_the_short_length_count(short, long, expected):
    assert score(short, long, short_characters=200) == pytest.approx(expected)


def test_the_reward_is_scaled_as_published():
    assert score(10, 25, reward={"scale": 100.0}) == 100.0


def test_rows_of_ones_own_are_requests():
    environment = LengthRatio(LengthRatio.Options(field="post", told=True))
    task = environment.task({"post": "A post."})
    prompts = environment.observe(asyncio.run(environment.start(task, 0)))
    assert prompts["short"][0].content == "A post.\n\nBe brief."
    assert prompts["long"][0].content == "A post.\n\nWrite 2 to 3 times as much as usual."
