"""Traps of the first afternoon with Motet: each is refused or warned of, with cause and fix.

`motet check`, `--dry-run` and `train` say the same.
"""

import json
import re
import shlex
import shutil
import sys

import pytest

from motet.api.memory_estimate import KNOBS
from motet.commands.main import main
from motet.models.tiny import make_tiny
from motet.settings import TinyModel
from tests.fixtures.messages import says
from tests.fixtures.wide import widely

CONFIG = """\
name: t
threads: 1
environment: ./game.py:Game
models: {small: {embedded: {hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, \
feed_forward: 16, vocabulary: 258}}}
policies: {left: {model: small}, right: {model: small}}
team: {left: left, right: right}
decode: {max_new_tokens: 2}
rollout: {samples: [2]}
train: {steps: 2, tasks_per_step: 2}
report: {tensorboard: false}
"""
GAME = '''
import motet
from points import points


async def talk(task, agents):
    first = await agents.left.ask([{"role": "user", "content": "Say something."}])
    second = await agents.right.ask("Answer: " + first.text)
    third = await agents.left.ask("Go on: " + second.text)
    return {"rewards": points(third.text), "success": True}


class Talk(motet.FreeForm):
    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {}) for k in range(3)]


instance = Talk(talk, agents=["left", "right"])


def made(first="left"):
    return Talk(talk, agents=[first, "right"])


class Game(motet.Environment):
    """Written by somebody who knows OpenAI's API and not asyncio."""

    agents = ("left", "right")
    branches = True

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {}) for k in range(3)]

    def start(self, task, seed):
        return 0

    def observe(self, state):
        return {agent: [{"role": "user", "content": "Hello"}] for agent in self.agents}

    def step(self, state, replies, seed):
        value = points(replies["left"].text)
        return motet.Transition(1, dict.fromkeys(self.agents, value), True, success=1.0)


class Counting(Game):
    """Pays more for the same answer each time."""

    count = 0

    def step(self, state, replies, seed):
        self.count += 1
        return motet.Transition(1, dict.fromkeys(self.agents, self.count), True, success=1.0)


class Broken(Game):
    def step(self, state, replies, seed):
        return replies["middle"]
'''
COMMANDS = widely(["check", "train --dry-run", "train"], keep=["check"])
"""They say the same."""
LONG = "rollout.samples=[2,1,1] algorithm.group_by=task algorithm.repeat_last_reward=false"


