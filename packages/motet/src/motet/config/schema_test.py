import pytest
from pydantic import BaseModel, ValidationError

from motet.config import schema
from motet.config.schema import RunConfig, check_trainable
from motet.errors import ConfigError
from motet.settings import Settings
from tests.fixtures.messages import facts


def config(**changes) -> RunConfig:
    sections = {
        "name": "small",
        "environment": {"name": "quickstart"},
        "models": {"tiny": {"embedded": {}}},
        "policies": {"aux": {"model": "tiny"}, "main": {"model": "tiny"}},
        "team": {"aux": "aux", "main": ["main"]},
        "train": {"steps": 1},
    }
    return RunConfig.model_validate({**sections, **changes})


def test_every_field_says_what_it_means():
    records = [
        record
        for record in vars(schema).values()
        if isinstance(record, type) and issubclass(record, Settings)
    ]
    silent = [
        f"{record.__name__}.{name}"
        for record in records
        for name, field in record.model_fields.items()
        if not field.description
    ]
    assert len(records) > 20
    assert silent == []


def test_an_algorithm_is_its_row_with_single_fields_replaced():
    algorithm = config(algorithm={"name": "marloo", "scale": "std"}).algorithm
    assert (algorithm.name, algorithm.credit.baseline, algorithm.credit.scale) == (
        "marloo",
        "leave_one_out",
        "std",
    )
    assert config().algorithm.name == "magrpo"


def away(*players: str) -> dict:
    """Return policies of which these are behind an endpoint."""
    endpoint = {"endpoint": {"base_url": "http://localhost:1/v1", "model": "big"}}
    return {name: endpoint if name in players else {"model": "tiny"} for name in ("aux", "main")}


def test_a_policy_behind_an_endpoint_is_frozen_and_has_no_model():
    team = config(policies=away("aux"))
    assert (team.frozen, set(team.endpoints)) == ({"aux"}, {"aux"})
    assert team.policies["aux"].model is None
    check_trainable(team)


def test_a_team_behind_endpoints_needs_no_models_and_cannot_be_trained():
    team = config(policies=away("aux", "main"), models={})
    with pytest.raises(ConfigError, match=facts("frozen or behind an endpoint … aux, main")):
        check_trainable(team)
    with pytest.raises(ValidationError, match=facts("models.tiny … not used … drop it")):
        config(policies=away("aux", "main"))
    with pytest.raises(ValidationError, match=facts("policies.main … 'tiny' … (none)")):
        config(policies=away("aux"), models={})


def test_critics_and_reward_models_have_the_first_model_of_their_agents():
    team = config(policies=away("aux"), algorithm={"name": "mappo"})
    assert set(team.critic_of.values()) == {"critic-joint"}
    assert team.model_of_critic("critic-joint") == "tiny"
    assert team.model_of_reward == "tiny"
    own = config(policies=away("aux"), algorithm={"name": "ippo"})
    assert own.critic_of == {"main": "critic-main"}
    assert own.model_of_critic("critic-main") == "tiny"


def test_frozen_everything_can_be_evaluated_but_not_trained():
    still = config(
        policies={
            "aux": {"model": "tiny", "train": "frozen"},
            "main": {"model": "tiny", "train": "frozen"},
        }
    )
    assert still.frozen == {"aux", "main"}
    with pytest.raises(
        ConfigError,
        match=facts("every policy … frozen … aux, main … at least one … train: full"),
    ):
        check_trainable(still)


def test_a_group_of_one_cannot_be_trained_with_a_group_baseline():
    with pytest.raises(ConfigError, match=r"rollout\.samples \[4, 1\] gives groups of 1 at turn 2"):
        check_trainable(config(rollout={"samples": [4, 1]}))
    check_trainable(config(rollout={"samples": [4, 1]}, algorithm={"group_by": "task"}))


def test_a_new_adapter_is_made_only_where_lora_trains_and_none_is_loaded():
    def new_adapter(**policy):
        return (
            config(policies={"aux": {"model": "tiny", **policy}, "main": {"model": "tiny"}})
            .policies["aux"]
            .new_adapter
        )

    assert new_adapter() is None
    assert new_adapter(train="lora").rank == 8
    assert new_adapter(train="lora", lora={"rank": 2}).rank == 2
    assert new_adapter(train="lora", adapter="folder") is None


def test_two_full_policies_may_stand_on_one_model():
    assert [policy.train for policy in config().policies.values()] == ["full", "full"]


def test_a_config_is_frozen_and_says_where_it_was_said_only_if_it_was():
    small = config()
    assert isinstance(small, BaseModel)
    assert small.places == {}
    with pytest.raises(ValidationError, match="frozen"):
        small.seed = 3


# ----------------------------------------------------------------------------------------- teachers

KEPT = {"old": {"model": "tiny", "train": "frozen"}}
DISTILLS = {"name": "distillation"}


def taught(teacher="old", player="aux", **changes):
    policies = {"aux": {"model": "tiny"}, "main": {"model": "tiny"}, **KEPT}
    team = {"aux": {"policy": player, "teacher": teacher}, "main": "main"}
    return config(**{"policies": policies, "team": team, "algorithm": DISTILLS, **changes})


