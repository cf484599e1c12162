"""The weight of the entropy bonus of a run, which may change from step to step."""

import pytest

import motet
from motet.errors import Interrupted
from tests.small_runs import run_config, steps, weights


def trained(tmp_path, run, samples=2, **algorithm):
    config = run_config(
        name=run,
        algorithm={"name": "magrpo", **algorithm},
        rollout={"samples": [samples]},
        train={"steps": 3, "tasks_per_step": 2, "checkpoint_every": 1},
    )
    motet.train(config, runs=tmp_path)
    return tmp_path / run


def test_the_weight_falls_from_step_to_step_and_is_logged(tmp_path):
    falling = trained(tmp_path, "falling", entropy_coefficient=1.0, entropy_final=0.5)
    said = [row["learn/entropy_coefficient"] for row in steps(falling)]
    assert said == pytest.approx([1.0, 0.75, 0.5])
    constant = trained(tmp_path, "constant", entropy_coefficient=1.0)
    assert not any("learn/entropy_coefficient" in row for row in steps(constant))
    assert weights(falling) != weights(constant)
    same = trained(tmp_path, "same", entropy_coefficient=1.0, entropy_final=1.0)
    assert weights(same) == weights(constant)


def test_it_falls_where_pairs_are_learned_from_too(tmp_path):
    options = {"name": "madpo", "entropy_coefficient": 1.0}
    falling = trained(tmp_path, "falling", samples=4, entropy_final=0.5, **options)
    said = [row["learn/entropy_coefficient"] for row in steps(falling)]
    assert said == pytest.approx([1.0, 0.75, 0.5])
    constant = trained(tmp_path, "constant", samples=4, **options)
    assert weights(falling) != weights(constant)


def test_a_resumed_run_goes_on_with_the_weight_of_its_step(tmp_path):
    options = {"entropy_coefficient": 1.0, "entropy_final": 0.0}
    whole = trained(tmp_path, "run", **options)
    kept = weights(whole)

    def stop(step, metrics):
        if step == 2:
            raise KeyboardInterrupt

    config = str(whole / "config.yaml")
    with pytest.raises(Interrupted):
        motet.train(config, ["name=cut"], runs=tmp_path, callbacks=[motet.Callback(on_step=stop)])
    motet.train(str(tmp_path / "cut" / "config.yaml"), runs=tmp_path, resume=True)
    assert weights(tmp_path / "cut") == kept