@pytest.fixture
def motet(tmp_path, monkeypatch, capsys):
    """Run a command line in a folder with a config and a game: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("COLUMNS", "100")
    for name, text in (
        ("run.yaml", CONFIG),
        ("game.py", GAME),
        ("points.py", "def points(text):\n    return float(len(text) % 2)\n"),
    ):
        (tmp_path / name).write_text(text)

    def run(line):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


# ------------------------------------------------------------------------- turns that never end


@pytest.mark.parametrize("command", ["check", "train --dry-run", "train"])
def test_a_plan_that_is_too_short_for_any_game_is_said_at_once(motet, command):
    code, out, err = motet(f"{command} run.yaml environment=./game.py:instance")
    assert code == 0, err
    fix = "rollout.samples=[2,1,1]" if "dry" in command else "rollout.samples=[2,1]"
    assert (out + err).count(f"such as {fix}, or let step return done=True") == 1
    assert "within rollout.samples [2] (1 turn)" in out + err
    if command == "train":
        assert err.index("within rollout.samples") < err.index("train")


def test_a_plan_that_is_long_enough_gives_no_warning(motet):
    code, out, err = motet(f"check run.yaml environment=./game.py:instance {LONG}")
    assert (code, "warning" in out) == (0, False), err


# ------------------------------------------------------------------------------ ways to name a game


@pytest.mark.parametrize(
    "named", ["instance", "made environment.first=left", "Game rollout.samples=[2]"]
)
def test_an_instance_a_function_and_a_plain_class_are_environments(motet, named):
    code, _, err = motet(f"check run.yaml {LONG} environment=./game.py:{named}")
    assert code == 0, err


def test_an_async_function_is_a_dialogue_of_the_team(motet, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"q": 1}\n{"q": 2}\n')
    line = f"check run.yaml {LONG} environment=./game.py:talk data.train.path=rows.jsonl"
    assert motet(line)[0] == 0
    code, _, err = motet(f"{line} environment.agents=[left,middle]")
    assert (code, says(err, "agents left, middle")) == (2, True)
    code, _, err = motet(f"{line} environment.turns=3")
    assert (code, "environment.turns: unknown key" in err) == (2, True)


def test_an_instance_takes_no_options(motet):
    code, _, err = motet("check run.yaml environment=./game.py:instance environment.level=2")
    assert code == 2
    assert says(err, "environment … level … instance … drop")


# --------------------------------------------------------------------------- errors in user code


@pytest.mark.parametrize("command", widely(["check", "train"], keep=["train"]))
def test_an_exception_in_user_code_ends_with_its_line(motet, command):
    code, _, err = motet(f"{command} run.yaml environment=./game.py:Broken")
    assert code == 1
    last = err.strip().splitlines()[-1]
    assert "most often environment/KeyError. The first: 'middle' (" in last
    assert "game.py:" in last
    assert 'in step: return replies["middle"])' in last
    assert "Traceback" not in err


def test_a_dry_run_finds_an_exception_in_user_code_too(motet):
    code, out, _ = motet("train run.yaml --dry-run environment=./game.py:Broken")
    assert code == 0
    assert says(out, "trial game … environment/KeyError: 'middle'")
    assert says(out, 'in step … return replies["middle"]')


def test_a_check_says_which_rule_of_games_is_broken(motet):
    code, out, _ = motet("check run.yaml environment=./game.py:Counting")
    assert code == 0
    assert says(
        out, "warning: Counting breaks a rule. Rule: two steps from one state return equal … Got: "
    )


def test_a_check_does_not_wait_for_the_rules_of_a_slow_game(motet, monkeypatch):
    monkeypatch.setattr("motet.api.dry_runs.EXAM_SECONDS", 0.0)
    code, out, _ = motet("check run.yaml environment=./game.py:Counting")
    assert code == 0
    assert "breaks a rule" not in out


def test_the_first_fault_is_said_before_the_end(motet):
    _, _, err = motet("train run.yaml environment=./game.py:Broken")
    assert err.index("first fault, in episode") < err.index("error: evaluation before")


@pytest.mark.parametrize("command", widely(["check", "train"], keep=["train"]))
def test_with_traceback_all_of_it_is_shown(motet, command):
    _, _, err = motet(f"{command} run.yaml environment=./game.py:Broken --traceback")
    assert "Traceback (most recent call last)" in err
    assert "KeyError: 'middle'" in err


@pytest.mark.parametrize("command", ["evaluate", "play", "baselines"])
def test_evaluations_and_games_name_the_line_of_an_exception_too(motet, command):
    _, out, err = motet(f"{command} run.yaml environment=./game.py:Broken")
    said = out + err
    assert 'in step: return replies["middle"])' in said
    assert "Traceback" not in said
    if command != "play":
        assert err.index("first fault, in episode") < err.index("evaluate")


@pytest.mark.parametrize("command", ["evaluate", "play"])
def test_evaluations_and_games_show_the_whole_traceback(motet, command):
    _, out, err = motet(f"{command} run.yaml environment=./game.py:Broken --traceback")
    assert "Traceback (most recent call last)" in out + err
    assert "KeyError: 'middle'" in out + err


def test_an_exception_while_a_file_is_loaded_names_its_line(motet, tmp_path):
    (tmp_path / "points.py").write_text("def points(text):\n    return 1\n\n\nnumber = 1 / 0\n")
    code, _, err = motet("check run.yaml")
    assert code == 2
    assert "game.py cannot be imported: ZeroDivisionError" in err
    assert "points.py:5 in <module>: number = 1 / 0" in err


# ---------------------------------------------------------------------- short forms and own modules


@pytest.mark.parametrize(
    "short", ["algorithm=marloo", "reward=./mine.py:high", "environment=game:Game"]
)
def test_a_name_alone_is_the_short_form_of_a_section(motet, tmp_path, short):
    (tmp_path / "mine.py").write_text("def high(task, texts):\n    return 1.0\n")
    code, _, err = motet(f"check run.yaml {short}")
    assert code == 0, err
    key, _, name = short.partition("=")
    out = motet(f"show run.yaml {short}")[1]
    written = name if name in ("marloo", "game:Game") else f"{tmp_path}/mine.py:high"
    assert f"{key}:\n  name: {written}\n" in out


def test_files_that_import_each_other_are_named(motet, tmp_path):
    (tmp_path / "points.py").write_text(
        "from game import Game\n\ndef points(text):\n    return 1\n"
    )
    code, _, err = motet("check run.yaml")
    assert code == 2
    assert says(err, "circular import … game.py -> points.py -> game.py … third file")


# ------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_that_a_file_does_not_have_are_said(motet, tmp_path, command):
    (tmp_path / "rows.jsonl").write_text('{"q": 1}\n{"q": 2}\n{"q": 3}\n')
    line = f"{command} run.yaml {LONG} environment=./game.py:talk data.train.path=rows.jsonl"
    code, out, err = motet(f"{line} data.train.split=train[:9]")
    assert code == 0, err
    assert (out + err).count("[:9]") >= 1
    code, _, err = motet(f"{line} name=other data.train.split=train[5:]")
    assert (code, "selects none of the 3 rows" in err) == (2, True), err


# ------------------------------------------------------------------------------- runs that stop


def test_a_check_advises_no_folder_that_it_deletes(motet):
    _, _, err = motet("check run.yaml environment=./game.py:Broken")
    assert "resume" not in err.lower()
    assert "motet-check" not in err


def test_a_stopped_run_has_a_curve_and_a_summary_that_compare_takes(motet, tmp_path):
    assert motet("train run.yaml")[0] == 0
    stops = "alarms={min_entropy: 100, patience: 1, unless_success: null, stop: true}"
    code, _, err = motet(f"train run.yaml name=stopped '{stops}'")
    assert code == 1, err
    summary = json.loads((tmp_path / "runs" / "stopped" / "summary.json").read_text())
    assert (summary["finished"], summary["name"]) == (False, "stopped")
    assert list(summary["heldout"]) == ["before"]
    assert (tmp_path / "runs" / "stopped" / "curve.png").is_file()
    code, out, err = motet("compare runs/t runs/stopped")
    assert code == 0, err
    assert f"{summary['steps']} (stopped)" in out


# ---------------------------------------------------------------------------------- moved runs


def test_a_run_folder_that_was_moved_still_evaluates_or_names_the_missing_file(motet, tmp_path):
    assert motet("train run.yaml")[0] == 0
    shutil.move(tmp_path / "runs" / "t", tmp_path / "elsewhere")
    assert motet("evaluate elsewhere")[0] == 0
    (tmp_path / "game.py").rename(tmp_path / "gone.py")
    code, _, err = motet("evaluate elsewhere")
    assert code == 2
    assert f"{tmp_path}/game.py does not exist" in err


# -------------------------------------------------------------------------------- trained teams


def test_a_trained_policy_loads_with_plain_libraries_from_anywhere(motet, tmp_path, monkeypatch):
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert motet("train run.yaml 'policies.left={train: lora, lora: {rank: 2}}'")[0] == 0
    team = tmp_path / "runs" / "t" / "team"
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    AutoPeftModelForCausalLM.from_pretrained(team / "left")
    AutoModelForCausalLM.from_pretrained(team / "right")
    for policy in ("left", "right"):
        AutoTokenizer.from_pretrained(team / policy)
        assert "from_pretrained(FOLDER)" in (team / policy / "README.md").read_text()
        modes = {path.stat().st_mode & 0o777 for path in (team / policy).iterdir()}
        assert modes == {0o666 & (team / policy).stat().st_mode}


# ------------------------------------------------------------------------------------- episodes


def test_episodes_are_shown_from_disk_as_a_chat_with_rewards_and_advantages(motet, tmp_path):
    assert motet("train run.yaml")[0] == 0
    (tmp_path / "points.py").unlink()  # nothing is played again
    shutil.rmtree(tmp_path / "runs" / "t" / "models")
    code, out, err = motet("episodes runs/t --step 1 --worst 1")
    assert code == 0, err
    assert out.count("episode 000001:train ") == 1
    assert "user to left: Hello" in out
    assert re.search(r"left \(0, (1, )?advantage ", out)
    assert re.search(r"joint actions? (0, )?1: reward left ", out)
    assert motet("episodes runs/t --evaluation")[1].count("episode evaluate-") == 3
    assert "task train 1" in motet("episodes runs/t --task 'train 1'")[1]
    assert says(motet("episodes runs/t --faults")[1], "no … episode with a fault")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--step 9", "runs/t … no train episodes … step 9 … 1 to 2"),
        ("--task train-1", "no train episode … 'train-1' … 'train 1'"),
        ("--best 1 --worst 1", "best and worst … at most one"),
    ],
)
def test_an_episode_that_is_not_there_is_said(motet, line, said):
    assert motet("train run.yaml")[0] == 0
    code, _, err = motet(f"episodes runs/t {line}")
    assert (code, says(err, said)) == (2, True), err


def test_texts_of_models_cannot_draw_on_the_terminal(motet, tmp_path):
    assert motet("train run.yaml")[0] == 0
    for path in (tmp_path / "runs" / "t" / "episodes").glob("train-*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            for samples in row["root"]["samples"].values():
                samples[0]["text"] = "\x1b[2J[bold]wipe[/bold]"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = motet("episodes runs/t")[1]
    assert "\\x1b[2J[bold]wipe[/bold]" in out
    assert "\x1b[2J" not in out


# --------------------------------------------------------------- contexts, templates and memory


@pytest.fixture
def model(tmp_path):
    """A folder with a model of 256 tokens of context and no chat template."""
    shape = TinyModel(
        hidden_size=16, layers=1, heads=2, kv_heads=1, feed_forward=16, vocabulary=258
    )
    make_tiny(tmp_path / "model", ["a b"], shape, seed=0)
    return "models.small.embedded=null models.small.path=model"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_without_a_chat_template_is_said_once_with_the_key_that_sets_one(
    motet, model, tmp_path, command
):
    code, out, err = motet(f"{command} run.yaml {model}")
    assert code == 0, err
    assert (out + err).count("model small has no chat template") == 1
    assert "models.small.chat_template=FILE.jinja sets a template" in out + err
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<a>"
    (tmp_path / "own.jinja").write_text(template)
    code, out, err = motet(
        f"{command} run.yaml name=own {model} models.small.chat_template=own.jinja"
    )
    assert (code, "no chat template" in out + err) == (0, False), err
    if command == "train":
        saved = tmp_path / "runs" / "own" / "team" / "left" / "chat_template.jinja"
        assert saved.read_text() == template


def test_a_file_that_is_no_chat_template_is_refused(motet, model, tmp_path):
    (tmp_path / "own.jinja").write_text("Hello")
    code, _, err = motet(f"train run.yaml name=own {model} models.small.chat_template=own.jinja")
    assert (code, "own.jinja does not use `messages`; expected a Jinja" in err) == (2, True), err
    code, _, err = motet(f"train run.yaml name=own {model} models.small.chat_template=none.jinja")
    assert (code, "none.jinja cannot be read" in err) == (2, True), err


@pytest.mark.parametrize("command", COMMANDS)
def test_more_new_tokens_than_the_context_are_said_with_the_number_that_fits(motet, model, command):
    code, out, err = motet(f"{command} run.yaml {model} decode.max_new_tokens=300")
    assert code == 0, err
    assert "not after decode.max_new_tokens 300: its first prompt has" in out + err
    assert says(out + err, "model small … context of 256 … decode.max_new_tokens=")


@pytest.mark.parametrize("command", COMMANDS)
def test_more_memory_than_the_device_has_is_said_with_what_helps(
    motet, model, monkeypatch, command
):
    monkeypatch.setattr("motet.api.memory_estimate.memory_of_device", lambda device: 1000)
    code, out, err = motet(f"{command} run.yaml {model}")
    assert code == 0, err
    said = out + err
    assert said.count("the run needs about 0.0 GiB, but cpu has 0.0 GiB. Most of it is") == 1
    assert any(f": use {knob}" in said for knob in KNOBS.values())
