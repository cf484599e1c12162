"""The commands as a user sees them.

Errors are one line, stopped runs can be resumed, and output is readable.
"""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from motet import load_run
from motet.commands.main import main
from motet.config.load import load_config
from motet.config.paths import config_path
from motet.user_code.blocking import TOGETHER_SECONDS
from tests.fixtures.messages import says
from tests.fork_server import ForkedProcess

REPOSITORY = Path(__file__).parent.parent
GAME = '''
import motet


class Same(motet.Environment):
    """Two agents; 1 for both where what they say begins alike."""

    agents = ("left", "right")
    branches = True

    class Options(motet.Settings):
        highest: int = 3
        tasks: int = 3

    def __init__(self, options):
        self.options = options

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {}) for k in range(self.options.tasks)]

    async def start(self, task, seed):
        return 0

    def observe(self, turn):
        return {agent: f"{agent} {turn}: " for agent in self.agents}

    async def step(self, turn, replies, seed):
        said = [reply.text for reply in replies.values()]
        same = float(said[0][:1] == said[1][:1])
        return motet.Transition(turn + 1, dict.fromkeys(self.agents, same), done=turn == 1, \
success=same)


class Taught(Same):
    def demonstrate(self, task, seed):
        agent = self.agents[seed % 2]
        return motet.Demonstration(agent, f"{agent} 0: ", str(seed % 4))


class Rows(Same):
    tasks = None

    def task(self, row):
        return motet.Task(row["id"], row)


class Nothing: ...
'''
RUN = """\
name: tiny
threads: 1
environment: {name: "./game.py:Same"}
models:
  small: {embedded: {hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, \
feed_forward: 16, vocabulary: 258}}
policies:
  left: {model: small}
  right: {model: small}
team: {left: left, right: right}
decode: {max_new_tokens: 2}
rollout: {samples: [2]}
train: {steps: 2, tasks_per_step: 2}
report: {tensorboard: false}
"""
ROWS = "environment.name=./game.py:Rows data.train.path="
FOLDER = "models.small.embedded=null models.small.path="
LORA = "policies.left.train=lora optimizer.learning_rate=1e-4 policies.left."


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a config, its game, a trained run, and files that are broken in many ways."""
    folder = tmp_path_factory.mktemp("place")
    texts = {
        "game.py": GAME,
        "run.yaml": RUN,
        "typo.yaml": RUN.replace("steps: 2,", "stepz: 2,"),
        "quoted.yaml": RUN.replace("steps: 2,", 'steps: "2",'),
        "list.yaml": "- a\n",
        "half.yaml": "name: [x\n",
        "broken.py": "class X(\n",
        "empty.jsonl": "",
        "half.jsonl": '{"id": "1"}\n{"id": \n',
        "nameless.jsonl": '{"id": "1"}\n{"nr": "2"}\n',
        "thesis/chapter.tex": "x",
        "mute/config.json": '{"model_type": "gpt2"}',
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        call(patch, "train run.yaml")
        call(patch, "train run.yaml name=begun")
        call(patch, "train run.yaml name=other environment.highest=2")
    runs = folder / "runs"
    (runs / "begun" / "summary.json").unlink()
    shutil.rmtree(runs / "begun" / "team")
    shutil.copytree(runs / "tiny" / "models" / "small", folder / "weightless")
    (folder / "weightless" / "model.safetensors").unlink()
    return folder


@pytest.fixture
def motet(place, monkeypatch, capsys):
    """Run a command line in that folder and return (exit code, stdout, stderr)."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("COLUMNS", "100")

    def run(line):
        capsys.readouterr()
        code = call(monkeypatch, line)
        return code, *capsys.readouterr()

    return run


