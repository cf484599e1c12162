import pytest

from motet.config.load import make_config
from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published.translate import TRAINERS, translate
from tests.fixtures.messages import facts

BASE = {
    "agent_model": {"name": "some/model", "torch_dtype": "bfloat16"},
    "dataset": {"name": "openai/openai_humaneval", "train_split": "test[33:163]"},
}


def resolved(section=None, trainer="iac", **top):
    layer = {**BASE, **top, trainer: {"num_train_epochs": 1, **(section or {})}}
    found = translate([Document(layer, {(): "file"})], TRAINERS[trainer], "run")
    return make_config(found.config.data, found.overrides, found.config.places)


def notes(section, trainer="iac"):
    layer = {**BASE, trainer: {"num_train_epochs": 1, **section}}
    return translate([Document(layer, {})], TRAINERS[trainer], "run").notes


@pytest.mark.parametrize(("trainer", "view"), [("iac", "own"), ("maac", "joint")])
def test_an_actor_critic_samples_one_answer_and_traces_nothing(trainer, view):
    config = resolved({"num_turns": 2}, trainer)
    assert config.rollout.samples == (1, 1)
    assert (
        config.algorithm.name,
        config.algorithm.credit.view,
        config.algorithm.credit.gae_lambda,
    ) == (
        trainer,
        view,
        0.0,
    )
    assert config.algorithm.loss.kind == "policy_gradient"


def test_the_published_trace_can_be_laid_over():
    assert resolved(motet={"algorithm": {"gae_lambda": 0.95}}).algorithm.credit.gae_lambda == 0.95


def test_a_critic_of_the_agents_own_model_needs_no_model_of_its_own():
    config = resolved(critic_model={"name": "some/model", "torch_dtype": "bfloat16"})
    assert set(config.models) == {"base"}
    assert (config.critic, config.critic_of) == (
        None,
        {"helper": "critic-helper", "main": "critic-main"},
    )


def test_a_critics_type_is_that_of_the_agents_unless_it_has_its_own():
    assert resolved(critic_model={"name": "other/model"}).models["critic"].dtype == "bfloat16"
    assert resolved(critic_model={"dtype": "fp32"}).models["critic"].dtype == "float32"


def test_one_critic_each_of_the_agents_own_different_models():
    pair = ["a/a", "b/b"]
    config = resolved(agents=pair, critics=pair)
    assert set(config.models) == {"helper", "main"}
    with pytest.raises(
        ConfigError,
        match=facts("file … critics … one model … one device … all critics"),
    ):
        resolved(agents=pair, critics=["b/b", "a/a"])


def test_as_many_critics_as_there_are():
    with pytest.raises(ConfigError, match=facts("critics … got 1 … expected 2 … agent")):
        resolved(critics=["a/a"])
    with pytest.raises(ConfigError, match=facts("critics … got 2 … expected one … all agents")):
        resolved(critics=["a/a", "a/a"], trainer="maac")
    assert resolved(critics=["a/a"], trainer="maac").models["critic"].path == "a/a"


def test_devices_of_critics_are_those_of_their_agents_unless_said():
    both = {"parallel_training": "mp", "agent_devices": ["cuda:0", "cuda:1"]}
    assert "critic" not in resolved({**both, "critic_devices": ["cuda:0", "cuda:1"]}).models
    assert (
        resolved({**both, "critic_devices": ["cuda:2", "cuda:2"]}).models["critic"].device
        == "cuda:2"
    )
    assert (
        resolved({**both, "critic_devices": ["cuda:1"]}, "maac").models["critic"].device == "cuda:1"
    )
    with pytest.raises(ConfigError, match=facts("critic_devices … got 1 … one per agent")):
        resolved({**both, "critic_devices": ["cuda:1"]})


def test_a_value_head_on_the_policy_has_no_model_rate_or_device_of_its_own():
    shared = {"use_separate_critic": False, "critic_learning_rate": 1e-3, "value_clip_range": 0.2}
    config = resolved(shared)
    assert (config.critic.train, config.critic.optimizer, config.algorithm.credit.clip_value) == (
        "policy",
        None,
        0.2,
    )
    assert notes(shared) == ("iac.critic_learning_rate needs use_separate_critic: true",)
    with pytest.raises(
        ConfigError,
        match=facts("critic_model.name … iac.use_separate_critic: false … a head"),
    ):
        resolved(shared, critic_model={"name": "some/model"})
    with pytest.raises(
        ConfigError, match=facts("maac.use_separate_critic … one critic … all agents … drop it")
    ):
        resolved(shared, "maac")


def test_values_are_clipped_on_the_policy_only_and_a_line_says_so():
    assert resolved({"value_clip_range": 0.2}).algorithm.credit.clip_value is None
    assert notes({"value_clip_range": 0.2}) == (
        "iac.value_clip_range needs use_separate_critic: false",
    )


def test_advantages_are_normalised_over_a_step_of_more_than_one():
    four = {"rollout_buffer_size": 4}
    assert resolved({**four, "advantage_normalization": True}).algorithm.credit.whiten is True
    assert resolved({**four, "normalize_advantage": False}).algorithm.credit.whiten is False
    assert (
        resolved(
            {"rollout_buffer_size": 1, "advantage_normalization": True}
        ).algorithm.credit.whiten
        is False
    )


@pytest.mark.parametrize(
    ("keys", "tasks"),
    [
        ({"rollout_buffer_size": 4}, 4),
        ({"rollout_buffer_size": 4, "num_turns": 2}, 2),
        (
            {"rollout_buffer_size": 4, "num_generations": 2},
            2,
        ),  # a buffer counts samples of one agent
        ({"rollout_buffer_size": 4, "mini_batch_size": 1}, 1),
    ],
)
def test_a_step_plays_as_many_tasks_as_fill_an_agents_buffer(keys, tasks):
    assert resolved(keys).train.tasks_per_step == tasks


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"critic_type": "q"},
            "file: iac.critic_type … bias … use v",
        ),
        (
            {"ac_epochs": 4},
            "iac.ac_epochs … without a ratio … one epoch … motet.algorithm.name=ippo",
        ),
        ({"value_head_hidden_dim": 64}, "iac.value_head_hidden_dim … linear … drop it"),
        ({"value_loss_coef": "much"}, "iac.value_loss_coef … 'much' … number"),
    ],
)
def test_what_a_critic_here_cannot_do_is_refused(section, message):
    with pytest.raises(ConfigError, match=facts(message)):
        resolved(section)
