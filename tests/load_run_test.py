"""A run folder as Python objects."""

import json
from types import GeneratorType

import pytest

import motet
from tests.fixtures.messages import facts
from tests.small_runs import LORA, run_config, steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    config = run_config(policies={**LORA, "q": {"model": "tiny", "train": "frozen"}})
    motet.train(config, runs=folder, show="silent")
    motet.train(run_config(name="full"), runs=folder, show="silent")
    return folder


def test_metrics_summary_and_config(folder):
    run = motet.load_run(folder / "run")
    metrics = run.metrics
    assert list(metrics.index) == [0, 1, 2]
    rewards = [row["play/reward"] for row in steps(folder / "run")]
    assert metrics["play/reward"].dropna().tolist() == rewards
    assert metrics["evaluate/reward"].notna().tolist() == [True, False, True]
    assert len(run.warmup) == 0
    assert run.summary.steps == 2
    assert run.config.team["a"].policy == ("p",)


def test_a_summary_of_an_earlier_version_is_read(folder):
    path = folder / "full" / "summary.json"
    written = json.loads(path.read_text())
    for key in ("warnings", "alarms", "machine"):
        del written[key]
    for key in ("duplicates", "truncated", "by_turn"):
        del written["heldout"]["after"][key]
    path.write_text(json.dumps(written))
    summary = motet.load_run(folder / "full").summary
    assert not summary.warnings
    assert not summary.machine
    after = summary.heldout["after"]
    assert (after.duplicates, after.by_turn) == (None, [])
    assert after.reward == written["heldout"]["after"]["reward"]


def test_the_losses_of_the_warm_up(tmp_path):
    taught = run_config(environment={"name": "quickstart"}, warmup={"steps": 3, "batch_size": 2})
    taught |= {"team": {"aux": "p", "main": "q"}, "decode": {"max_new_tokens": 4}}
    summary = motet.train(taught, ["train.steps=1"], runs=tmp_path, show="silent")
    assert "<caption>run: 1 steps</caption>" in summary._repr_html_()
    warmup = motet.load_run(tmp_path / "run").warmup
    assert list(warmup.index) == [1, 2, 3]
    assert list(warmup.columns) == ["warmup/loss/tiny"]
    assert warmup["warmup/loss/tiny"].notna().all()


def test_a_notebook_shows_a_small_table(folder, tmp_path):
    run = motet.load_run(folder / "run")
    shown = run._repr_html_()
    assert shown.startswith("<table><caption>run: 2 steps</caption>")
    assert f"<td>{run.summary.heldout['after'].reward:.3f}</td>" in shown
    (tmp_path / "<b>").mkdir()
    (tmp_path / "<b>" / "config.yaml").write_text((folder / "run" / "config.yaml").read_text())
    started = motet.load_run(tmp_path / "<b>")._repr_html_()
    assert started.endswith("&lt;b&gt;&#x27;)</code>: no summary.json yet")


def test_episodes_are_read_when_they_are_needed(folder):
    run = motet.load_run(folder / "run")
    found = run.episodes()
    assert isinstance(found, GeneratorType)
    assert len(list(found)) == 4
    assert [episode.id[:6] for episode in run.episodes(step=2)] == ["000002"] * 2
    assert len(list(run.episodes("evaluate", step=0))) == 4
    with pytest.raises(motet.ConfigError, match=r"no episodes train-000009\.jsonl"):
        run.episodes(step=9)


def test_the_team_answers_and_plays(folder):
    with motet.load_run(folder / "run").team() as team:
        assert team.agents == ("a", "b")
        said = [team.ask("a", "a1 :") for _ in range(8)]
        assert len(set(said)) > 1
        assert team.ask("b", "b:", greedy=True) == team.ask("b", "b:", greedy=True)
        assert team.play(1) == motet.play(folder / "run", task=1, show="silent")
        own = team.play(motet.Task("own", {"number": 7}))
        assert own.task.id == "own"
        with pytest.raises(motet.ConfigError, match=facts("'c' … a, b")):
            team.ask("c", "c:")
        with pytest.raises(motet.ConfigError, match=facts("task … 9 … 0 to 3")):
            team.play(9)


def test_models_are_ready_to_use(folder):
    import torch

    for name, policy, kind in (("run", "p", "PeftModel"), ("run", "q", ""), ("full", "p", "")):
        run = motet.load_run(folder / name)
        model, tokenizer = run.model(policy, device="cpu"), run.tokenizer(policy)
        assert kind in type(model).__name__
        given = torch.tensor([tokenizer.encode("a1 :", add_special_tokens=False)])
        wrote = model.generate(input_ids=given, max_new_tokens=2, do_sample=False)
        assert wrote.shape[1] > given.shape[1]
        assert not model.training
    with motet.load_run(folder / "full").team() as team:
        asked = team.ask("a", "a1 :", greedy=True)
    new = wrote[0, given.shape[1] :]
    assert asked.startswith(tokenizer.decode(new)[:1])


def test_what_is_not_a_run_is_refused(folder):
    with pytest.raises(
        motet.ConfigError, match=facts(f"{folder.name} … no config.yaml … folder of a run")
    ):
        motet.load_run(folder)
    with pytest.raises(motet.ConfigError, match=r"has no policy 'P'.*it has p, q"):
        motet.load_run(folder / "run").model("P")
