"""What the whole-run tests of this package share."""

from tests.fixtures.whole_runs import remembered_trials, train, undrawn_curves

__all__ = ["remembered_trials", "train", "undrawn_curves"]
