"""A trained team in one policy: `motet distill`, and `team.AGENT.teacher`."""

import shutil

import pytest
import yaml

import motet
from motet.errors import ConfigError
from tests.fixtures.messages import facts
from tests.small_runs import LORA, contents, run_config, steps, summary

TAUGHT = ["train.steps=60", "train.tasks_per_step=8", "rollout.samples=[4]"]


@pytest.fixture
def taught(train, tmp_path):
    def run(*overrides, name="taught", **sections):
        team = train(run_config(**sections), runs=tmp_path / "teams")
        motet.distill(
            team, [*TAUGHT, *overrides], name=name, runs=tmp_path, show="silent", overwrite=True
        )
        return team, tmp_path / name

    return run


@pytest.mark.parametrize("sections", [{}, {"policies": LORA}], ids=["full", "lora"])
def test_a_student_comes_to_answer_as_each_agent_does(sections, taught):
    # Their prompts differ, or one policy could not answer as both.
    players = {"a": {"policy": "p", "system": "a"}, "b": {"policy": "q", "system": "b"}}
    train = {"steps": 8, "tasks_per_step": 4}
    team, run = taught(
        "optimizer={learning_rate: 1e-2, schedule: linear}",
        team=players, optimizer={"learning_rate": 3e-2}, train=train, **sections
    )  # fmt: skip
    divergences = [row["learn/kl"] for row in steps(run)]
    assert divergences[0] > 3 * sum(divergences[-5:]) / 5 > 0.0
    assert [path.name for path in (run / "team").iterdir()] == ["student"]
    assert sorted(path.name for path in (team / "team").iterdir()) == ["p", "q"]


def test_a_team_whose_agents_are_alike_has_nothing_to_teach(taught):
    # Nothing has moved at a rate of (nearly) 0, so the student is its teachers from the start.
    _, run = taught("train.steps=2", optimizer={"learning_rate": 1e-30}, name="alike")
    assert max(row["learn/kl"] for row in steps(run)) < 1e-9


def test_a_student_plays_without_its_teachers(taught, tmp_path):
    team, run = taught("train.steps=2")
    shutil.rmtree(team)
    kept = summary(run)["heldout"]["after"]["reward"]
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["models"]["student"]["path"] = str(run / "team" / "student")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert motet.evaluate(run, show="silent").reward == kept


def test_a_stopped_distillation_resumes_to_the_same_weights(taught, tmp_path):
    team, run = taught("train.steps=4", "train.checkpoint_every=2", name="whole")
    options = ["train.tasks_per_step=8", "rollout.samples=[4]", "train.checkpoint_every=2"]
    for steps_, resume in ((2, False), (4, True)):
        motet.distill(
            team, [*options, f"train.steps={steps_}"], name="cut", runs=tmp_path, show="silent",
            resume=resume,
        )  # fmt: skip
    cut, whole = (contents(folder / "team") for folder in (tmp_path / "cut", run))
    assert {**cut, "student/README.md": b""} == {**whole, "student/README.md": b""}


def test_a_student_is_not_told_to_explore_or_to_stay_where_it_began(train, tmp_path):
    reward = {"max_truncated": 0.9, "max_kl": 1.0, "min_entropy": 0.1}
    config = motet.distilled_config(train(run_config(alarms=reward), runs=tmp_path))
    assert config.alarms.max_truncated == 0.9
    assert config.alarms.max_kl is config.alarms.min_entropy is None


def test_adapters_of_a_student_and_its_teachers_share_one_model(train, tmp_path):
    config = motet.distilled_config(train(run_config(policies=LORA), runs=tmp_path))
    assert list(config.models) == ["tiny"]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_partner_of_earlier_weights_plays_with_those_of_the_start(kind, taught):
    past = {"train": "frozen", "snapshots": {"of": "p", "every": 1, "keep": 2}}
    policies = {"p": {"model": "tiny", "train": kind}, "q": {"model": "tiny", **past}}
    _, run = taught("train.steps=1", policies=policies)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["policies"]["q"].get("snapshots") is None
    assert config["team"]["b"]["policy"] == ["q"]


def test_what_cannot_be_distilled_is_refused(train, tmp_path):
    team = train(run_config(), runs=tmp_path)
    with pytest.raises(ConfigError, match=facts("has no config.yaml")):
        motet.distilled_config(tmp_path)
    with pytest.raises(ConfigError, match=facts("team.a.teacher … algorithm magrpo … no KL")):
        motet.distilled_config(team, ["algorithm=magrpo"])
    other = {**run_config()["models"]["tiny"]["embedded"], "vocabulary": 270}
    words = tmp_path / "words"
    models = {"tiny": {"embedded": other, "device": "cpu"}}
    train(run_config(models=models, name="words"), runs=words)
    stranger = words / "words" / "models" / "tiny"
    with pytest.raises(ConfigError, match=facts("team.a.teacher … policy p … another tokenizer")):
        motet.distill(team, model=str(stranger), runs=words, show="silent")
