"""Where the levels of tasks come from, and what is wrong with them."""

from typing import Any

import pytest

from motet.assembly.task_levels import check_weights, task_levels
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.core import Environment, Task
from motet.environments.mixture import Mixture
from motet.errors import ConfigError
from tests.fixtures.fake_rollouts import Talk
from tests.fixtures.messages import facts

TASKS = [Task(f"t{k}", {"grade": grade, "word": "x"}) for k, grade in enumerate((3, 1, 10, 1))]


class Graded(Talk):
    """Says the level of a task itself."""

    def tasks(self, split: str) -> list[Task]:
        return TASKS

    def level(self, task: Task) -> Any:
        return ["easy", "hard"][int(task.fields["grade"]) > 2]


def config(sampling: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    return make_config(
        {
            "name": "x",
            "environment": {"name": "quickstart"},
            "models": {"tiny": {"embedded": {}}},
            "policies": {"p": {"model": "tiny"}},
            "team": {"a": "p"},
            **more,
            "train": {"steps": 1, "task_sampling": sampling or {}, **more.get("train", {})},
        }
    )


def levels(sampling: dict[str, Any], environment: Environment[Any] | None = None) -> Any:
    return task_levels(config(sampling), environment or Talk(), TASKS)


def test_levels_of_a_field_are_numbers_in_their_order():
    found = levels({"kind": "levels", "field": "grade"})
    assert found == {"t0": 1, "t1": 0, "t2": 2, "t3": 0}
    ordered = levels({"kind": "levels", "field": "grade", "order": [10, 3, 1]})
    assert ordered == {"t0": 1, "t1": 2, "t2": 0, "t3": 2}


def test_the_environment_says_the_levels_if_no_field_does():
    found = levels({"kind": "levels", "order": ["easy", "hard"]}, Graded())
    assert found == {"t0": 1, "t1": 0, "t2": 1, "t3": 0}


def test_informative_sampling_reads_the_values_of_a_field():
    found = levels({"kind": "informative", "field": "grade"})
    assert found == {"t0": "3", "t1": "1", "t2": "10", "t3": "1"}
    assert levels({"kind": "informative"}) == levels({}) == {}


def test_the_environments_of_a_mixture_can_be_levels():
    mixture = Mixture({"big": Graded(), "small": Graded()})
    sampling = {"kind": "levels", "field": "environment", "order": ["small", "big"]}
    found = task_levels(config(sampling), mixture, mixture.tasks("train"))
    assert found["small/t0"] == 0
    assert found["big/t0"] == 1


@pytest.mark.parametrize(
    ("sampling", "environment", "said"),
    [
        ({"kind": "levels"}, Talk(), "Talk … define level(task) … task_sampling.field"),
        ({"kind": "levels", "field": "gade"}, Talk(), "'gade' … task t0 … grade, word"),
        (
            {"kind": "levels", "field": "grade", "order": [1, 3, 9]},
            Talk(),
            "names level 9, which no task has … 3, 1, 10",
        ),
        (
            {"kind": "levels", "field": "grade", "order": [1, 3]},
            Talk(),
            "task t2 has level 10 … every level once … 3, 1, 10",
        ),
        ({"kind": "levels"}, Graded(), "hard, easy … no order … expected numbers … order"),
        ({"kind": "levels", "field": "word", "order": ["x"]}, Talk(), "all tasks have level x"),
        ({"kind": "informative", "field": "gade"}, Talk(), "'gade' … grade, word"),
    ],
)
def test_wrong_levels_are_one_line(sampling, environment, said):
    with pytest.raises(ConfigError, match=facts(said)) as raised:
        levels(sampling, environment)
    assert "\n" not in str(raised.value)


def test_a_level_is_a_number_or_a_string():
    class Odd(Graded):
        def level(self, task: Task) -> Any:
            return [1]

    with pytest.raises(ConfigError, match=facts("level of t0 is [1] … a number or a string")):
        levels({"kind": "levels"}, Odd())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"train": {"steps": None, "epochs": 2}}, "train.epochs 2 … set train.steps"),
        ({"train": {"tasks_per_step": "all"}}, "train.tasks_per_step all … set a number"),
        ({"rollout": {"samples": [4], "refill": 1}}, "rollout.refill 1 … set it to 0"),
    ],
)
def test_shares_of_every_step_need_a_number_of_tasks(more, said):
    mixture = Mixture({"one": Graded(), "two": Graded()}, {"one": 1.0, "two": 1.0})
    with pytest.raises(ConfigError, match=facts(said)):
        check_weights(config(**more), mixture)
    check_weights(config(**more), Mixture({"one": Graded(), "two": Graded()}))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"train": {"steps": None, "epochs": 2}}, "levels … train.epochs 2 … set train.steps"),
        ({"train": {"tasks_per_step": "all"}}, "levels … tasks_per_step all … set a number"),
        ({"rollout": {"samples": [4], "refill": 1}}, "levels … rollout.refill 1 … refill: 0"),
    ],
)
def test_a_step_that_draws_its_tasks_has_a_number_of_them(more, said):
    with pytest.raises(ConfigError, match=facts(said)):
        config({"kind": "levels", "field": "grade"}, **more)


def test_keys_of_another_kind_are_refused():
    with pytest.raises(ConfigError, match=facts("threshold … kind: uniform … kind: levels")):
        config({"threshold": 0.5})
    with pytest.raises(ConfigError, match=facts('kind "random" … uniform, informative or levels')):
        config({"kind": "random"})
