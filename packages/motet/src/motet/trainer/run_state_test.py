from datetime import date

from motet.core import Task
from motet.trainer.run_state import fingerprint

TASKS = [Task("a", {"number": 1, "texts": ["x"]}), Task("b", {"number": 2})]


def test_the_same_tasks_have_one_fingerprint_and_others_another() -> None:
    assert fingerprint(TASKS) == fingerprint(
        [Task("a", {"number": 1, "texts": ["x"]}), Task("b", {"number": 2})]
    )
    others = [
        [],
        TASKS[:1],
        TASKS[::-1],
        [Task("c", TASKS[0].fields), TASKS[1]],
        [Task("a", {"number": 1, "texts": ["y"]}), TASKS[1]],
        [Task("a", {"number": 1.0, "texts": ["x"]}), TASKS[1]],
    ]
    assert len({fingerprint(tasks) for tasks in (TASKS, *others)}) == 7


def test_what_is_no_json_does_not_change_from_process_to_process() -> None:
    """The repr of an object contains its address, and keys may have several types; both get a
    fingerprint."""
    odd = [[Task("a", {"made": object(), 3: "x", (1, 2): "y", "z": 0})] for _ in (1, 2)]  # type: ignore[dict-item]
    assert fingerprint(odd[0]) == fingerprint(odd[1])


def test_dates_and_bytes_of_a_row_count() -> None:
    for one, other in ((date(2026, 11, 1), date(2026, 11, 2)), (b"a", b"b"), ({1: 2}, {1: 3})):
        tasks = [[Task("a", {"of": value, "n": 1})] for value in (one, other)]
        assert fingerprint(tasks[0]) != fingerprint(tasks[1])
        assert fingerprint(tasks[0]) == fingerprint([Task("a", {"of": one, "n": 1})])
