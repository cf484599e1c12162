import json
from pathlib import Path

import pytest

from codejudge import Sandbox
from motet.core import Task
from motet.errors import ConfigError
from motet_tasks.debate.questions import Question, read_row, run_row
from tests.fixtures.messages import facts

CAKES = {
    "question": "Six cakes of 200 dollars each?",
    "answer": "6 * 200 = <<6*200=1200>>1,200 dollars\n#### 1,200",
}
CATS = {
    "uid": "u-1",
    "premise": "Two cats sleep.",
    "hypothesis": "A cat sleeps.",
    "label": 0,
    "reason": "Two are more than one.",
}
ROOT = {"problem": "What is the root of 8?", "answer": r"2\sqrt{2}", "solution": r"$8 = 4 \cdot 2$"}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as found:
        yield found


def program(*lines):
    return {"question": "How many?", "code": "\n    ".join(["def simple_math_problem():", *lines])}


def test_a_row_of_gsm8k_is_a_number_and_the_steps_to_it():
    task = read_row("gsm8k", CAKES)
    assert Question.load(task.fields) == Question(
        CAKES["question"], "1200", "6 * 200 = 1,200 dollars"
    )
    assert task.id == read_row("gsm8k", {**CAKES, "split": "train"}).id
    assert task.id != read_row("gsm8k", {**CAKES, "question": "Seven?"}).id
    assert json.loads(json.dumps(task.fields)) == task.fields


@pytest.mark.parametrize(
    ("label", "gold"),
    [
        (0, "entailment"),
        (1, "neutral"),
        (2, "contradiction"),
        ("neutral", "neutral"),
        ("2", "contradiction"),
    ],
)
def test_a_row_of_anli_is_a_label(label, gold):
    task = read_row("anli", {**CATS, "label": label})
    text = "Premise: Two cats sleep.\nHypothesis: A cat sleeps."
    assert task == Task("u-1", {"text": text, "gold": gold, "worked": "Two are more than one."})


def test_what_rows_need_not_have():
    bare = {key: CATS[key] for key in ("premise", "hypothesis", "label")}
    assert Question.load(read_row("anli", bare).fields).worked == ""
    assert read_row("anli", {**CATS, "reason": None}).fields["worked"] == ""
    assert read_row("maths", {**ROOT, "solution": None}).fields["worked"] == ""


def test_a_row_without_a_gold_label_gives_no_task():
    assert read_row("anli", {**CATS, "label": -1}) is None
    assert read_row("anli", {**CATS, "label": "-1"}) is None


def test_a_row_of_maths_keeps_its_answer_as_it_is():
    assert read_row("maths", ROOT).fields == {
        "text": ROOT["problem"],
        "gold": ROOT["answer"],
        "worked": ROOT["solution"],
    }
    assert read_row("maths", {**ROOT, "answer": r"$\boxed{5}$"}).fields["gold"] == "5"


@pytest.mark.parametrize(
    ("dataset", "row", "what"),
    [
        ("gsm8k", {"question": "?"}, "gsm8k … no field 'answer' … question"),
        (
            "gsm8k",
            {"questions": "?", "answer": "#### 1"},
            "no field 'question' … 'questions'",
        ),
        (
            "gsm8k",
            {"question": " ", "answer": "#### 1"},
            "' ' … 'question' … a string … not empty",
        ),
        (
            "gsm8k",
            {"question": "?", "answer": "1"},
            "answer '1' … #### and a number",
        ),
        (
            "gsm8k",
            {"question": "?", "answer": "#### many"},
            "answer '#### many' … #### and a number",
        ),
        (
            "anli",
            {**CATS, "label": 3},
            "label 3 … 0 or entailment, 1 or neutral, 2 or contradiction, or -1",
        ),
        ("anli", {**CATS, "label": True}, "label True"),
        ("anli", {**CATS, "label": "e"}, "label 'e'"),
        (
            "anli",
            {"question": "?", "answer": "1"},
            "no field 'premise' … environment.dataset … column in data",
        ),
        (
            "maths",
            {"problem": "?", "answer": 5},
            "5 … 'answer' … a string … not empty",
        ),
    ],
)
def test_a_row_of_another_kind_is_refused(dataset, row, what):
    with pytest.raises(ConfigError, match=facts(what)):
        read_row(dataset, row)


@pytest.mark.parametrize(
    ("lines", "gold"),
    [
        (["return 6 * 7"], "42"),
        (["return 0.1 + 0.2"], "0.3"),
        (["return 10 / 3"], "3.333333333"),
        (["total = 0", "for k in range(4):", "    total += k", "return total / 4"], "1.5"),
    ],
)
def test_the_answer_to_a_question_of_tinygsm_is_computed(sandbox, lines, gold):
    assert run_row(program(*lines), sandbox).fields == {
        "text": "How many?",
        "gold": gold,
        "worked": "",
    }


@pytest.mark.parametrize(
    "row",
    [
        program("return 1 / 0"),
        program("return '42'"),
        program("return True"),
        program("return None"),
        program("return float('nan')"),
        program("return float('inf')"),
        program("return 10 ** 30"),
        program("return 10 ** 400"),
        program("return (1, 2)"),
        program("import os", "os._exit(0)"),
        {"question": "How many?", "code": "def another():\n    return 1"},
        {"question": "How many?", "code": "def simple_math_problem(:"},
        {"question": "How many?", "code": "raise SystemExit"},
    ],
)
def test_a_program_without_a_number_gives_no_task(sandbox, row):
    assert run_row(row, sandbox) is None


def test_a_row_of_tinygsm_without_a_program_is_refused(sandbox):
    with pytest.raises(ConfigError, match=facts("tinygsm … no field 'code'")):
        run_row({"question": "How many?"}, sandbox)


# ------------------------------------------------------------ the real rows

DATA = Path(__file__).parents[6] / "shared" / "data"


@pytest.mark.parametrize(
    ("dataset", "file", "count"),
    [
        ("gsm8k", "gsm8k/train.jsonl", 7473),
        ("gsm8k", "gsm8k/test.jsonl", 660),
        ("anli", "anli/dev_r1.jsonl", 1000),
        ("anli", "anli/dev_r2.jsonl", 1000),
    ],
)
def test_every_published_row_is_a_question_of_its_own(dataset, file, count):
    if not (DATA / file).exists():
        pytest.skip(f"needs a copy of the data, shared/data/{file} beside the repository")
    tasks = [read_row(dataset, json.loads(line)) for line in (DATA / file).open()]
    assert len({task.id for task in tasks}) == count
    assert all("<<" not in task.fields["worked"] for task in tasks)
