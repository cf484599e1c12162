"""The commands of a verifier from data to use, on the embedded debate.

They sample answers, balance them, train a verifier, and train a team with its scores as rewards.
"""

import asyncio
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import motet
import motet.api
import motet_verifier
from motet.assembly.services import verifier_of
from motet.commands.main import main
from motet.config.paths import config_path
from motet.config.sections import VerifierFolder
from motet.core import Message, walk
from motet.errors import ConfigError
from motet.rollout.record import read_episodes
from motet_verifier.answers import LabelledAnswer, as_chat, read_answers, write_answers
from motet_verifier.model import Verifier
from motet_verifier.train import read_all, score_all
from tests.fixtures.messages import says
from tests.fixtures.verifiers import make_verifier_folder

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
DEBATE, TINY = (
    config_path("debate_verifier"),
    config_path("verifiers/tiny"),
)
EXACT = "environment.score=exact verifier=null"


def command(line, monkeypatch, capsys):
    """Return the output of a command, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return printed.out if not ended.value.code else printed.err, ended.value.code or 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders: a warmed-up team, its answers, balanced answers, and a verifier trained on them."""
    folder = tmp_path_factory.mktemp("verifier")
    warm = motet.warmup(
        config_path("debate_magrpo"),
        ["warmup.steps=60", "warmup.batch_size=32"],
        into=folder / "warm",
        show="silent",
    )
    team = [f"models.{name}={{embedded: null, path: {place}}}" for name, place in warm.items()] + [
        "warmup=null"
    ]
    answers, balanced = folder / "answers.jsonl", folder / "balanced.jsonl"
    sampled = motet_verifier.sample_answers(
        DEBATE,
        answers,
        [*team, *EXACT.split()],
        temperatures=(0.8, 1.2),
        games=2,
        tasks=60,
        show="silent",
    )
    evened = motet_verifier.balance_answers(
        answers,
        DEBATE,
        balanced,
        [*team, *EXACT.split()],
        each=1,
        writer="a",
        temperature=2.0,
        show="silent",
    )
    figures = motet_verifier.train_verifier(
        TINY, balanced, folder / "judge", ["epochs=2"], show="silent"
    )
    return folder, team, sampled, evened, figures


def test_data_are_sampled_and_balanced(made):
    folder, _, sampled, evened, _ = made
    answers = read_answers(folder / "answers.jsonl")
    assert len(answers) == sampled["right"] + sampled["wrong"]
    assert (
        sampled["right"] + sampled["wrong"] + sampled["repeated"] + sampled["unparsed"]
        == 60 * 2 * 2 * 2 * 2
    )
    balanced = read_answers(folder / "balanced.jsonl")
    assert len(balanced) == evened["answers"] == 2 * evened["kept"]
    dropped = evened["questions"] - evened["kept"]
    assert max(evened["short_of_wrong"], evened["short_of_right"]) <= dropped
    assert dropped <= evened["short_of_wrong"] + evened["short_of_right"]
    assert sum(one.right for one in balanced) == len(balanced) / 2
    assert {one.source for one in balanced} >= {"sampled", "gold"}


def test_a_verifier_is_a_folder_with_its_metrics(made):
    folder, _, _, evened, figures = made
    assert json.loads((folder / "judge" / "metrics.json").read_text())["auc"] == figures["auc"]
    assert figures["answers"] == 2 * figures["questions"] == 2 * round(0.1 * evened["kept"])
    assert figures["right"] == 0.5
    assert (folder / "judge" / "reliability.png").stat().st_size > 5000
    assert Verifier.load(folder / "judge").facts["metrics"]["auc"] == figures["auc"]


def test_a_team_is_paid_what_the_verifier_says(made, tmp_path):
    folder, team, *_ = made
    episodes = tmp_path / "paid" / "episodes"
    run = motet.train(
        DEBATE,
        [*team, f"verifier.folder={folder / 'judge'}",
         *["name=paid", "train.steps=1", "train.tasks_per_step=2"],
         *["rollout.samples=[2,1]", "evaluation.tasks=4"]],
        runs=tmp_path, show="silent",
    )  # fmt: skip
    assert run.heldout["after"].faults == 0
    verifier = Verifier.load(folder / "judge", device="cpu")
    paid = 0
    for file in sorted(episodes.rglob("*.jsonl*")):
        for episode in read_episodes(file).episodes:
            for _, round_ in walk(episode.root):
                for outcome in round_.outcomes:
                    for agent, pick in outcome.picks.items():
                        chat = (
                            Message("user", f"{episode.task.id};"),
                            Message("assistant", round_.samples[agent][pick].text),
                        )
                        (score,) = verifier.scores([verifier.encode(chat)])
                        assert outcome.rewards[agent] == pytest.approx(score, abs=1e-5)
                        paid += 1
    assert paid >= 16


