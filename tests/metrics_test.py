"""docs/metrics.md lists every metric that is written, and every metric that it lists is written."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import motet
import motet.api
import motet_verifier
from motet.config.paths import config_path
from motet.core.records import as_json
from motet_verifier.answers import LabelledAnswer, as_chat, write_answers
from tests.fixtures.chat_server import ChatServer
from tests.fixtures.http_servers import running
from tests.games import SCRIPT
from tests.small_runs import GAMES, ROOT, TINY, recorded, run_config, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
TWO_TURNS: dict[str, Any] = {"rollout": {"samples": [2, 2]}}
RUNS = {
    "warmed": {"warmup": {"steps": 2, "batch_size": 4}},
    "against earlier weights": {
        "policies": {
            "p": {"model": "tiny"},
            "q": {"model": "tiny", "train": "frozen", "snapshots": {"of": "p"}},
        }
    },
    "refilled": {"rollout": {"samples": [4], "refill": 1}},
    "imitated": {
        **TWO_TURNS,
        "game": {"turns": 2},
        "algorithm": {"name": "dr_mamr", "self_imitation": {}},
    },
    "tasks that teach": {
        "train": {"steps": 1, "tasks_per_step": 2, "task_sampling": {"kind": "informative"}}
    },
    "levels": {
        "train": {
            "steps": 1,
            "tasks_per_step": 2,
            "task_sampling": {"kind": "levels", "field": "number"},
        }
    },
    "mixed": {
        "environment": {
            "name": "mixture",
            "of": {"one": f"{GAMES}:Coded", "two": {"name": f"{GAMES}:Coded", "jackpot": 0.5}},
            "weights": {"one": 1, "two": 1},
        }
    },
    "kl": {
        "algorithm": {
            "name": "magrpo",
            "kl": {"kind": "loss", "coefficient": 0.1, "target": 1.0, "reset_every": 1},
        }
    },
    "lagged": {"train": {"steps": 2, "tasks_per_step": 2, "max_lag": 1, "max_step_kl": 1.0}},
    "ratios of tokens": {
        "train": {"steps": 2, "tasks_per_step": 2, "max_lag": 1},
        "algorithm": {"name": "magrpo", "importance_ratio": "token"},
    },
    "critics": {**TWO_TURNS, "game": {"turns": 2}, "algorithm": {"name": "ippo"}},
    "pairs": {
        "rollout": {"samples": [4]},
        "algorithm": {"name": "madpo", "epochs": 2, "minibatches": 2, "entropy_final": 0.1},
    },
    "replayed pairs": {
        "rollout": {"samples": [4]},
        "algorithm": {
            "name": "madpo",
            "preference": {"replay": {"mode": "all_history"}},
        },
    },
    "learnt reward": {
        "rollout": {"samples": [4]},
        "reward_model": {"tasks": 2, "samples": 4, "optimizer": {"learning_rate": 1e-2}},
    },
    "tools": {
        "models": {"tiny": {"embedded": {**TINY, "context": 1024}, "device": "cpu"}},
        "team": {"a": {"policy": "p", "tools": [f"{GAMES}:now"]}, "b": "q"},
        "rollout": {"samples": [2, 1]},
    },
    "debate": {
        **TWO_TURNS,
        "environment": {"name": f"{GAMES}:Scripted"},
        "policies": {"p": {"model": "tiny"}},
        "team": dict.fromkeys(SCRIPT, "p"),
    },
}
"""Small runs that write every metric together, with one that has a partner behind an endpoint."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    with running(ChatServer()) as server:
        endpoint = {"endpoint": {"base_url": server.url, "model": "big"}}
        partner = {"policies": {"p": {"model": "tiny"}, "q": endpoint}}
        for name, sections in {**RUNS, "partner": partner}.items():
            config = run_config(
                **{
                    "train": {"steps": 2 if "replayed" in name else 1, "tasks_per_step": 2},
                    "evaluation": {"samples": 2},
                    **sections,
                }
            )
            motet.train({**config, "name": name.replace(" ", "_")}, runs=folder, show="silent")
    return {name: folder / name.replace(" ", "_") for name in (*RUNS, "partner")}


