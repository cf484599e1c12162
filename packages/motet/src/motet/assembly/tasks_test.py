import json
from datetime import date

import numpy as np
import pytest

from motet.assembly.tasks import tasks_of
from motet.config.load import make_config
from motet.core import Task
from motet.errors import ConfigError
from tests.fixtures.fake_rollouts import Talk
from tests.fixtures.messages import facts


class Rows(Talk):
    def task(self, row):
        return Task(row["id"], row)


class Own(Rows):
    asked = ()

    def tasks(self, split):
        self.asked += (split,)
        return [Task(f"{split} {number}", {}) for number in range(3)]


def config(**more):
    base = {
        "name": "x",
        "environment": {"name": "quickstart"},
        "models": {"tiny": {"embedded": {}}},
    }
    return make_config(
        {
            **base,
            "policies": {"p": {"model": "tiny"}},
            "team": {"a": "p"},
            "train": {"steps": 1},
            **more,
        }
    )


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"id": f"row {number}"}) + "\n" for number in range(4)))
    return str(path)


def test_an_evaluation_reads_only_what_it_plays(rows):
    found = tasks_of(
        config(data={"train": {"path": "gone.jsonl"}, "eval": {"path": rows}}), Rows(), train=False
    )
    assert set(found) == {"train", "eval"}
    assert [task.id for task in found["eval"]] == ["row 0", "row 1", "row 2", "row 3"]
    assert found.first.id == "row 0"
    with pytest.raises(ConfigError, match=r"gone.jsonl does not exist"):
        found["train"]


def test_a_row_that_is_refused_is_named(rows):
    class Picky(Rows):
        def task(self, row):
            if row["id"] == "row 2":
                raise ConfigError("expected a row that I like")
            return super().task(row)

    with pytest.raises(ConfigError, match=facts("data.eval, row 3 … a row that I like")):
        tasks_of(config(data={"eval": {"path": rows}}), Picky(), train=False)


def test_training_reads_both_before_it_starts(rows):
    with pytest.raises(ConfigError, match=r"gone.jsonl does not exist"):
        tasks_of(
            config(data={"train": {"path": rows}, "eval": {"path": "gone.jsonl"}}),
            Rows(),
            train=True,
        )


def test_tasks_are_made_once():
    environment = Own()
    found = tasks_of(config(evaluation={"tasks": 2}), environment, train=True)
    assert (len(found["train"]), len(found["eval"])) == (3, 2)
    assert environment.asked == ("train", "eval")


def test_tasks_that_are_trained_on_and_held_out_are_counted(rows):
    def shared(train, held_out):
        data = {"train": {"path": rows, "split": train}, "eval": {"path": rows, "split": held_out}}
        return tasks_of(config(data=data), Rows(), train=True).shared

    assert shared("train[1:]", "train[:2]") == 1
    assert shared("train[2:]", "train[:2]") == 0
    assert tasks_of(config(), Own(), train=True).shared == 0
    assert tasks_of(config(data={"train": {"path": rows}}), Rows(), train=True).shared == 0


@pytest.mark.parametrize(("train", "missing"), [(True, "train"), (False, "eval")])
def test_what_nobody_has_is_asked_for(train, missing):
    with pytest.raises(
        ConfigError, match=facts(f"no tasks … data.{missing}.path … data.{missing}.name")
    ):
        tasks_of(config(), Rows(), train=train)


def test_a_row_may_give_several_tasks_or_none_and_the_empty_ones_are_counted(rows):
    class Many(Rows):
        def task(self, row):
            count = int(row["id"].split()[1])
            return [Task(f"{row['id']}, {number}", row) for number in range(count - 1)]

    found = tasks_of(config(data={"eval": {"path": rows}}), Many(), train=False)
    assert [task.id for task in found["eval"]] == ["row 2, 0", "row 3, 0", "row 3, 1"]
    assert found.passed_over == {"eval": 2}


class Named(Talk):
    """An environment that returns two tasks per row, named after the row's `name`."""

    def task(self, row):
        return [Task(f"{row['name']} {part}", row) for part in "ab"]


def called(tmp_path, *names):
    path = tmp_path / "called.jsonl"
    path.write_text("".join(json.dumps({"name": name}) + "\n" for name in names))
    return config(data={"eval": {"path": str(path)}})


def test_an_id_that_an_earlier_row_has_used_gets_the_rows_number(tmp_path):
    found = tasks_of(called(tmp_path, "twice", "once", "twice"), Named(), train=False)["eval"]
    assert [task.id for task in found] == [
        "twice a",
        "twice b",
        "once a",
        "once b",
        "twice a#3",
        "twice b#3",
    ]


def test_tasks_of_one_row_or_of_the_environment_with_one_id_are_refused(tmp_path):
    class Same(Named):
        def task(self, row):
            return [Task(row["name"], {"part": part}) for part in "ab"]

    class Own(Talk):
        def tasks(self, split):
            return [Task("same", {}), Task("same", {"other": 1})]

    with pytest.raises(ConfigError, match=facts("data.eval … several tasks … 'once'")):
        tasks_of(called(tmp_path, "once"), Same(), train=False)
    with pytest.raises(
        ConfigError, match=facts("quickstart … tasks('eval') … several tasks … 'same'")
    ):
        tasks_of(config(), Own(), train=False)


def test_a_dataset_without_any_task_is_refused(rows):
    class Nothing(Rows):
        def task(self, row):
            return []

    with pytest.raises(
        ConfigError,
        match=facts("quickstart … no tasks … 'eval' … none of … rows"),
    ):
        tasks_of(config(data={"eval": {"path": rows}}), Nothing(), train=False)


class Plainly(Talk):
    """An environment whose tasks are named after the row's `name`."""

    def task(self, row):
        return Task(row["name"], row)


def test_a_number_that_tells_rows_apart_is_not_the_id_of_another_row(tmp_path):
    for names, ids in (
        (("a", "a", "a#2"), ["a", "a#2#2", "a#2"]),
        (("a#2", "a", "a"), ["a#2", "a", "a#3"]),
        (("a", "a", "a", "a#2", "a#2"), ["a", "a#2#2", "a#3", "a#2", "a#2#5"]),
    ):
        found = tasks_of(called(tmp_path, *names), Plainly(), train=False)["eval"]
        assert [task.id for task in found] == ids


def test_fields_of_tasks_are_values_that_a_record_gives_back():
    class Own(Talk):
        def tasks(self, split):
            return [Task("one", {"number": np.int64(3), "day": date(2024, 1, 2), "of": (1,)})]

    class Wrong(Talk):
        def tasks(self, split):
            return [Task("one", {"deep": [print]})]

    (task,) = tasks_of(config(), Own(), train=True)["train"]
    assert task.fields == {"number": 3, "day": date(2024, 1, 2), "of": (1,)}
    assert type(task.fields["number"]) is int
    with pytest.raises(ConfigError, match=r"task 'one'.deep\[0\] is of type builtin_function"):
        tasks_of(config(), Wrong(), train=True)