def call(patch, line):
    patch.setattr(sys, "argv", ["motet", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def contents(folder):
    files = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in files
    }


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        # the config
        ("optimizer.learnin_rate=1", "optimizer.learnin_rate … learning_rate"),
        ("train.steps=2.5", "train.steps … 2.5 … a whole number"),
        ("optimizer.learning_rate=fast", "optimizer.learning_rate … 'fast' … a number"),
        ("\"optimizer.learning_rate='5e-6'\"", "optimizer.learning_rate … '5e-6' … a number"),
        ("train.steps", "override 'train.steps' … KEY.KEY=VALUE … train.steps=100"),
        (f"{LORA}lora_dropout=0.1", "policies.left.lora_dropout: unknown key"),
        (f"{LORA}lora.dropout=0.1", "policies.left.lora.dropout … rank, alpha, targets"),
        ("rollout.pairing=cross", "rollout.pairing … 'cross' … 'aligned' or 'crossed'"),
        ("algorithm.name=magroo", "algorithm.name … 'magroo' … 'marloo'"),
        ("evaluation.tasks=0", "evaluation.tasks … 0 … greater than 0"),
        # the players
        ("team.left=smal", "team.left … 'smal' … left, right"),
        ("team.middle=left", "./game.py:Same … left, right … the same agents"),
        (
            "team.left=null policies.left=null",
            "team … right … ./game.py:Same … left, right … the same agents",
        ),
        (
            "policies.left.train=frozen policies.right.train=frozen",
            "every policy … frozen … left, right",
        ),
        # sampling
        ("rollout.samples=[1]", "rollout.samples [1] … groups of 1 … turn 1 … baseline group_mean"),
        (
            "rollout.samples=[4,1] algorithm.group_by=round",
            "rollout.samples [4, 1] … groups of 1 … turn 2 … baseline group_mean",
        ),
        ("rollout.samples=[99,99,2]", "1 + 99 + 9801 = 9901 … rollout.max_nodes 4096"),
        # the environment
        ("environment.name=quikstart", "environment.name … 'quikstart' … 'quickstart'"),
        ("environment.name=./absent.py:Same", "absent.py … does not exist … ./file.py:NAME"),
        ("environment.name=./game.py:Sme", "game.py … 'Sme' … 'Same'"),
        (
            "environment.name=./game.py:Nothing",
            "class Nothing … motet.Environment",
        ),
        (
            "environment.name=./broken.py:X",
            "SyntaxError … '(' was never closed … broken.py, line 1",
        ),
        ("environment.higest=1", "environment.higest … highest"),
        ("environment.highest=many", "environment.highest … 'many' … a whole number"),
        ("reward.name=length", "reward.name … 'length' … package.module:NAME … ./file.py:NAME"),
        ("reward.name=./game.py:rewad", "game.py … 'rewad'"),
        (
            "reward.name=./game.py:Nothing",
            "Nothing … not a reward … a function … class … method score",
        ),
        # the tasks
        ("environment.tasks=0", "Same … 'train' … at least one"),
        ("environment.name=./game.py:Rows", "no tasks … data.train.path … data.train.name"),
        (f"{ROWS}absent.jsonl", "absent.jsonl … does not exist … .jsonl, .json, .csv or .parquet"),
        (f"{ROWS}empty.jsonl", "none of the 0 rows … ./empty.jsonl"),
        (f"{ROWS}half.jsonl", "half.jsonl, line 2 is not JSON"),
        (f"{ROWS}nameless.jsonl", "data.train, row 2 with nr: KeyError: 'id'"),
        ("data.train.path=half.jsonl", "data.train … Same … does not read rows"),
        # the models
        (f"{FOLDER}./absent", "model folder './absent' does not exist"),
        (f"{FOLDER}mute", "model folder './mute' has no tokenizer"),
        (f"{FOLDER}thesis", "model folder './thesis' has no config.json"),
        (f"{FOLDER}weightless", "model.safetensors … model.safetensors.index.json"),
        ("models.small.device=cuda:77", "'cuda:77' … does not exist … auto"),
        ("models.small.dtype=float16", "dtype float16 … not supported … fully trained"),
        (f"{LORA}adapter=./absent", "'./absent' … adapter_model.safetensors"),
        (f"{LORA}lora.targets=[nope]", "policies.left … lora.targets … 'nope' … q_proj"),
        (
            "models.small.embedded.context=8",
            "agent left … 8 tokens … model small … context of 8 tokens",
        ),
        # warm-up
        ("warmup.stepz=3", "warmup.stepz … steps"),
        ("warmup.steps=3", "Same … no demonstrations … no solutions … warm-up"),
    ],
)
def test_a_run_that_cannot_work_is_one_line_and_leaves_the_old_run_alone(
    motet, place, line, complaint
):
    refused(motet, place, f"train run.yaml --overwrite {line}", complaint)
    refused(motet, place, f"train run.yaml name=new {line}", complaint)


