"""Which options of the algorithm a run derives, from what, and which keys it keeps."""

import pytest

from motet.algorithms import resolve
from motet.assembly.derived import with_groups, with_rewards_at_end
from motet.config.load import dump_config, load_config, load_recorded, make_config
from motet.config.schema import check_trainable
from motet.errors import ConfigError
from tests.fixtures.fake_rollouts import Talk
from tests.fixtures.messages import facts, says


class AtEnd(Talk):
    rewards_at_end = True


def config(samples, **algorithm):
    return make_config(
        {
            "name": "x",
            "environment": {"name": "quickstart"},
            "models": {"tiny": {"embedded": {}}},
            "policies": {"p": {"model": "tiny"}},
            "team": {"a": "p", "b": "p"},
            "rollout": {"samples": samples},
            "algorithm": algorithm,
            "train": {"steps": 1},
        }
    )


@pytest.mark.parametrize(
    ("samples", "algorithm", "derived"),
    [
        ([8, 1], {"name": "magrpo"}, "task"),
        ([8, 4, 1], {"name": "marloo"}, "task"),
        ([8, 1], {"name": "mareinforce"}, "round"),
        ([8, 1], {"name": "iac"}, "round"),
        ([8, 2], {"name": "magrpo"}, "round"),
        ([8], {"name": "magrpo"}, "round"),
        ([1, 1], {"name": "magrpo"}, "round"),
        ([8, 1], {"name": "remax"}, "task"),
    ],
)
def test_samples_are_grouped_by_task_where_a_round_has_nothing_to_compare(
    samples, algorithm, derived
):
    found, said = with_groups(config(samples, **algorithm))
    group = found.algorithm.group
    assert group is None or group.group_by == derived
    if derived == "task" and algorithm["name"] != "remax":
        (note,) = said
        assert says(note, f"algorithm.credit.group_by: task … rollout.samples {samples} … turn 1")
        check_trainable(found)
    else:
        assert said == [], "the row of remax says it itself"


@pytest.mark.parametrize("samples", [[8, 1], [8, 8]])
@pytest.mark.parametrize("group_by", ["round", "task"])
def test_a_group_that_the_config_sets_is_kept(samples, group_by):
    given = config(samples, name="magrpo", group_by=group_by)
    assert with_groups(given) == (given, [])
    if (samples, group_by) == ([8, 1], "round"):
        with pytest.raises(ConfigError, match=r"groups of 1 at turn 2.*credit\.group_by: task"):
            check_trainable(given)


@pytest.mark.parametrize(
    ("environment", "samples", "algorithm", "derived"),
    [
        (AtEnd(), [8, 1], {"name": "magrpo"}, False),
        (AtEnd(), [1, 1], {"name": "iac"}, False),
        (AtEnd(), [8], {"name": "magrpo"}, True),
        (AtEnd(), [8, 1], {"name": "maporl"}, True),
        (Talk(), [8, 1], {"name": "magrpo"}, True),
    ],
)
def test_no_reward_is_repeated_where_only_the_end_is_rewarded(
    environment, samples, algorithm, derived
):
    found, said = with_rewards_at_end(config(samples, **algorithm), environment)
    assert found.algorithm.repeat_last_reward is derived
    assert len(said) == (0 if derived else 1)
    for note in said:
        assert says(note, "algorithm.repeat_last_reward: false … AtEnd … rewards_at_end")


@pytest.mark.parametrize("repeats", [True, False])
def test_a_repetition_that_the_config_sets_is_kept(repeats):
    given = config([8, 1], name="magrpo", repeat_last_reward=repeats)
    assert with_rewards_at_end(given, AtEnd()) == (given, [])


def test_one_critic_for_the_team_shares_the_rewards_unless_the_returns_do_not_need_it():
    joint = {"critic_view": "joint", "baseline": "none"}
    assert resolve("magrpo", joint).reward_sharing == "all"
    assert config([8], name="magrpo", **joint).algorithm.reward_sharing == "all"
    assert resolve("magrpo", {**joint, "returns": "last"}).reward_sharing == "own"
    assert resolve("magrpo", {"critic_view": "own", "baseline": "none"}).reward_sharing == "own"
    assert resolve("maac", {"critic_view": "own"}).reward_sharing == "all", "as the row"
    with pytest.raises(ConfigError, match=facts("credit.view joint … shared reward")):
        config([8], name="magrpo", reward_sharing="own", **joint)


def test_what_was_derived_is_recorded_and_what_may_still_be_is_said_to_be_derived(tmp_path):
    plain = config([8, 1], name="magrpo")
    assert "  # credit.group_by: derived\n" in dump_config(plain)
    assert "  # repeat_last_reward: derived\n" in dump_config(plain)
    grouped, _ = with_groups(plain)
    run, _ = with_rewards_at_end(grouped, AtEnd())
    (tmp_path / "config.yaml").write_text(dump_config(run))
    recorded = load_config(tmp_path / "config.yaml")
    assert recorded == run
    assert recorded.algorithm.underived == frozenset()
    assert with_groups(recorded) == (run, [])
    settled, _ = with_rewards_at_end(with_groups(config([8, 8], name="magrpo"))[0], Talk())
    record = dump_config(settled)
    assert "  # credit.group_by: round\n" in record
    assert "  # repeat_last_reward: true\n" in record
    (tmp_path / "config.yaml").write_text(record)
    again = load_config(tmp_path / "config.yaml")
    assert with_rewards_at_end(again, AtEnd()) == (settled, []), "as it was then"
    assert dump_config(load_recorded(tmp_path / "config.yaml")) == record


def test_a_comment_of_somebody_sets_no_key(tmp_path):
    text = dump_config(config([8, 1], name="magrpo")).replace(
        "group_by: derived", "group_by: round"
    )
    (tmp_path / "record.yaml").write_text(text)
    assert "credit.group_by" not in load_config(tmp_path / "record.yaml").algorithm.underived
    (tmp_path / "mine.yaml").write_text(text.replace("expert: null\n", ""))
    assert "credit.group_by" in load_config(tmp_path / "mine.yaml").algorithm.underived


def test_a_run_of_before_has_the_options_that_it_had(tmp_path):
    """Such a record names the options of the row in comments, and the others as keys."""
    plain, _ = with_groups(config([8, 1], name="magrpo", repeat_last_reward=False))
    record = dump_config(plain)
    assert "\n  repeat_last_reward: false\n" in record
    assert "\n    group_by: task\n" in record
    tree, _ = with_groups(config([8, 8], name="maac"))
    (tmp_path / "tree.yaml").write_text(dump_config(tree))
    then = load_config(tmp_path / "tree.yaml").algorithm
    assert (then.reward_sharing, then.repeat_last_reward) == ("all", True)
