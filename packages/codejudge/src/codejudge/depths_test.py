import pytest

from codejudge.depths import TupleDepths
from codejudge.object_table import Garbled


class Pair(tuple):
    pass


def test_the_depth_is_that_of_the_deepest_member() -> None:
    depths = TupleDepths({})
    assert depths.of(7) == 1
    assert depths.of(()) == 1
    assert depths.of((7, (7, ()))) == 3


def test_a_numbered_tuple_has_the_depth_that_was_remembered() -> None:
    pair = Pair((1, 2))
    depths = TupleDepths({id(pair): 4})
    depths.remember(4, 100)
    assert depths.of((pair,)) == 101
    depths.forget(4)
    assert depths.of((pair,)) == 3


def test_over_ten_thousand_levels_are_refused() -> None:
    pair = Pair()
    depths = TupleDepths({id(pair): 4})
    depths.remember(4, 9_999)
    assert depths.of((pair,)) == 10_000
    with pytest.raises(Garbled, match="more than 10000 nested tuples"):
        depths.of(((pair,),))
