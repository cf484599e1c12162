"""Objects where a config names files: in runs, in run folders, and in another process."""

import json
import sys
from pathlib import Path

import pytest

import motet
import motet_compare
from motet.config.load import load_config
from tests import fork_server
from tests.fixtures.messages import facts, says
from tests.games import Coded, Lottery
from tests.small_runs import ROOT, rows, run_config, steps, summary, weights


def game(**options):
    return Coded(Coded.Options(**options))


def high(task, texts):
    return float(sum(len(text) for text in texts.values()) % 7)


def twice(step):
    return 2.0 * step.advantages_S


def train(config=None, overrides=(), **objects):
    return motet.train(config or run_config(), overrides, show="silent", **objects)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def elsewhere(code, tmp_path):
    """Run code in another process. Return what it prints."""
    done = fork_server.run(
        [sys.executable, "-c", f"import motet\n{code}"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/nowhere", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_environment_a_reward_an_algorithm_a_credit_and_rows_as_objects(tmp_path):
    config = run_config()
    del config["environment"]
    algorithm = motet.Algorithm(name="mine", baseline="leave_one_out", scale="std")
    train(config, environment=game(), reward=high, algorithm=algorithm, credit=twice)
    run = tmp_path / "runs" / "run"
    written = load_config(run / "config.yaml")
    assert written.environment.name.startswith("object:tests.games:Coded@")
    assert written.reward.name.startswith(f"object:{__name__}:high@")
    assert written.algorithm.own_credit.startswith(f"object:{__name__}:twice@")
    assert (written.algorithm.credit.baseline, written.algorithm.credit.scale) == (
        "leave_one_out",
        "std",
    )
    rewards = [one["play/reward"] for one in steps(run)]
    assert any(reward > 1.0 for reward in rewards), "the lottery alone pays at most 1"


def test_an_object_gives_the_same_run_as_its_name():
    train(run_config(name="object"), reward=high, credit=twice)
    names = [f"reward.name={__file__}:high", f"algorithm.credit.function={__file__}:twice"]
    train(run_config(name="file"), names)
    one, other = Path("runs/object"), Path("runs/file")
    assert rows(one) == rows(other)
    assert weights(one) == weights(other)


def test_a_class_is_created_with_its_default_options(tmp_path):
    train(run_config(name="class"), environment=Coded)
    train(run_config(name="name"))
    assert rows(tmp_path / "runs" / "class") == rows(tmp_path / "runs" / "name")


def test_the_completions_of_a_step_are_rows_with_the_advantages_of_an_own_credit(tmp_path):
    own = lambda step: 2.0 * step.advantages_S  # noqa: E731  (no other process can find it)
    train(run_config(name="plain"))
    train(run_config(name="own"), credit=own)
    plain, doubled = motet.load_run("runs/plain"), motet.load_run("runs/own")
    first, second = plain.samples(1), doubled.samples(1, credit=own)
    assert first["text"].tolist() == second["text"].tolist()
    assert (first["advantage"] != 0.0).any()
    assert (second["advantage"] == 2.0 * first["advantage"]).all()
    assert (first["tokens"].map(len) == first["logprobs"].map(len)).all()
    episodes = list(plain.episodes("train", 1))
    roots = first[(first["turn"] == 0) & (first["episode"] == episodes[0].id)]
    for agent, group in roots.groupby("agent"):
        played = episodes[0].root
        assert group["text"].tolist() == [one.text for one in played.samples[agent]]
        paid = {one.picks[agent]: one.rewards[agent] for one in played.outcomes}  # aligned
        assert group["reward"].tolist() == [paid[index] for index in group["index"]]
    shown = "print([one.advantages for one in motet_view.recorded.episodes('runs/own', step=1)])"
    shown = f"import motet_view.recorded\n{shown}"
    assert set(elsewhere(shown, tmp_path).strip()) <= set("[{}, ]"), "the function is not at hand"


def test_credit_is_exact_under_replay_and_seen_by_compare():
    train(run_config(name="plain"))
    train(run_config(name="twice"), credit=twice)
    assert motet_compare.replay("runs/twice", step=2, show="silent").same
    _, other = motet_compare.compare(["runs/plain", "runs/twice"])
    (line,) = other.differs
    said = f"algorithm.credit={{'kind': 'group', 'function': 'object:{__name__}:twice@"
    assert line.startswith(said)


def test_rows_as_objects(tmp_path):
    config = run_config(environment={"name": f"{__file__}:OfRows"})
    data = {"train": [{"number": n} for n in range(4)], "eval": [{"number": 100}]}
    train(config, data=data)
    assert summary(tmp_path / "runs" / "run")["heldout"]["before"]["episodes"] == 1
    assert motet.evaluate("runs/run", show="silent").episodes == 1
    other = {"eval": [{"number": 100}, {"number": 101}]}
    assert motet.evaluate("runs/run", data=other, show="silent").episodes == 2
    code = "try: motet.evaluate('runs/run')\nexcept motet.ConfigError as error: print(error)"
    said = elsewhere(code, tmp_path)
    assert "data.eval.path is the rows of data.eval that a program passed" in said
    assert "data={'eval': rows}" in said


class OfRows(Lottery):
    def task(self, row):
        return motet.Task(str(row["number"]), row)

    tasks = None


def test_another_process_names_what_is_missing(tmp_path):
    train(environment=game(), reward=lambda task, texts: 1.0)
    code = """
import motet_compare
for play in (
    lambda: motet.evaluate("runs/run"),
    lambda: motet.play("runs/run"),
    lambda: motet_compare.crossplay(["runs/run", "runs/run"]),
    lambda: motet.train("runs/run/config.yaml", resume=True),
):
    try:
        play()
    except motet.ConfigError as error:
        print(error)
"""
    lines = elsewhere(code, tmp_path).splitlines()
    assert len(lines) == 4
    for line in lines:
        assert says(line, "environment.name … object Coded of module tests.games … source")
        assert says(line, "reward.name … object")
        assert says(line, "again … motet.evaluate(RUN, environment=..., reward=...)")


def test_another_process_plays_a_function_of_a_module_and_objects_that_are_passed_again(tmp_path):
    (tmp_path / "judges.py").write_text("def one(task, texts):\n    return 1.0\n")
    code = f"""
import json, sys
sys.path.insert(0, ".")
from judges import one
from tests.games import Coded
config = json.loads('''{json.dumps(run_config())}''')
motet.train(config, environment=Coded(Coded.Options()), reward=one, show="silent")
"""
    elsewhere(code, tmp_path)
    again = """
import sys
sys.path.insert(0, ".")
from tests.games import Coded
found = motet.evaluate("runs/run", environment=Coded(Coded.Options()), show="silent")
print(found.reward)
"""
    assert float(elsewhere(again, tmp_path)) == 1.0


def test_a_run_resumes_with_another_object_and_says_so(capsys):
    train(run_config(train={"steps": 2, "tasks_per_step": 2}), environment=game())
    longer = run_config(train={"steps": 3, "tasks_per_step": 2})
    motet.train(longer, resume=True)
    assert says(capsys.readouterr().err, "environment.name was … object Coded of module")
    with pytest.raises(motet.ConfigError, match=r"reward\.name .*None .*object:"):
        train(longer, resume=True, reward=high)


def test_a_run_that_resumes_with_another_credit_function_keeps_the_other_keys_of_credit(capsys):
    train(run_config(), credit=twice)
    steps, scaled = ["train.steps=3"], ["algorithm.credit.scale=std"]
    own = lambda step: step.advantages_S  # noqa: E731
    with pytest.raises(
        motet.ConfigError, match=facts("another config … algorithm.credit.scale was None")
    ):
        motet.train(run_config(), [*steps, *scaled], credit=own, resume=True)
    motet.train(run_config(), steps, credit=own, resume=True)
    said = "algorithm.credit.function was … object twice of module"
    assert says(" ".join(capsys.readouterr().err.split()), said)


@pytest.mark.parametrize(
    ("objects", "error", "said"),
    [
        ({"rewards": high}, TypeError, "'rewards' … 'reward'"),
        ({"environment": object()}, motet.ConfigError, "motet.Environment"),
        ({"algorithm": 3}, motet.ConfigError, "algorithm … int … 'magrpo'"),
        ({"algorithm": "magrop"}, motet.ConfigError, "'magrop' … 'magrpo'"),
        ({"algorithm": {"gama": 1.0}}, motet.ConfigError, "algorithm.gama … unknown … gamma"),
        ({"credit": 3}, motet.ConfigError, "credit … int … function"),
        ({"reward": 3}, motet.ConfigError, "not a reward … function"),
        ({"data": {"test": []}}, motet.ConfigError, "data … 'test' … train and eval"),
        ({"data": [3]}, motet.ConfigError, "data.train … row 1 … int … mapping"),
        ({"callbacks": [high]}, motet.ConfigError, "motet.Callback"),
    ],
)
def test_a_wrong_object_is_named_before_anything_is_written(objects, error, said, tmp_path):
    with pytest.raises(error, match=facts(said)):
        train(**objects)
    assert not (tmp_path / "runs" / "run").exists()


def test_a_mistake_of_a_credit_function_is_not_called_a_learning_rate():
    with pytest.raises(motet.MotetError, match=r"credit function object:.* returned nan") as caught:
        train(credit=lambda step: step.returns_S * float("nan"))
    assert "Lower optimizer" not in str(caught.value)


def test_credit_without_advantages_is_refused():
    config = run_config(algorithm={"name": "madpo"})
    with pytest.raises(motet.ConfigError, match=facts("kind: pairs … no function")):
        train(config, credit=twice)
