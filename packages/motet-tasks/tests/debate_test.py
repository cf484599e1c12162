"""Debates with their configs, on local rows and copies of the data, and with a local verifier."""

import json

import pytest

import motet
from motet.api import check, read_config
from motet.config.paths import config_path
from motet.errors import ConfigError
from tests.fixtures.http_servers import ScoreServer, running
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.small_runs import ROOT, TINY, run_config, summary

GSM8K = {
    "question": "Six cakes of 200 dollars each?",
    "answer": "6 * 200 = <<6*200=1200>>1,200\n#### 1,200",
}
ANLI = {
    "uid": "u",
    "premise": "Two cats sleep.",
    "hypothesis": "A cat sleeps.",
    "label": 0,
    "reason": "Two are more.",
}
TINYGSM = {
    "question": "Six cakes of 200 dollars each?",
    "code": "def simple_math_problem():\n    return 6 * 200",
}
CONFIGS = {
    "gsm8k_debate": GSM8K,
    "gsm8k_verifier": GSM8K,
    "anli_debate": ANLI,
    "tinygsm_debate": TINYGSM,
}
DATA = ROOT.parent / "shared" / "data"


def written(folder, row, count=4, name="rows"):
    """Write `count` rows that differ in the question."""
    asked = "premise" if "premise" in row else "question"
    rows = [
        {**row, asked: f"{row[asked]} ({number})"} | ({"uid": str(number)} if "uid" in row else {})
        for number in range(count)
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def overridden(folder, row):
    path = written(folder, row)
    return [f"data.train.path={path}", f"data.eval.path={path}", "sandbox.workers=1"]


@pytest.mark.parametrize("name", widely(CONFIGS, keep=["gsm8k_verifier"]))
def test_a_config_goes_through_and_asks_no_server(tmp_path, name):
    checked = check(config_path(name), overridden(tmp_path, CONFIGS[name]))
    assert checked.summary.steps == 2
    assert checked.summary.heldout["after"].faults == 0
    assert ("verifier" in checked.stand_ins) == (name == "gsm8k_verifier")


@pytest.mark.parametrize(("name", "row"), [*CONFIGS.items(), ("tinygsm_debate", GSM8K)])
def test_the_reference_team_is_right_at_every_turn(tmp_path, name, row):
    constant = (
        ["verifier.base_url=null", "verifier.constant=1.0"] if name == "gsm8k_verifier" else []
    )
    overrides = [*overridden(tmp_path, row), *constant]
    figures = motet.evaluate(config_path(name), overrides, team="reference", show="silent")
    assert (figures.episodes, figures.success, figures.faults) == (4, 1.0, 0)
    assert figures.reward == len(read_config(config_path(name)).rollout.samples)


@pytest.mark.parametrize(
    ("name", "file", "count"),
    [("gsm8k_debate", "gsm8k/test.jsonl", 660), ("anli_debate", "anli/dev_r2.jsonl", 1000)],
)
def test_the_reference_team_is_right_on_all_published_rows(name, file, count):
    if not (DATA / file).exists():
        pytest.skip(f"needs a copy of the data, shared/data/{file} beside the repository")
    path = f"data.eval.path={DATA / file}"
    figures = motet.evaluate(config_path(name), [path], team="reference", show="silent")
    assert (figures.episodes, figures.success, figures.faults) == (count, 1.0, 0)


def test_rows_whose_program_gives_no_number_are_counted(tmp_path):
    path = written(tmp_path, TINYGSM)
    with path.open("a") as rows:
        rows.write(
            json.dumps(
                {"question": "None?", "code": "def simple_math_problem():\n    return 1 / 0"}
            )
            + "\n"
        )
    overrides = [f"data.eval.path={path}", "sandbox.workers=1"]
    figures = motet.evaluate(
        config_path("tinygsm_debate"), overrides, team="reference", show="silent"
    )
    assert (figures.episodes, figures.rows_passed_over, figures.success) == (4, 1, 1.0)


def test_a_row_of_another_kind_is_named(tmp_path):
    overrides = [f"data.eval.path={written(tmp_path, ANLI)}"]
    with pytest.raises(
        ConfigError,
        match=facts("data.eval, row 1 … debate … gsm8k … no field 'question'"),
    ):
        motet.evaluate(config_path("gsm8k_debate"), overrides, team="reference", show="silent")


# --------------------------------------------------------------------------------------- a verifier


def verified(folder, port, **game):
    path = {"path": str(written(folder, GSM8K))}
    return run_config(
        environment={"name": "debate", "score": "verifier", **game},
        data={"train": path, "eval": path},
        models={"tiny": {"embedded": {**TINY, "context": 4096}, "device": "cpu"}},
        team={"alice": "p", "bob": "q"},
        rollout={"samples": [2, 1]},
        algorithm={"group_by": "task"},
        verifier={"base_url": f"http://127.0.0.1:{port}", "retries": 0},
    )


def test_a_verifiers_scores_are_the_rewards_of_a_run_and_gold_answers_its_success(tmp_path):
    with running(ScoreServer(0.75)) as server:
        motet.train(verified(tmp_path, server.server_port), runs=tmp_path, show="silent")
    held_out = summary(tmp_path / "run")["heldout"]["after"]
    assert (held_out["reward"], held_out["success"], held_out["faults"]) == (
        1.5,
        0.0,
        0,
    )  # two turns of 0.75
    path, asked = server.asked[0]
    assert path == "/predict"
    assert [[message["role"] for message in chat] for chat in asked["query_responses"]] == [
        ["user", "assistant"]
    ] * 2


@pytest.mark.parametrize(("score", "cause"), [(2.0, "garbled"), (None, "unreachable")])
def test_a_verifier_that_fails_is_counted_and_no_zero(tmp_path, score, cause):
    with running(ScoreServer(score or 0.5)) as server:
        port = server.server_port
        if score is not None:
            figures = motet.evaluate(verified(tmp_path, port), show="silent")
    if score is None:
        figures = motet.evaluate(verified(tmp_path, port), show="silent")
    assert figures.causes == {f"reward/verifier_{cause}": 4}
    assert figures.reward is None


@pytest.mark.parametrize(
    "section", ["verifier={constant: 0.5}", "expert={base_url: 'http://localhost:1', model: m}"]
)
def test_a_service_that_the_environment_never_asks_is_refused(section):
    name = section.partition("=")[0]
    with pytest.raises(ConfigError, match=facts(f"{name} … quickstart … does not use … drop it")):
        motet.dry_run(config_path("quickstart"), [section])


def test_a_verifier_that_cannot_be_asked_is_refused_before_any_work(tmp_path):
    config = verified(tmp_path, 1)
    config["verifier"]["key_variable"] = "NO_SUCH_KEY"
    with pytest.raises(
        ConfigError, match=r"verifier\.key_variable names NO_SUCH_KEY, which is not set"
    ):
        motet.evaluate(config, show="silent")
    with pytest.raises(
        ConfigError,
        match=facts("none … base_url, folder, constant, ensemble … agents"),
    ):
        motet.evaluate(config | {"verifier": {}}, show="silent")
