"""What the whole-run tests of this package share."""

from tests.fixtures.whole_runs import train, undrawn_curves

__all__ = ["train", "undrawn_curves"]
