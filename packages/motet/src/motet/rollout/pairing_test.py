from hypothesis import given
from hypothesis import strategies as st

from motet.rollout.play import joint_actions


def test_aligned_plays_gth_with_gth() -> None:
    assert joint_actions(["a", "b"], 2, "aligned") == ({"a": 0, "b": 0}, {"a": 1, "b": 1})


def test_crossed_plays_all_with_all_last_agent_fastest() -> None:
    expected = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [tuple(picks.values()) for picks in joint_actions(["a", "b"], 2, "crossed")] == expected


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_crossed_with_one_sample_equals_aligned(agents: list[str]) -> None:
    assert (
        joint_actions(agents, 1, "crossed")
        == joint_actions(agents, 1, "aligned")
        == (dict.fromkeys(agents, 0),)
    )


@given(st.integers(1, 4), st.integers(1, 3))
def test_every_sample_takes_part_equally_often(samples: int, agents: int) -> None:
    for pairing, size in (("aligned", samples), ("crossed", samples**agents)):
        actions = joint_actions([str(agent) for agent in range(agents)], samples, pairing)
        assert len(actions) == size
        assert len({tuple(picks.items()) for picks in actions}) == size
        assert all(
            sum(picks["0"] == g for picks in actions) == size // samples for g in range(samples)
        )