def test_a_folder_is_looked_at_at_once_and_loaded_with_the_first_answer(tmp_path, monkeypatch):
    folder, loaded, load = make_verifier_folder(tmp_path), [], Verifier.load

    def seen(place, **more):
        loaded.append(place)
        return load(place, **more)

    monkeypatch.setattr(Verifier, "load", seen)
    section = f"verifier.folder={folder}"
    motet.api.dry_run(DEBATE, [section])
    assert loaded == []
    played = motet.evaluate(
        DEBATE, [section, "evaluation.tasks=2"], team="reference", show="silent"
    )
    assert loaded == [str(folder)]  # the verifier scores the reference team
    assert (played.faults, played.episodes) == (0, 2)
    (folder / "head.safetensors").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        motet.api.dry_run(DEBATE, [section])


@pytest.mark.parametrize("reads", ["end", "mean", "lowest"])
def test_a_run_is_paid_what_its_config_reads(reads, tmp_path):
    folder, chat = (
        make_verifier_folder(tmp_path),
        (Message("user", "6 * 7?"), Message("assistant", "two times\nthree\nsix")),
    )
    section = VerifierFolder.model_validate(
        {"folder": str(folder), "reads": reads, "device": "cpu"}
    )
    (score,) = asyncio.run(verifier_of(section, seed=0).score([chat]))
    each = {
        way: Verifier.load(folder, device="cpu", reads=way) for way in ("end", "mean", "lowest")
    }
    expected = {way: one.scores([one.encode(chat)])[0] for way, one in each.items()}
    assert len({round(value, 5) for value in expected.values()}) == 3
    assert score == pytest.approx(expected[reads], abs=1e-6)


def test_a_verifier_that_cannot_be_used_is_found_before_any_game(tmp_path, monkeypatch, capsys):
    folder = make_verifier_folder(tmp_path)
    (folder / "head.safetensors").write_bytes((folder / "head.safetensors").read_bytes()[:-1])
    line = (
        f"verifier choose {DEBATE} {EXACT} warmup=null evaluation.tasks=2 --verifier {folder} "
        "--best-of 1"
    )
    printed, code = command(line, monkeypatch, capsys)
    assert code == 2
    assert "cannot be read" in printed


def test_the_commands_print_figures_and_go_on(made, tmp_path, monkeypatch, capsys):
    folder, team, *_ = made
    words = " ".join(shlex.quote(word) for word in team)
    into = f"--into {tmp_path / 'a.jsonl'}"
    line = (
        f"verifier sample {DEBATE} {words} {EXACT} {into} --tasks 6 --games 1 --temperatures "
        "1.0 --agents a"
    )
    printed, code = command(f"{line} --json", monkeypatch, capsys)
    assert code == 0
    again, _ = command(f"{line} --json", monkeypatch, capsys)
    assert json.loads(again) == json.loads(printed), "what was sampled is not sampled again"
    line = (
        f"verifier balance {tmp_path / 'a.jsonl'} {DEBATE} {words} {EXACT} --into "
        f"{tmp_path / 'b.jsonl'} --each 1"
    )
    printed, code = command(line, monkeypatch, capsys)
    assert code == 0
    assert "short_of_wrong" in printed
    line = (
        f"verifier train {TINY} {folder / 'balanced.jsonl'} epochs=1 --into {tmp_path / 'v'} "
        "--question-only"
    )
    printed, code = command(line, monkeypatch, capsys)
    assert code == 0
    assert "auc" in printed
    loaded = Verifier.load(tmp_path / "v", device="cpu")
    examples, _ = read_all(loaded, read_answers(folder / "balanced.jsonl")[:2], question_only=True)
    assert len(set(score_all(loaded, [example.reading for example in examples], 1000))) == 1, (
        "it sees no answers"
    )