def refused(motet, place, line, complaint):
    before = contents(place)
    code, out, err = motet(line)
    assert says(err.replace(f"{place}/", "./"), complaint)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert contents(place) == before


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("train typo.yaml", "typo.yaml:12 … train.stepz … steps"),
        ("train quoted.yaml", "quoted.yaml:12 … train.steps … '2' … a whole number"),
        (
            "train absent.yaml",
            "absent.yaml … does not exist … a config file … name of a config",
        ),
        ("train list.yaml", 'list.yaml … ["a"] … keys and values'),
        ("train half.yaml", "half.yaml:2: not YAML"),
        (
            "train thesis",
            "thesis … config.yaml … config file … run folder",
        ),
        ("train run.yaml --dry-run train.stepz=2", "train.stepz … steps"),
        # the run folder
        (
            "train run.yaml",
            ("runs/tiny … exists … a new name … --resume … --overwrite … deletes it"),
        ),
        (
            "train run.yaml name=thesis --runs . --overwrite",
            "thesis … not a run folder",
        ),
        ("train run.yaml --runs list.yaml", "list.yaml … a file … a folder"),
        (
            "train run.yaml name=new --resume",
            "runs/new … no run to resume … without --resume",
        ),
        (
            "train run.yaml --resume seed=3",
            "seed … 0 … 3",
        ),
        (
            "train run.yaml --resume --overwrite",
            "--resume and --overwrite … at most one",
        ),
        ("train run.yaml --seeds 0 --resume --overwrite", "got --resume and --overwrite"),
        (
            "train run.yaml --seeds x",
            "--seeds … 'x' … different whole numbers … 0,1,2",
        ),
        ("train run.yaml --seeds 0,0", "--seeds … '0,0' … different whole numbers"),
        # warm-up
        (
            "warmup run.yaml",
            "warmup … warmup: {steps: 300}",
        ),
        (
            "warmup run.yaml warmup.steps=3",
            "Same … no demonstrations … no solutions … warm-up",
        ),
        (
            (
                "warmup run.yaml environment.name=./game.py:Taught warmup.steps=3 --into "
                "runs/tiny/models"
            ),
            "exists: move it away",
        ),
        # reading a run
        ("evaluate runs/begun", "runs/begun has no trained team"),
        (
            "evaluate runs/absent",
            "runs/absent … does not exist … a config file … name of a config",
        ),
        (
            "evaluate run.yaml --team reference",
            "Same … no solutions … solve(state, seed)",
        ),
        ("messages runs/tiny --shuffle-turn 1", "shuffle_turn … 1 … one turn"),
        (
            "messages run.yaml rollout.samples=[2,2] --shuffle-turn 2",
            "shuffle_turn … 2 … 1 to 1",
        ),
        ("play runs/tiny --task 3", "task … 3 … 0 to 2"),
        (
            "play runs/tiny --interactive middle",
            "'middle' … left, right",
        ),
        ("crossplay runs/tiny", "crossplay … 1 run folders … at least two"),
        ("crossplay runs/tiny run.yaml", "run.yaml … run folder"),
        ("crossplay runs/tiny runs/begun", "runs/begun has no trained team"),
        (
            "crossplay runs/tiny runs/other",
            "runs/other … another game … runs/tiny … environment.highest=2",
        ),
        ("compare runs/tiny", "compare … 1 run folders … at least two"),
        (
            "compare runs/tiny runs/begun",
            "runs/begun … summary.json … a run that finished",
        ),
    ],
)
def test_a_command_that_cannot_work_is_one_line_and_touches_nothing(motet, place, line, complaint):
    refused(motet, place, line, complaint)