def test_a_teacher_is_a_frozen_model_that_the_kl_divergence_reads():
    assert taught().teachers == {"aux": ("old",)}
    assert taught(["old", "old"]).teachers == {"aux": ("old", "old")}
    kl = {"kind": "reward", "coefficient": 0.1}
    assert taught(algorithm={"name": "magrpo", "kl": kl}).teachers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": "oldest"}, facts("team.aux.teacher … 'oldest' … aux, main, old")),
        ({"teacher": "main"}, facts("team.aux.teacher … main … trained … train: frozen")),
        (
            {
                "policies": {
                    "aux": {"model": "tiny"},
                    "main": {"model": "tiny"},
                    "old": {**KEPT["old"], "snapshots": {"of": "main", "every": 1, "keep": 1}},
                }
            },
            facts("team.aux.teacher … old … without snapshots"),
        ),
        (
            {"algorithm": {"name": "magrpo"}},
            facts("team.aux.teacher … magrpo … no KL … distillation"),
        ),
        (
            {"algorithm": {"name": "distillation", "kl": {"reset_every": 2}}},
            facts("team.aux.teacher … drop … reset_every"),
        ),
        (
            {"player": "old", "policies": {"main": {"model": "tiny"}, **KEPT}},
            facts("aux does not learn"),
        ),
        ({"cluster": {"learners": {"gpus": 0}}}, facts("team.aux.teacher … drop cluster")),
        (
            {
                "team": {"aux": "aux", "main": "main"},
                "policies": {"aux": {"model": "tiny"}, "main": {"model": "tiny"}},
            },
            facts("credit.kind none … no agent has one … motet distill"),
        ),
    ],
)
def test_a_teacher_that_teaches_nothing_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        taught(**changes)


def test_a_team_plays_without_its_teachers():
    found = taught().without_teachers()
    assert found.teachers == {}
    assert list(found.policies) == ["aux", "main"]
    plain = config(policies={"aux": {"model": "tiny"}, "main": {"model": "tiny"}})
    assert plain.without_teachers() is plain


# ------------------------------------------------------------------------------------------ critics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"critic": {}},
            facts("magrpo … algorithm.credit.kind: critic … drop critic"),
        ),
        (
            {"algorithm": {"name": "maac"}, "critic": {"train": "policy"}},
            facts("critic … credit.view joint … share … weights"),
        ),
        (
            {
                "algorithm": {"name": "iac"},
                "critic": {"train": "policy"},
                "team": {"aux": ["aux", "main"], "main": "main"},
                "rollout": {"samples": [1, 1]},
            },
            facts("critic … policy per turn"),
        ),
        (
            {"algorithm": {"name": "iac"}, "critic": {"model": "large"}},
            facts("critic.model … 'large' … tiny"),
        ),
        (
            {
                "algorithm": {"name": "maporl"},
                "critic": {"model": "large"},
                "models": {"tiny": {"embedded": {}}, "large": {"path": "large"}},
            },
            facts("scope token … policies … tiny"),
        ),
        (
            {
                "algorithm": {"name": "iac"},
                "policies": {"critic-aux": {"model": "tiny"}, "main": {"model": "tiny"}},
                "team": {"aux": "critic-aux", "main": "main"},
            },
            facts("policies.critic-aux … name … critic"),
        ),
        (
            {"algorithm": {"name": "iac"}, "critic": {"lora": {}}},
            "expected train: lora",
        ),
        (
            {"algorithm": {"name": "iac"}, "critic": {"train": "policy", "model": "tiny"}},
            "which uses its own",
        ),
    ],
)
def test_a_critic_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        config(**changes)


def test_who_has_which_critic():
    shared = {"aux": "main", "main": "main"}
    only_main = {"main": {"model": "tiny"}}
    cold = {"aux": {"model": "tiny", "train": "frozen"}, "main": {"model": "tiny"}}
    assert config().critic_of == {}
    assert config(algorithm={"name": "ippo"}).critic_of == {
        "aux": "critic-aux",
        "main": "critic-main",
    }
    assert config(algorithm={"name": "mappo"}).critic_of == {
        "aux": "critic-joint",
        "main": "critic-joint",
    }
    assert config(algorithm={"name": "ippo"}, policies=only_main, team=shared).critic_of == {
        "aux": "critic-aux",
        "main": "critic-aux",
    }
    assert config(algorithm={"name": "ippo"}, policies=cold).critic_of == {"main": "critic-main"}


def test_a_critic_steps_as_everyone_does_but_for_what_it_says():
    chosen = config(
        algorithm={"name": "ippo"},
        optimizer={"learning_rate": 1e-4, "schedule": "linear"},
        critic={"optimizer": {"learning_rate": 1e-3}},
    ).critic_optimizer
    assert (chosen.learning_rate, chosen.schedule) == (1e-3, "linear")


def test_an_agent_may_write_more_than_it_may_think():
    """Its own settings count together with the common ones."""
    for common, own, good in (
        ({"max_new_tokens": 60}, {"thinking": {"max_tokens": 60}}, False),
        ({"max_new_tokens": 600}, {"thinking": {"max_tokens": 500}}, True),
        ({"thinking": {"max_tokens": 20}}, {"max_new_tokens": 20}, False),
    ):
        team = {"aux": {"policy": "aux", "decode": own}, "main": "main"}
        if good:
            config(decode=common, team=team)
            continue
        with pytest.raises(ValidationError, match=facts("team.aux … thinking.max_tokens … fewer")):
            config(decode=common, team=team)