def test_the_configs_expert_writes_for_an_environment_that_asks_for_none(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "run.yaml").write_text(
        f"extends: {config_path('debate_magrpo')}\n"
        "expert: {base_url: 'http://localhost:9', model: x, retries: 0}\n"
    )
    write_answers(
        tmp_path / "a.jsonl", [LabelledAnswer("12+39", as_chat("12+39;"), "41", "41", right=True)]
    )
    line = (
        f"verifier balance {tmp_path / 'a.jsonl'} {tmp_path / 'run.yaml'} --into "
        f"{tmp_path / 'b.jsonl'} --writer expert"
    )
    printed, code = command(f"{line} --each 1 --json", monkeypatch, capsys)
    assert code == 0
    found = json.loads(printed)
    assert (found["rejected"], found["short_of_wrong"], found["kept"]) == ({"unreachable": 4}, 1, 0)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sample {debate} --temperatures hot", "--temperatures … 'hot' … numbers … commas"),
        ("sample {debate} {exact} --temperatures 0 --into {new}", "finite … above 0"),
        ("sample {debate} {exact} --temperatures nan --into {new}", "finite … above 0"),
        ("sample {debate} {exact} --temperatures inf --into {new}", "finite … above 0"),
        ("sample {debate} {exact} --temperatures 1,,2 --into {new}",
         "--temperatures … '1,,2' … numbers … commas"),
        ("sample {debate} {exact} --tasks 0 --into {new}", "tasks … 0 … 1 or more"),
        ("sample {debate} {exact} --into {taken}", "exists … another name"),
        ("sample {debate} {exact} --agents zoe --into {new}", "'zoe' … a, b"),
        ("sample {quickstart} --into {new}", "no question … no grade"),
        ("sample nowhere.yaml", "nowhere.yaml does not exist"),
        ("balance nowhere.jsonl {debate} {exact}", "nowhere.jsonl does not exist"),
        ("balance {answers} {debate} {exact} --writer zoe", "writer … 'zoe' … expert … a, b"),
        ("balance {answers} {debate} {exact} --writer expert", "no expert"),
        ("balance {answers} {debate} {exact} --split eval", "no task"),
        ("balance {answers} {debate} {exact} --each 0", "each … 0 … 1 or more"),
        ("balance {answers} {debate} {exact} --temperature 0", "temperature … 0 … above 0"),
        ("balance {answers} {debate} {exact} --into {answers}",
         "answers.jsonl exists … another name"),
        ("balance {empty} {debate} {exact} --into {new}", "empty has no answers … one per line"),
        ("balance {noise} {debate} {exact} --into {new}", "noise:1 is not an answer"),
        ("train {tiny} {empty} --into {new}", "empty has no answers … one per line"),
        ("train {tiny} {noise} --into {new}", "noise:1 is not an answer"),
        ("train {tiny} {taken} --into {new}", "folder … expected … file"),
        ("train {tiny} {one} --into {new}", "held_out 0.1 of 1 questions … 1 for training … 0"),
        ("train {tiny} {right} --into {new}", "training answers … right … both"),
        ("train {noise} {answers} --into {new}", "noise"),
        ("train {tiny} {answers} --into {taken}", "exists … another name"),
        ("train {tiny} {answers} epoch=1 --into {new}", "epoch … unknown … epochs"),
        ("train {tiny} {answers} held_out=0.001 --into {new}",
         "held_out 0.001 of 60 questions … 60 for training … 0"),
        ("train {tiny} {answers} train=lora --into {new}", "embedded … random weights"),
        ("train {tiny} {tiny} --into {new}", "is not an answer"),
        ("serve {new}", "has no verifier.json"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(made, tmp_path, monkeypatch, capsys, line, complaint):
    right = [one for one in read_answers(made[0] / "answers.jsonl") if one.right]
    write_answers(tmp_path / "right", right)
    write_answers(tmp_path / "one", [replace(one, question="one") for one in right])
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    places = {name: tmp_path / name for name in ("right", "one", "empty", "noise")} | {
        "debate": DEBATE, "tiny": TINY, "exact": EXACT,
        "quickstart": config_path("quickstart"),
        "answers": made[0] / "answers.jsonl", "taken": made[0], "new": tmp_path / "new",
    }  # fmt: skip
    printed, code = command("verifier " + line.format(**places), monkeypatch, capsys)
    assert code in (1, 2)
    assert says(printed.replace("\n", " "), complaint)
    assert "Traceback" not in printed
    assert not Path(places["new"]).exists()
