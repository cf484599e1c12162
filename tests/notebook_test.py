"""Everything public works in a Jupyter kernel, where an event loop runs, and so does Ctrl-C."""

import json
import time
from pathlib import Path
from queue import Empty

import pytest

from tests.fixtures.messages import says
from tests.small_runs import ROOT, TINY, run_config, steps

pytestmark = pytest.mark.wide

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A kernel that all tests share, because its imports take seconds."""
    home = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setenv("IPYTHONDIR", str(home / "ipython"))
        manager, client = jupyter_client.manager.start_new_kernel(cwd=str(home))
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(started, tmp_path):
    """The kernel, in a folder of this test and without names of other tests."""
    manager, client = started
    run(client, f"%reset -f\nimport os\nos.chdir({str(tmp_path)!r})")
    return manager, client


def run(client, code, timeout=240):
    """Run a cell and return what it prints. Raises: AssertionError with its traceback."""
    sent = client.execute(code)
    return read(client, sent, timeout)


def read(client, sent, timeout=240, heard=lambda said: None):
    """`heard` is called with all that was printed, each time that something is."""
    said, end = [], time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            message = client.get_iopub_msg(timeout=1)
        except Empty:
            continue
        if message["parent_header"].get("msg_id") != sent:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            said.append(content["text"])
            heard("".join(said))
        elif kind == "error":
            raise AssertionError("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(said)
    raise AssertionError(f"no end within {timeout} s; printed so far: {said}")


EVERYTHING = """
import asyncio, json
import motet
import motet_compare
from tests.games import Lottery

assert asyncio.get_running_loop().is_running()
config = json.loads('''CONFIG''')
motet.check_environment(Lottery(Lottery.Options()))
motet.dry_run(config)
motet.check(config)
summary = motet.train(config, show="silent")
motet.train(config, ["name=other", "seed=1"], show="silent")
figures = motet.evaluate("runs/run", show="silent")
episode = motet.play("runs/run", show="silent")
table = motet_compare.measure_baselines("runs/run", show="silent")
played = motet_compare.crossplay(["runs/run", "runs/other"])
again = motet_compare.replay("runs/run", show="silent")
print(json.dumps([summary.steps, figures.episodes, again.same]))
"""


def test_every_function_of_a_run_works_where_a_loop_runs(kernel, tmp_path):
    _, client = kernel
    said = run(client, EVERYTHING.replace("CONFIG", json.dumps(run_config())))
    trained, episodes, same = json.loads(said.splitlines()[-1])
    assert (trained, same) == (2, True)
    assert episodes > 0
    assert len(steps(tmp_path / "runs" / "run")) == 2


def test_the_stop_button_ends_a_run_with_a_checkpoint(kernel, tmp_path):
    manager, client = kernel
    config = run_config(train={"steps": 100_000, "tasks_per_step": 2, "checkpoint_every": 0})
    code = f"""
import json, motet
try:
    motet.train(json.loads('''{json.dumps(config)}'''), show="silent")
except motet.MotetError as error:
    print(type(error).__name__, error)
"""
    sent = client.execute(code)
    metrics = tmp_path / "runs" / "run" / "metrics.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and not (metrics.is_file() and len(metrics.read_text()) > 2000):
        time.sleep(0.2)
    manager.interrupt_kernel()
    said = read(client, sent)
    assert said.startswith("Interrupted stopped after step ")
    assert "checkpoint written" in said
    assert run(client, "print(1 + 1)") == "2\n"


VERIFIER = """
import motet
import motet_verifier
from pathlib import Path
from motet.core import Message
from motet_verifier.answers import LabelledAnswer, write_answers

small = ["warmup=null", "decode.max_new_tokens=4", "threads=1"]
sampled = motet_verifier.sample_answers(
    "debate", "sampled.jsonl", small,
    temperatures=(1.0,), games=1, tasks=2, show="silent",
)
answers = [
    LabelledAnswer(f"q{k}", (Message("user", f"{k}?"),), text, text, text == "yes", ease=0.5)
    for k in range(8) for text in ("yes", "no")
]
write_answers(Path("answers.jsonl"), answers)
from motet_verifier.settings import VerifierTraining
settings = VerifierTraining.model_validate(
    {"model": {"embedded": MODEL, "device": "cpu"}, "train": "full", "epochs": 1,
     "held_out": 0.25, "threads": 1}
)
found = motet_verifier.train_verifier(settings, "answers.jsonl", "verifier", show="silent")
print(sum(sampled[kind] for kind in ("right", "wrong", "repeated", "unparsed")), found["epoch"])
"""


def test_verifiers_are_trained_and_served_where_a_loop_runs(kernel):
    manager, client = kernel
    said = run(client, VERIFIER.replace("ROOT", str(ROOT)).replace("MODEL", repr(TINY)))
    played, epoch = map(int, said.split())
    assert played > 0
    assert epoch == 1
    settings = "motet_verifier.VerifierServerSettings(port=0, device='cpu')"
    sent = client.execute(
        f"motet_verifier.serve_verifier('verifier', settings={settings})\nprint('over')"
    )

    def interrupt(said):
        if said.endswith("\n") and "is served at" in said:
            manager.interrupt_kernel()

    said = read(client, sent, heard=interrupt)
    assert says(said, "verifier … http://127.0.0.1:")
    assert said.endswith("over\n")


def test_an_error_in_a_cell_is_the_same_as_in_a_script(kernel):
    _, client = kernel
    said = run(client, "import motet\ntry:\n    motet.train('nothing.yaml')\n"
               "except motet.ConfigError as error:\n    print(error)")  # fmt: skip
    assert said.startswith("nothing.yaml does not exist")


@pytest.mark.examples
def test_the_tutorial_runs_to_its_end_in_two_minutes(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    path = ROOT / "examples" / "tutorial.ipynb"
    text = path.read_text(encoding="utf-8")
    book = nbformat.reads(text, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "the notebook is kept without outputs"
    begin = time.monotonic()
    client = nbclient.NotebookClient(
        book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert time.monotonic() - begin < 120
    printed = json.dumps([cell.outputs for cell in code])
    assert "held out" in printed
    assert "image/png" in printed
    assert Path(tmp_path / "runs" / "tutorial" / "team").is_dir()
