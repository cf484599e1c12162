"""Whole runs on a mixture: what they report of each environment, and the commands before a run."""

from typing import Any

import pytest

import motet
from motet.rollout.record import read_episodes
from tests.small_runs import GAMES, run_config, steps, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


def mixed(**sections: Any) -> dict[str, Any]:
    """Two lotteries, of which `long` has two turns and a third agent."""
    short = {"name": f"{GAMES}:Coded"}
    long = {"name": f"{GAMES}:Coded", "players": ["a", "b", "c"], "turns": 2}
    return run_config(
        **{
            "environment": {
                "name": "mixture",
                "of": {"short": short, "long": long},
                "weights": {"short": 1, "long": 2},
            },
            "team": {"a": "p", "b": "q", "c": "q"},
            "rollout": {"samples": [2, 1]},
            "train": {"steps": 2, "tasks_per_step": 3},
            **sections,
        }
    )


def test_a_run_reports_each_environment_and_the_whole(train):
    run = train(mixed())
    for row in steps(run):
        short, long = (
            {
                figure: row[f"play/environment/{name}/{figure}"]
                for figure in ("episodes", "reward", "success")
            }
            for name in ("short", "long")
        )
        assert (short["episodes"], long["episodes"]) == (1, 2)
        for figure in ("reward", "success"):
            assert row[f"play/{figure}"] == pytest.approx((short[figure] + 2 * long[figure]) / 3)
        assert {"play/terms/short/length", "play/terms/long/length"} <= row.keys()
    played = read_episodes(run / "episodes" / "train-000001.jsonl").episodes
    assert sorted(one.task.environment for one in played) == ["long", "long", "short"]
    assert {agent for one in played for agent in one.root.samples} == {"a", "b", "c"}
    found = motet.evaluate(run, show="silent")
    assert {name: one.episodes for name, one in found.environments.items()} == {
        "short": 4, "long": 4,
    }  # fmt: skip
    assert summary(run)["heldout"]["after"]["environments"]["long"]["episodes"] == 4


def test_a_dry_run_counts_the_environment_in_which_most_agents_act():
    cost = motet.dry_run(mixed())
    # 3 tasks · 3 agents · (2 samples, and one in each of 2 Rounds)
    assert cost.completions == 3 * 3 * (2 + 2)


def test_the_check_of_a_config_plays_two_steps_of_a_mixture():
    found = motet.check(mixed(train={"steps": 9, "tasks_per_step": 4}))
    assert found.summary.steps == 2
