import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import ConfigError
from motet.rollout.pairing import joint_actions


def test_aligned_plays_gth_with_gth() -> None:
    assert joint_actions({"a": 2, "b": 2}, "aligned") == ({"a": 0, "b": 0}, {"a": 1, "b": 1})


def test_crossed_plays_all_with_all_last_agent_fastest() -> None:
    expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [
        tuple(picks.values()) for picks in joint_actions({"a": 2, "b": 3}, "crossed")
    ] == expected


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_crossed_with_one_sample_equals_aligned(agents: list[str]) -> None:
    counts = dict.fromkeys(agents, 1)
    assert (
        joint_actions(counts, "crossed")
        == joint_actions(counts, "aligned")
        == (dict.fromkeys(agents, 0),)
    )


@given(st.integers(1, 4), st.integers(1, 3))
def test_every_sample_takes_part_equally_often(samples: int, agents: int) -> None:
    counts = {str(agent): samples for agent in range(agents)}
    for pairing, size in (("aligned", samples), ("crossed", samples**agents)):
        actions = joint_actions(counts, pairing)
        assert len(actions) == size
        assert len({tuple(picks.items()) for picks in actions}) == size
        assert all(
            sum(picks["0"] == g for picks in actions) == size // samples for g in range(samples)
        )


def test_aligned_refuses_unequal_counts_by_name() -> None:
    with pytest.raises(ConfigError, match=r"got a 2, b 3 samples.*crossed"):
        joint_actions({"a": 2, "b": 3}, "aligned")


@pytest.mark.parametrize("name", ["cross", "Aligned", "all", ""])
def test_an_unknown_pairing_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"got pairing '{name}'; expected aligned or crossed: set rollout\.pairing",
    ):
        joint_actions({"a": 1}, name)
