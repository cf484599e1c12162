"""What `train` does around a run."""

from typing import Any

import pytest

from motet.api import training
from motet.errors import ProcessLost
from tests.small_runs import run_config


def test_a_run_whose_process_was_lost_goes_on_as_often_as_the_config_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[tuple[bool, bool]] = []

    def lost(settings: Any, runs: Any, *, resume: bool, overwrite: bool, **others: Any) -> Any:
        tries.append((resume, overwrite))
        raise ProcessLost("home p was lost")

    monkeypatch.setattr(training, "train_once", lost)
    config = run_config(cluster={"learners": {"gpus": 0}, "restarts": 2})
    with pytest.raises(ProcessLost, match="home p was lost"):
        training.train(config, overwrite=True, show="silent")
    assert tries == [(False, True), (True, False), (True, False)]
    del config["cluster"]
    with pytest.raises(ProcessLost):
        training.train(config, show="silent")
    assert tries[3:] == [(False, False)]
