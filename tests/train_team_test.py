"""train_team: from rows and functions to a run."""

import json
from pathlib import Path

import pytest

import motet
from motet.commands.main import main
from motet.trainer.notices import AVERAGED_AWAY
from tests.fixtures.messages import facts, says
from tests.small_runs import rows

ROWS = [{"topic": topic} for topic in ("sea", "snow", "sun", "moon")]
SMALL = [
    "models.base.embedded.hidden_size=16", "models.base.embedded.layers=1",
    "models.base.embedded.heads=2", "models.base.embedded.kv_heads=1",
    "decode.max_new_tokens=3", "rollout.samples=[2]", "train.tasks_per_step=2",
    "report.tensorboard=false", "threads=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def writer(row):
    return f"Write about {row['topic']}."


def critic(row):
    return f"Judge {row['topic']}."


def reward(row, texts):
    return len(texts["writer"]) / 10


def feedback(row, texts):
    return f"The writer wrote {len(texts['writer'])} letters."


def team(given=ROWS, agents=None, judge=reward, **more):
    agents = agents or {"writer": writer, "critic": critic}
    overrides = [*SMALL, *more.pop("overrides", ())]
    return motet.train_team(
        given, agents, judge, overrides=overrides, show="silent", **{"steps": 2, **more}
    )


def test_lambdas_and_rows_give_a_run():
    agents = {"writer": lambda row: row["topic"], "critic": lambda row: f"{row['topic']}?"}
    summary = team(agents=agents, judge=lambda row, texts: float(len(texts["critic"]) > 2))
    assert (summary.name, summary.steps) == ("team", 2)
    assert summary.heldout["after"].episodes == 1
    with motet.load_run("runs/team").team() as played:
        assert played.agents == ("writer", "critic")
        assert isinstance(played.ask("writer", "sea"), str)


def test_a_team_says_at_its_end_what_it_reached_and_where_its_games_are(capfd):
    summary = motet.train_team(
        ROWS, {"writer": writer}, reward, steps=2, overrides=SMALL, show="auto"
    )
    before, after = (summary.heldout[when].reward for when in ("before", "after"))
    said = capfd.readouterr().err
    assert f"runs/team, held-out rows: reward {before:.3f} -> {after:.3f}, success " in said
    assert "motet episodes runs/team" in said
    motet.train_team(
        ROWS, {"writer": lambda row: "x"}, lambda row, texts: 1.0, steps=1, overrides=SMALL,
        overwrite=True,
    )  # fmt: skip
    said = capfd.readouterr().err
    assert "agents.writer, reward: no file has these functions, so motet evaluate" in said


def test_an_evaluation_in_which_every_game_fails_is_not_kept(monkeypatch, capsys):
    team()
    broken = ["environment.reward=./broken.py:pay"]
    Path("broken.py").write_text("def pay(row, texts):\n    return None\n")
    monkeypatch.setattr("sys.argv", ["motet", "evaluate", "runs/team", *broken])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "no game of 1 tasks came to its end" in said.err
    assert not list(Path("runs/team").glob("evaluations/*"))


def test_each_agent_learns_from_the_number_that_the_reward_returned_for_it(capsys):
    def game(row, texts):
        won = float(texts["writer"] > texts["critic"])
        return {"writer": won - 0.5, "critic": 0.5 - won}

    agents = {"writer": writer, "critic": critic}
    said = {}
    for sharing, more in (("own", []), ("all", ["algorithm.reward_sharing=all"])):
        overrides = [*SMALL, "seed=3", *more]
        summary = motet.train_team(ROWS, agents, game, steps=1, name=sharing, overrides=overrides)
        learned = motet.load_run(f"runs/{sharing}").samples(step=1)
        assert learned["reward"].abs().max() == 0.5
        said[sharing] = "".join(capsys.readouterr()), summary.warnings, learned["advantage"]
    assert says(said["own"][0], "each agent … own … algorithm.reward_sharing: own")
    assert says(said["all"][0], "mean of all agents' rewards")
    assert (said["own"][2].abs().max() > 0, said["own"][1]) == (True, [])
    assert (said["all"][2].abs().max(), said["all"][1]) == (0.0, [AVERAGED_AWAY])


def test_turns_with_feedback():
    two = ["rollout.samples=[2,1]"]
    team(turns=2, feedback=feedback, overrides=two)
    episode = next(motet.load_run("runs/team").episodes(step=1))
    second = episode.root.outcomes[0].next
    last = second.prompts["critic"][-1].content
    assert "writer answered:" in last
    assert "The writer wrote" in last


def test_rows_may_be_a_path_or_a_dataset_and_held_out_rows_be_named():
    datasets = pytest.importorskip("datasets")
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    team(ROWS, name="list", heldout=ROWS[:2])
    team("rows.jsonl", name="path", heldout=datasets.Dataset.from_list(ROWS[:2]))
    team(datasets.Dataset.from_list(ROWS), name="dataset", heldout=ROWS[:2])
    assert rows(Path("runs/list")) == rows(Path("runs/path")) == rows(Path("runs/dataset"))


def test_the_config_of_a_run_gives_the_same_run_from_the_command_line():
    team(feedback=feedback, name="python")
    motet.train("runs/python/config.yaml", ["name=file"], show="silent")
    assert rows(Path("runs/file")) == rows(Path("runs/python"))


def test_a_model_of_ones_own_trains_an_adapter_for_every_agent(model_folder):
    folder = model_folder("qwen3")
    small = [line for line in SMALL if "embedded" not in line]
    summary = motet.train_team(
        ROWS,
        {"writer": writer, "critic": critic},
        reward,
        model=str(folder),
        steps=2,
        overrides=[*small, "models.base.device=cpu"],
        show="silent",
    )
    assert summary.steps == 2
    run = motet.load_run("runs/team")
    assert {policy.train for policy in run.config.policies.values()} == {"lora"}
    named = json.loads((run.path / "team" / "writer" / "adapter_config.json").read_text())
    assert named["base_model_name_or_path"] == str(folder)
    tensors = [
        (run.path / "team" / agent / "adapter_model.safetensors").read_bytes()
        for agent in ("writer", "critic")
    ]
    assert tensors[0] != tensors[1], "each agent has learned its own adapter"
    assert type(run.model("writer", device="cpu")).__name__.startswith("PeftModel")
    with run.team() as played:
        assert isinstance(played.ask("critic", "sea"), str)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"given": ROWS[:1]}, "rows … 1 row … at least 2"),
        ({"given": []}, "none of the 0 rows"),
        ({"given": ["sea"]}, "row 1 … str … mapping"),
        ({"given": "nothing.jsonl"}, "rows: … nothing.jsonl does not exist … working directory"),
        ({"heldout": "nothing.jsonl"}, "heldout: … nothing.jsonl does not exist"),
        ({"agents": {1: writer}}, "name 1 … string"),
        ({"steps": 0}, "steps is 0 … whole number … 1 or more"),
        ({"steps": "6"}, "steps is '6' … whole number"),
        ({"agents": [writer]}, "mapping: agent -> function"),
        ({"agents": {"a": "prompt"}}, "agents.a … 'prompt' … function"),
        ({"agents": {"a writer": writer}}, "agents … 'a writer' … letters, digits"),
        ({"judge": 1.0}, "reward … 1.0 … function"),
        ({"turns": 0}, "turns … 0 … 1 or more"),
    ],
)
def test_mistakes_are_named(change, said):
    with pytest.raises(motet.ConfigError, match=facts(said)):
        team(**change)
    assert not Path("runs").exists()
