"""Trackers: each one gets every metric. Those of extras run where they are installed."""

import sys

import pytest

from motet.config.sections import ReportConfig, TrackioConfig, WandbConfig
from motet.errors import ConfigError
from motet.trainer.trackers import (
    TensorBoardTracker,
    TrackioTracker,
    WandbTracker,
    check_trackers,
    open_trackers,
)


def test_tensorboard_gets_every_scalar(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = TensorBoardTracker(tmp_path / "tb")
    tracker.write(1, {"play/reward": 0.5})
    tracker.write(2, {"play/reward": 0.75})
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("play/reward")] == [
        (1, 0.5),
        (2, 0.75),
    ]


@pytest.mark.parametrize(
    ("name", "chosen"), [("wandb", {}), ("trackio", {}), ("tensorboard", True)]
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    name, chosen, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, name, None)
    report = ReportConfig.model_validate({name: chosen})
    for use in (check_trackers, lambda one: open_trackers(one, tmp_path, "run", {}).__enter__()):
        with pytest.raises(ConfigError, match=rf'report.{name} is set.*"motet\[{name}\]"'):
            use(report)


def test_tensorboard_gets_metrics_without_being_asked_where_it_is_installed(tmp_path, monkeypatch):
    with open_trackers(ReportConfig(), tmp_path, "run", {}) as trackers:
        assert [type(one) for one in trackers] == [TensorBoardTracker]
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with open_trackers(ReportConfig(), tmp_path, "run", {}) as trackers:
        assert trackers == []


def test_wandb_gets_every_step_as_a_value(tmp_path, monkeypatch):
    logged = []

    class Run:
        log = staticmethod(logged.append)
        finish = staticmethod(lambda: logged.append("end"))

    class Library:
        init = staticmethod(lambda **settings: logged.append(settings["project"]) or Run)

    monkeypatch.setitem(sys.modules, "wandb", Library)
    tracker = WandbTracker(tmp_path, WandbConfig(), "run", {})
    tracker.write(3, {"play/reward": 0.5})
    tracker.close()
    assert logged == ["motet", {"step": 3, "play/reward": 0.5}, "end"]


def test_wandb_writes_files_of_this_machine_without_an_account(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason='wandb is not installed: pip install "motet[wandb]"')
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = WandbTracker(tmp_path, WandbConfig(), "run", {"seed": 1})
    tracker.write(1, {"play/reward": 0.5})
    tracker.close()
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"play/reward" in written.read_bytes()


def test_trackio_gets_every_metric_in_files_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip(
        "trackio", reason='trackio is not installed: pip install "motet[trackio]"'
    )
    tracker = TrackioTracker(tmp_path, TrackioConfig(project="own"), "run", {"seed": 1})
    tracker.write(1, {"play/reward": 0.5})
    tracker.write(2, {"play/reward": 0.75})
    tracker.close()
    (run,) = trackio.Api().runs("own")
    assert run.name == "run"
    assert [path.name for path in (tmp_path / "trackio").glob("*.db")] == ["own.db"]


def test_the_trackers_of_a_run_are_closed_with_it(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(TensorBoardTracker, "close", lambda self: closed.append(self))
    with open_trackers(ReportConfig(), tmp_path, "run", {}) as trackers:
        trackers[0].write(1, {"play/reward": 0.5})
        assert not closed
    assert closed == trackers
