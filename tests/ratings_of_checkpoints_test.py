"""The checkpoints of a run of a zero-sum game play each other, and are rated."""

import motet
import motet_compare
from motet_compare.ratings import ratings
from tests.small_runs import TINY, run_config


def test_checkpoints_of_a_game_that_one_wins_have_ratings(tmp_path):
    config = run_config(
        environment={"name": "motet_tasks.zero_sum.kuhn_poker:KuhnPoker", "show_rules": False},
        models={"tiny": {"embedded": TINY, "device": "cpu"}},
        policies={"player": {"model": "tiny"}},
        team={"ann": "player", "bob": "player"},
        decode={"max_new_tokens": 4, "format": {"choices": ["pass", "bet"]}},
        rollout={"samples": [1, 1, 1]},
        algorithm={"name": "rae"},
        optimizer={"learning_rate": 0.05},
        train={"steps": 4, "tasks_per_step": 16, "checkpoint_every": 2, "keep_every": 2},
        evaluation={"tasks": 24},
    )
    motet.train(config, runs=tmp_path)
    saved = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert [one.name for one in saved] == ["step-000000", "step-000002", "step-000004"]
    found = motet_compare.crossplay(saved)
    assert found.runs == [str(one) for one in saved]
    assert found.games == [[24] * 3] * 3
    assert [len(row) for row in found.success] == [3, 3, 3]
    assert found.ratings == ratings(found.success, found.games)
    elo = [one.elo for one in found.ratings]
    assert abs(sum(elo)) < 1e-6
    assert len(set(elo)) == 3, "the weights of three steps play differently"