def listed(section: str) -> list[str]:
    """Return the names in the first column of all tables of a section."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


NAMES = {
    "AGENT": "a|b|ann|bob|cat",
    "SPEAKER": "ann|bob|cat",
    "LISTENER": "ann|bob|cat",
    "POLICY": "p|q",
    "CRITIC": "critic-[^/]+",
    "MODEL": "tiny",
    "TERM": ".+",
    "T": "[12]",
    "ENVIRONMENT": "one|two",
}
"""Word in capitals on the page -> the names in these runs that it stands for."""


def stands_for(name: str, metric: str) -> bool:
    """Return whether a name of the page is that of the metric."""
    pattern = re.sub("[A-Z]+", lambda found: f"({NAMES[found[0]]})", name)
    return bool(re.fullmatch(pattern, metric))


def compare(names: list[str], written: Iterable[str]) -> None:
    metrics = sorted(written)
    assert [one for one in metrics if not any(stands_for(name, one) for name in names)] == []
    assert [name for name in names if not any(stands_for(name, one) for one in metrics)] == []
    assert len(names) == len(set(names))


def written_metrics(run: Path) -> set[str]:
    files = [run / "metrics.jsonl", run / "warmup.jsonl"]
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    lines = [line for text in texts for line in text.splitlines()]
    return {metric for line in lines for metric in json.loads(line)} - {"step"}


def of_evaluation(metrics: set[str]) -> set[str]:
    return {metric for metric in metrics if metric.startswith("evaluate/")}


def test_the_page_lists_exactly_the_metrics_that_runs_write(runs):
    written = set().union(*map(written_metrics, runs.values()))
    compare(listed("metrics.jsonl"), written - of_evaluation(written))


def test_the_warm_up_has_a_file_and_steps_of_its_own(runs):
    lines = (runs["warmed"] / "warmup.jsonl").read_text(encoding="utf-8").splitlines()
    assert [list(json.loads(line)) for line in lines] == [["step", "warmup/loss/tiny"]] * 2
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    first = (runs["warmed"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert not any(name.startswith("warmup/") for name in json.loads(first))


def test_an_evaluation_writes_every_metric_of_play(runs):
    for run in runs.values():
        written = written_metrics(run)
        assert of_evaluation(written) == {
            metric.replace("play/", "evaluate/", 1)
            for metric in written
            if metric.startswith("play/")
        }


def test_the_page_lists_exactly_the_entries_of_a_summary(runs):
    for name, run in runs.items():
        # `ended_by` comes with a callback that ends a run, which tests/callbacks_test.py plays.
        absent = {"ended_by"} if name == "partner" else {"ended_by", "endpoints"}
        compare([one for one in listed("summary.json") if one not in absent], summary(run))


def test_the_page_lists_exactly_the_entries_of_an_evaluation(runs, tmp_path):
    programs = {"6 * 200?": "return 6 * 200", "No number?": "return 1 / 0"}
    rows = [
        {"question": question, "code": f"def simple_math_problem():\n    {body}"}
        for question, body in programs.items()
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = motet.evaluate(
        config_path("tinygsm_debate"),
        [f"data.eval.path={tmp_path / 'rows.jsonl'}", "sandbox.workers=1"],
        team="reference",
        show="silent",
    )
    again = motet.evaluate(runs["warmed"], show="silent")
    asked = motet.evaluate(runs["partner"], show="silent")  # the answers of the run
    mixed = motet.evaluate(runs["mixed"], show="silent")
    # These come with a control, with tools and with edited code: tests/runs_test.py, tools_test.py
    # and edited_code_test.py play them.
    elsewhere = ("messages", "tools", "code_changed")
    found = [*as_json(judged), *as_json(again), *as_json(asked), *as_json(mixed), *elsewhere]
    compare(listed("Evaluation results"), found)
    assert summary(runs["warmed"])["heldout"]["after"] == recorded(again)


def test_the_page_lists_exactly_the_metrics_of_a_verifier(tmp_path):
    answers = [
        LabelledAnswer(f"q{k}", as_chat(f"question {k}"), text, text, text == "yes", ease=k / 8)
        for k in range(8)
        for text in ("yes", "no")
    ]
    write_answers(tmp_path / "answers.jsonl", answers)
    config = tmp_path / "verifier.yaml"
    config.write_text(json.dumps({"model": {"embedded": TINY, "device": "cpu"}, "threads": 1}))
    found = motet_verifier.train_verifier(
        config,
        tmp_path / "answers.jsonl",
        tmp_path / "verifier",
        ["train=full", "epochs=1", "held_out=0.25"],
        show="silent",
    )
    metrics = json.loads((tmp_path / "verifier" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics == json.loads(json.dumps(found))
    compare(listed("The verifier's training"), metrics)
