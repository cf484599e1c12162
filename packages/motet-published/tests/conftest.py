"""What the whole-run tests of this package share."""

from tests.fixtures.whole_runs import undrawn_curves

__all__ = ["undrawn_curves"]