def test_a_missing_library_is_named_before_the_old_run_is_deleted(motet, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    line = "train run.yaml --overwrite report.wandb={}"
    refused(
        motet,
        place,
        line,
        'report.wandb … not installed … pip install "motet[wandb]"',
    )


def test_words_that_are_no_command_are_a_usage_error(motet, place):
    before = contents(place)
    for line in (
        "train",
        "train run.yaml --frobnicate",
        "evaluate runs/tiny --team other",
        "trian run.yaml",
    ):
        code, _, err = motet(line)
        assert (code, "Traceback" in err) == (2, False)
    assert contents(place) == before


def test_numbers_are_read_as_what_they_are(motet):
    code, out, _ = motet(
        "show run.yaml optimizer.learning_rate=5e-6 algorithm.turn_weights=[1.5,0.5]"
    )
    assert code == 0
    assert "learning_rate: 5.0e-06" in out
    assert "turn_weights: [1.5, 0.5]" in out


# ------------------------------------------------------------------------------------------- Ctrl-C


def stopped(folder, line, *at):
    """Run the command. Send SIGINT each time the next of `at` appears in a line of its stderr.

    The first one comes twice, as by `timeout`.
    """
    process = ForkedProcess(
        [sys.executable, "-c", "from motet.commands.main import main; main()", *shlex.split(line)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = ""
    for text in at:
        for said_line in process.stderr:
            said += said_line
            if text in said_line:
                time.sleep(2 * TOGETHER_SECONDS * (text != at[0]))
                process.send_signal(signal.SIGINT)
                if text == at[0]:
                    time.sleep(TOGETHER_SECONDS / 10)
                    process.send_signal(signal.SIGINT)
                break
    said += process.stderr.read()
    assert "Traceback" not in said, said
    return process.wait(timeout=60), said


def command_in(said):
    return re.search(r"with: motet (.*)", said)[1]


def test_ctrl_c_ends_after_the_step_and_the_printed_command_goes_on(motet, tmp_path, place):
    code, said = stopped(
        place, f"train run.yaml name=long train.steps=60 --runs {tmp_path}", "train "
    )
    assert code == 130
    step = int(re.search(r"stopped after step (\d+) of 60, checkpoint written", said)[1])
    assert (tmp_path / "long" / "checkpoints" / f"step-{step:06d}").is_dir()
    assert len(steps_of(tmp_path / "long")) == step
    code, out, _ = motet(command_in(said))
    assert code == 0
    assert "60 steps" in out
    assert steps_of(tmp_path / "long") == list(range(1, 61))


def steps_of(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["step"] for row in rows if any(name.startswith("learn/") for name in row)]


def test_ctrl_c_in_the_warm_up_leaves_no_half_model(motet, tmp_path, place):
    line = (
        "train run.yaml name=warm environment.name=./game.py:Taught warmup.steps=300 --runs "
        f"{tmp_path}"
    )
    code, said = stopped(place, line, "warmup ")
    assert code == 130
    assert says(said, "stopped in the warm-up … no agent … rewards … Resume … motet")
    assert {path.name for path in (tmp_path / "warm").iterdir()} <= {
        "code.json",
        "config.yaml",
        "metrics.jsonl",
        "warmup.jsonl",
        "models",
        "summary.json",
        "curve.png",
        "tensorboard",
    }
    assert not list((tmp_path / "warm").glob("models/*"))
    shutil.copytree(tmp_path / "warm", tmp_path / "stopped")
    code, out, err = motet(f"compare {tmp_path}/stopped {tmp_path}/warm --json")
    assert code == 0, err
    assert [(row["steps"], row["finished"], row["after"]) for row in json.loads(out)] == [
        (0, False, None)
    ] * 2
    run = load_run(tmp_path / "warm")
    assert (run.summary.finished, run.summary.heldout) == (False, {})
    assert (len(run.metrics), len(run.warmup) > 0) == (0, True)
    code, _, err = motet(f"evaluate {tmp_path}/warm")
    assert (code, "has no trained team" in err) == (2, True)
    code, out, _ = motet(f"{line} --resume")
    assert code == 0
    assert "2 steps" in out
    assert command_in(said) == f"train {tmp_path}/warm/config.yaml --resume --runs {tmp_path}"


def test_ctrl_c_ends_an_environment_that_sleeps_without_await(tmp_path, place):
    slow = (
        GAME
        + """

class Slow(Same):
    async def step(self, turn, replies, seed):
        import sys, time
        print("thinking", file=sys.stderr, flush=True)
        time.sleep(600)

    async def close(self, turn):
        import sys
        print("closed", file=sys.stderr, flush=True)
"""
    )
    (tmp_path / "slow.py").write_text(slow)
    line = f"train run.yaml environment.name={tmp_path}/slow.py:Slow --runs {tmp_path}"
    code, said = stopped(place, line, "thinking")
    assert code == 130
    assert said.count("thinking") == 1
    assert "closed" in said.partition("thinking")[2]
    assert "esume with: motet train" in said.splitlines()[-1]


def test_a_second_ctrl_c_stops_at_once(tmp_path, place):
    slow = (
        GAME
        + """

class Slow(Same):
    async def step(self, turn, replies, seed):
        import os, time
        try:
            os.write(2, b"thinking\\n")
            time.sleep(600)
        except BaseException:
            os.write(2, b"holding on\\n")  # print writes the end of the line apart
            time.sleep(600)
"""
    )
    (tmp_path / "slow.py").write_text(slow)
    line = f"train run.yaml environment.name={tmp_path}/slow.py:Slow --runs {tmp_path}"
    code, said = stopped(place, line, "thinking", "holding on")
    assert code == 130
    assert says(said, "stopping … second signal … without a checkpoint")
    assert says(said.splitlines()[-1], "stopped at once … last checkpoint … motet train")


# ------------------------------------------------------------------------------------------- output


def test_a_dry_run_says_what_a_step_costs_and_makes_nothing(motet, place):
    before = contents(place)
    code, out, _ = motet("train run.yaml name=new rollout.samples=[4,4] --dry-run")
    assert (code, contents(place)) == (0, before)
    cells = dict(re.findall(r"│ ([a-z][^│]*?) +│ +([\d.,]+) │", out))
    # two tasks: 1 + 4 nodes each, 4 answers of both agents in each node, as many joint actions
    assert (cells["nodes (rounds of play)"], cells["completions"]) == ("10", "80")
    assert (cells["reward calls (joint actions)"], cells["tokens (maximum)"]) == ("40", "160")
    assert float(cells["total"]) > 0
    assert "max_nodes: 4096" in out
    assert says(out, "rewards … each agent … own … algorithm.reward_sharing: own")


def test_a_run_says_what_it_derived_records_it_and_is_resumed_by_either_config(motet, tmp_path):
    line = f"rollout.samples=[2,1] name=derived evaluation.every=0 --runs {tmp_path}"
    derived = "algorithm.credit.group_by: task, because"
    code, out, _ = motet(f"train run.yaml {line} --dry-run")
    assert (code, out.count(derived)) == (0, 1)
    assert says(out, f"{derived} … rollout.samples [2, 1] … turn 1")
    code, out, said = motet(f"train run.yaml {line} train.steps=1")
    assert (code, "".join((out, said)).count(derived)) == (0, 1)
    record = tmp_path / "derived" / "config.yaml"
    assert "\n    group_by: task\n" in record.read_text()
    assert motet(f"train run.yaml {line} train.steps=2 --resume")[0] == 0
    code, out, said = motet(f"train {record} train.steps=3 --resume --runs {tmp_path}")
    assert (code, derived in "".join((out, said))) == (0, False), "the record says it"


def test_what_show_prints_is_the_same_run(motet, place, tmp_path):
    code, out, _ = motet("show run.yaml train.steps=7 team.left.decode.top_k=3")
    (tmp_path / "again.yaml").write_text(out)
    assert code == 0
    assert load_config(tmp_path / "again.yaml") == load_config(
        place / "run.yaml", ["train.steps=7", "team.left.decode.top_k=3"]
    )
    assert motet("show runs/tiny")[1] == (place / "runs" / "tiny" / "config.yaml").read_text()


def test_seeds_are_runs_of_their_own_side_by_side(motet, tmp_path):
    code, out, _ = motet(f"train run.yaml --seeds 0,1 --runs {tmp_path}")
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny-seed0", "tiny-seed1"]
    assert f"motet compare {tmp_path}/tiny-seed0 {tmp_path}/tiny-seed1" in out
    code, out, _ = motet(f"compare {tmp_path}/tiny-seed0 {tmp_path}/tiny-seed1")
    assert re.search(r"│ tiny-seed0 │ +0 │ +2 │", out)
    assert re.search(r"│ tiny-seed1 │ +1 │ +2 │", out)
    refusal = motet(f"train run.yaml --seeds 1,2 --runs {tmp_path}")
    assert refusal[0] == 2
    assert f"{tmp_path}/tiny-seed1 exist; expected new names: --resume continues" in refusal[2]
    assert not (tmp_path / "tiny-seed2").exists()


def test_a_check_goes_through_and_leaves_nothing(motet, place):
    before = contents(place)
    code, out, _ = motet("check run.yaml")
    assert (code, contents(place)) == (0, before)
    assert says(out, "run.yaml … two steps … succeeded")


def test_a_warm_up_of_its_own_says_how_to_start_from_it(motet, tmp_path):
    taught = "environment.name=./game.py:Taught"
    code, out, _ = motet(f"warmup run.yaml {taught} warmup.steps=2 --into {tmp_path}")
    assert code == 0
    assert f"small is in {tmp_path}/small" in out
    start = re.search(r"train from it with: motet (.*)", out)[1]
    assert motet(f"{start} {taught} --dry-run")[0] == 0


@pytest.mark.parametrize("more", ["", "--greedy"])
def test_an_evaluation_in_json_is_one_object(motet, more):
    code, out, _ = motet(f"evaluate runs/tiny --json {more}")
    assert (code, out.count("\n")) == (0, 1)
    figures = json.loads(out)
    assert {"episodes", "faults", "reward", "final_reward", "success", "terms"} <= set(figures)
    assert (figures["episodes"], figures["faults"]) == (3, 0)
    assert figures["terms"]["success"] == figures["success"] == figures["reward"]


def test_an_evaluation_as_a_table_has_the_same_figures(motet):
    figures = json.loads(motet("evaluate runs/tiny --json")[1])
    code, out, _ = motet("evaluate runs/tiny")
    assert code == 0
    assert re.search(rf"│ success +│ +{figures['success']:.3f} │", out)
    assert re.search(r"│ episodes +│ +3 │", out)
    # Of games of one turn that are played once, these repeat the reward and the success.
    assert figures["final_reward"] == figures["reward"]
    assert figures["pass_at"] == {"1": figures["success"]}
    assert "final_reward" not in out
    assert "pass@1" not in out
    assert "pass@2" in motet("evaluate runs/tiny --samples 2")[1]


@pytest.mark.parametrize("name", ["quickstart", "relay"])
def test_the_reference_team_succeeds_everywhere(motet, name):
    config = config_path(name)
    code, out, _ = motet(
        f"evaluate {config} evaluation.tasks=20 sandbox.workers=1 --team reference --json"
    )
    figures = json.loads(out)
    assert (code, figures["episodes"], figures["faults"], figures["success"]) == (0, 20, 0, 1.0)


def test_a_team_can_be_watched(motet):
    code, out, _ = motet("play runs/tiny --task 1")
    assert code == 0
    order = [
        "task eval 1",
        "turn 1",
        "prompt to left: left 0:",
        "left: ",
        "prompt to right: ",
        "reward left",
    ]
    assert [out.index(part) for part in order] == sorted(out.index(part) for part in order)


def test_a_person_takes_part_by_typing(motet, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello there\n"))
    code, out, _ = motet("play runs/tiny --interactive left")
    assert code == 0
    assert "left> " in out
    assert "left: hello there\n" in out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = motet("play runs/tiny --interactive left")
    assert code == 2
    assert says(err, "input ended … game")


def test_crossplay_is_a_matrix_in_a_table_in_json_and_as_a_picture(motet, tmp_path):
    code, out, _ = motet(f"crossplay runs/tiny runs/tiny --json --plot {tmp_path}/cross.png")
    found = json.loads(out)
    assert (code, found["runs"], found["agents"]) == (
        0,
        ["runs/tiny", "runs/tiny"],
        ["left", "right"],
    )
    assert [len(row) for row in found["success"]] == [2, 2]
    assert (tmp_path / "cross.png").stat().st_size > 1000
    code, out, _ = motet("crossplay runs/tiny runs/tiny --tasks 1")
    assert code == 0
    assert says(out, "left … row … right … column")
    assert "games per cell, with 95 % intervals" in out


def test_compare_names_what_differs(motet):
    code, out, _ = motet("compare runs/tiny runs/other")
    assert code == 0
    assert "environment.highest=2" in out
    rows = json.loads(motet("compare runs/tiny runs/other --json")[1])
    assert [row["run"] for row in rows] == ["runs/tiny", "runs/other"]
    assert rows[1]["differs"] == ["environment.highest=2"]


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "warmup",
        "evaluate",
        "play",
        "crossplay",
        "messages",
        "compare",
        "show",
        "check",
        "verifier serve",
        "view",
    ],
)
def test_every_command_teaches_by_an_example_that_it_understands(motet, command):
    code, out, _ = motet(f"{command} --help")
    assert code == 0
    example = re.search(rf"Example: (motet {command} .*?) *\n", out)[1]
    options = set(re.findall(r"--[a-z-]+", example))
    assert options <= set(re.findall(r"--[a-z-]+", out.replace(example, "")))
    assert f"Usage: motet {command}" in out
