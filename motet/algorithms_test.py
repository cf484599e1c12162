"""Tests the warnings about plans that change an algorithm's gradient."""

import pytest

from motet.algorithms import cautions, resolve
from motet.settings import Plan


@pytest.mark.parametrize(
    ("plan", "group_by", "said"),
    [
        (
            {"samples": (4, 2)},
            "round",
            "groups of 4, 2 at turns 1 to 2, which weights the gradients of the turns by 3/4, 1/2",
        ),
        (
            {"samples": (2, 2)},
            "task",
            "groups of 2, 4 at turns 1 to 2, which weights the gradients of the turns by 1/2, 3/4",
        ),
        ({"samples": (4, 4)}, "round", None),
        ({"samples": (4, 1)}, "task", None),
    ],
)
def test_the_group_mean_over_groups_of_several_sizes_is_told_of(plan, group_by, said):
    found = cautions(resolve("magrpo", {"group_by": group_by}), Plan(**plan), 2)
    assert len(found) == (said is not None)
    if said is not None:
        assert said in found[0]
    assert cautions(resolve("marloo", {"group_by": group_by}), Plan(**plan), 2) == []


def test_the_published_credit_of_what_was_pruned_is_told_of():
    published = resolve("magrpo", {"pruned": "sibling_mean"})
    assert (
        "is biased, as published" in cautions(published, Plan(samples=(2, 2), expand="best"), 2)[0]
    )
    assert cautions(published, Plan(samples=(2, 2)), 2) == []
    assert cautions(resolve("magrpo", {}), Plan(samples=(2, 2), expand="random"), 2) == []
