"""docs/gpu.md has the figures that `--dry-run` prints for its model."""

import json
import re
import shlex
from pathlib import Path

import pytest

import motet
from motet.api import memory_estimate
from motet.assembly import task_setup
from motet.config.paths import config_path
from motet.models import memory
from motet.models.compute import Quantize
from motet_tasks.calls.game_test import ROW as CALLS
from motet_tasks.travel.game_test import ROW as TRIP

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "gpu.md").read_text()
TEXT = " ".join(PAGE.split())
"""The page on one line."""
CODER = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
    "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "max_position_embeddings": 32768, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
"""The shape of Qwen2.5-Coder-0.5B-Instruct on the hub."""
SEVEN = CODER | {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "tie_word_embeddings": False,
}  # fmt: skip
"""The shape of Qwen2.5-7B-Instruct."""
ROW = {
    "task_id": "one", "prompt": 'def double(x):\n    """Twice x."""\n', "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(4) == 8\n",
}  # fmt: skip


WRITER = {
    "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 40960, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
"""The shape of Qwen3-1.7B."""


CALLER = WRITER | {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "tie_word_embeddings": False,
}  # fmt: skip
"""The shape of Qwen3-8B."""
PLANNER = CALLER | {
    "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
}  # fmt: skip
"""The shape of Qwen3-4B-Instruct-2507."""


HELD_OUT = 32
"""Number of tasks of the config's evaluation."""


PROMPT = 256
"""Tokens of a first prompt, about as many as HumanEval's problems have."""


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimate as on a GPU: a CPU samples with copies of the weights. The tokenizer is not
    available."""
    monkeypatch.setattr(memory_estimate, "is_cpu", lambda device: False)
    monkeypatch.setattr(
        memory_estimate, "prompt_lengths", lambda setup: dict.fromkeys(setup.config.team, PROMPT)
    )


@pytest.fixture
def here(tmp_path: Path) -> list[str]:
    (tmp_path / "config.json").write_text(json.dumps(CODER))
    train, heldout = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    train.write_text(json.dumps(ROW))
    rows = (json.dumps(ROW | {"task_id": f"row {number}"}) for number in range(HELD_OUT))
    heldout.write_text("\n".join(rows))
    return [
        f"models.coder.path={tmp_path}",
        f"data.train.path={train}",
        f"data.eval.path={heldout}",
    ]


def gibibytes(overrides: list[str]) -> list[str]:
    memory = motet.dry_run(config_path("humaneval"), overrides).memory
    return [f"{size / 2**30:.3f}" for part, size in memory.items() if size or part == "total"]


def test_the_table_is_what_the_dry_run_estimates(here):
    table = re.findall(
        r"^\| (\d+)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE
    )
    assert [budget for budget, *_ in table] == ["4096", "8192", "16384"]
    for budget, *figures in table:
        assert gibibytes([*here, f"train.token_budget={budget}"]) == figures
    assert gibibytes(here) == list(table[1][1:])


@pytest.mark.wide
def test_no_more_is_counted_than_the_plan_fills(here):
    """A policy learns from 4 tasks with 8 answers of 256 tokens to a prompt of 256 tokens.

    A batch counts as rows times the longest row: 32 rows of 512 tokens are one batch. With 4
    answers in two turns, 4 Rounds follow the first. Their prompts have grown by one answer of each
    of the two agents, so 16 rows and 64 rows of up to 1,024 tokens are one batch.
    """

    def total(*overrides: str) -> int:
        return motet.dry_run(config_path("humaneval"), [*here, *overrides]).memory["total"]

    assert (
        total("train.token_budget=16384")
        == total("train.token_budget=99999")
        > total("train.token_budget=16383")
    )
    two = ("rollout.samples=[4,4]",)
    filled = (4 * 4 + 4 * 4 * 4) * (PROMPT + 2 * 256 + 256)
    assert total(*two, f"train.token_budget={filled}") == total(*two, "train.token_budget=999999")
    assert total(*two, f"train.token_budget={filled}") > total(
        *two, f"train.token_budget={filled - 1}"
    )


def test_no_more_rows_are_counted_than_are_played(here):
    """Evaluation plays 32 x 4 answers of both agents at once, which is 256 rows.

    If each task is played once, it plays 64 rows.
    """
    few = [
        *here,
        "train.token_budget=1",
        "train.tokens_per_batch=999999",
        "models.coder.checkpointing=true",  # so that playing takes more than learning
    ]

    def total(*overrides: str) -> int:
        return motet.dry_run(config_path("humaneval"), [*few, *overrides]).memory["total"]

    assert total() == total("train.rows_per_batch=999") > total("train.rows_per_batch=255")
    once = "evaluation.samples=1"
    assert (
        total(once)
        == total(once, "train.rows_per_batch=64")
        > total(once, "train.rows_per_batch=63")
    )


def test_full_models_need_what_the_page_says(here, monkeypatch):
    full = [f"policies.{agent}={{train: full, lora: null}}" for agent in ("helper", "main")]
    ((said, least),) = re.findall(
        r"needs ([\d.]+) GiB in all\. With checkpointing and moments in 8 bits it needs ([\d.]+) ",
        TEXT,
    )
    assert f"{float(gibibytes([*here, *full])[-1]):.1f}" == said
    # the estimate must not need the library
    monkeypatch.setattr(task_setup, "check_optimizer", lambda kind, device: None)
    fewer = ["models.coder.checkpointing=true", "optimizer.kind=adamw_8bit"]
    assert f"{float(gibibytes([*here, *full, *fewer])[-1]):.1f}" == least


def test_checkpointing_needs_what_the_page_says(here):
    (said,) = re.findall(r"The run then needs ([\d.]+) GiB in all", TEXT)
    assert f"{float(gibibytes([*here, 'models.coder.checkpointing=true'])[-1]):.1f}" == said


def test_quantised_bases_need_what_the_page_says(here, tmp_path):
    def weights(shape: dict[str, object], quantize: Quantize) -> float:
        (tmp_path / "config.json").write_text(json.dumps(shape))
        return memory.frozen(memory.shape_of(tmp_path), 2, quantize) / 2**30

    said = re.search(r"take ([\d.]+) GiB in 8 bits and ([\d.]+) GiB in 4 bits\.", TEXT).groups()
    assert said == tuple(f"{weights(CODER, quantize):.3f}" for quantize in ("8bit", "4bit"))
    said = re.search(
        r"7B take ([\d.]+) GiB in 8 bits and ([\d.]+) GiB in 4 bits, instead of ([\d.]+) GiB", TEXT
    ).groups()
    assert said == tuple(f"{weights(SEVEN, quantize):.1f}" for quantize in ("8bit", "4bit", "none"))


@pytest.mark.parametrize(("config", "field"), [("tldr", "prompt"), ("arxiv", "abstract_text")])
def test_two_full_writers_fit_the_gpu_that_their_config_names(tmp_path, config, field):
    (tmp_path / "config.json").write_text(json.dumps(WRITER))
    (tmp_path / "rows.jsonl").write_text(json.dumps({field: "Cats sleep."}))
    rows = [f"data.{split}.path={tmp_path / 'rows.jsonl'}" for split in ("train", "eval")]
    memory = motet.dry_run(config_path(config), [f"models.qwen.path={tmp_path}", *rows]).memory
    (gigabytes,) = re.findall(r"a GPU with (\d+) GB", (config_path(config)).read_text())
    assert 0.5 < memory["total"] / (int(gigabytes) * 1e9) < 0.9


@pytest.mark.parametrize(
    ("config", "shape", "row"), [("bfcl", CALLER, CALLS), ("travel", PLANNER, TRIP)]
)
def test_two_adapters_fit_the_gpu_that_their_config_names(tmp_path, config, shape, row):
    path = config_path(config)
    memory = motet.dry_run(path, local(tmp_path, shape, row)).memory
    (gigabytes,) = re.findall(r"a GPU with (\d+) GB", path.read_text())
    assert 0.2 < memory["total"] / (int(gigabytes) * 1e9) < 0.9


def test_the_travel_config_says_how_to_learn_from_pairs(tmp_path):
    """The command in its comment is that of the published MAPL configs."""
    path = config_path("travel")
    comment = " ".join(
        line.strip("# \\") for line in path.read_text().splitlines() if line[:1] == "#"
    )
    (command,) = re.findall(r"motet train travel (.*\}\}')", comment)
    overrides = [*local(tmp_path, PLANNER, TRIP), *shlex.split(command)]
    config = motet.read_config(path, overrides)
    assert motet.dry_run(path, overrides).joint_actions == 40
    assert (config.rollout.samples, config.train.steps, config.train.epochs) == ((40,), 7, None)
    pairs = config.algorithm.credit
    assert (pairs.compare, pairs.pairs, pairs.beta, pairs.replay.decay) == ("halves", 6, 0.1, 0.8)
    assert config.algorithm.reduce == "sequence_mean"


def local(folder, shape, row):
    """Return overrides that use a model of this shape and this row in place of the hub's."""
    (folder / "config.json").write_text(json.dumps(shape))
    (folder / "rows.jsonl").write_text(json.dumps(row))
    rows = [f"data.{split}.path={folder / 'rows.jsonl'}" for split in ("train", "eval")]
    return [f"models.qwen.path={folder}", *rows]
