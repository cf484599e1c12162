"""`motet` executes any config, or reports in a few lines what is wrong with it.

Then the exit code is 2. There is no traceback, and it never hangs.
"""

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import motet
from motet.assembly.task_setup import open_task_setup, steps_of
from motet.commands.main import main
from motet.config.load import load_config
from motet.config.paths import named_configs
from motet.config.schema import RunConfig
from motet.errors import ConfigError, MotetError
from tests.faults.hostile import (
    ODD_NUMBERS,
    Endings,
    changed,
    check_lines,
    one_of,
    repeatable,
    texts,
    values,
    within,
)
from tests.faults.sound_rows import ROWS
from tests.small_runs import run_config

pytestmark = pytest.mark.slow

SECONDS = 5.0
"""CPU seconds from a config's bytes to the setup. Nearly all configs take a tenth of a second."""
FILES = [path for name, path in named_configs().items() if "/" not in name]
LAUGHS = "l0: &l0 [1]\n" + "".join(
    f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
"""Ten lines that expand to a thousand million values."""
PIECES = (
    "&a ", "*a", "<<: *a", "!!str ", "!!binary aGk=", "!!set {a, b}", "--- \n", "...\n",
    "? a\n: b\n", "|\n", ">-\n  x\n", "\t", "# ", "{", "}", "[", "]", ": ", "- ", "'", '"',
    "%TAG ! !\n", "@", "`", ",", "\0", "\x85", "\u2028", "\ufeff", "x: " * 50, "[" * 3000,
    "{a: " * 500, "a: &a [*a, *a]\n", "b: {a: " * 50, LAUGHS, "&x [&y [1,1,1],*y,*y]",
    "extends: .\n", "extends: missing.yaml\n", "extends: [a]\n", "name: 2026-01-01\n", "1: 2\n",
    "0x" + "f" * 5000, "9" * 5000,
)  # fmt: skip


def _resolved(file: Path, **how: bool) -> dict[str, Any]:
    """Return a config without `extends`, with a local data file and a small sandbox."""
    settings = load_config(file).model_dump(mode="json", **how)
    kind = settings["environment"]["name"]
    for source in filter(None, settings["data"].values() if "data" in settings else ()):
        table = (
            settings["environment"].get("dataset") or settings["environment"].get("kind") or kind
        )
        source |= {"name": None, "subset": None, "path": f"{table}.jsonl", "split": "train"}
    settings["sandbox"] = {**(settings["sandbox"] if "sandbox" in settings else {}), "workers": 1}
    return {key: value for key, value in settings.items() if value is not None}


FULL = {file.name: _resolved(file) for file in FILES}
"""Every key that a config may have."""
SHORT = {file.name: _resolved(file, exclude_defaults=True) for file in FILES}
"""The keys that a config file sets itself."""
PLAUSIBLE = one_of(
    (
        0, 1, 2, 3, 7, -1, 0.5, 1.0, 1e-8, 1e-300, 1e30, 1e300, 2**40, None, True, "", "x", "\n",
        [], [2], [2, 1], [1, 1, 1], {}, "none", "std", "lora", "full", "frozen", "bfloat16",
        "joint", "own", "crossed", "best", "turns", "maporl", "mappo", "iac", "ippo", ["p", "q"],
    )
)  # fmt: skip


@st.composite
def structures(draw: DrawFn) -> tuple[bytes, list[str]]:
    """Draw a config of the repository with some keys changed, as YAML or as JSON (which is
    also YAML)."""
    name = draw(one_of(sorted(FULL)))
    whole, short = FULL[name], SHORT[name]
    data = draw(changed(whole, values() | PLAUSIBLE))
    untouched = [key for key in whole if key in data and data[key] == whole[key]]
    data = {key: value for key, value in data.items() if key not in untouched} | {
        key: short[key] for key in untouched if key in short
    }
    if draw(st.booleans()):
        return json.dumps(data).encode("utf-8", "surrogatepass"), []
    return yaml.safe_dump(data, allow_unicode=True, sort_keys=False).encode(
        "utf-8", "surrogatepass"
    ), []


@st.composite
def scribbles(draw: DrawFn) -> tuple[bytes, list[str]]:
    """Draw a config file with characters, bytes and whole lines inserted, removed and doubled."""
    text = draw(one_of(FILES)).read_bytes()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        match draw(one_of(("piece", "piece", "bytes", "cut", "drop", "double"))):
            case "piece":
                text = text[:at] + draw(one_of(PIECES)).encode() + text[at:]
            case "bytes":
                text = text[:at] + draw(st.binary(max_size=8)) + text[at:]
            case "cut":
                text = text[:at]
            case "drop":
                text = text[:at] + text[at + draw(st.integers(1, 200)) :]
            case "double":
                lines = text.splitlines(keepends=True) or [b""]
                line = at % len(lines)
                text = b"".join([*lines[:line], lines[line], *lines[line:]])
    return text, []


def _dotted(data: Any, at: str = "") -> list[str]:
    found = [at] if at else []
    if isinstance(data, dict):
        for key, value in data.items():
            found += _dotted(value, f"{at}.{key}" if at else key)
    return found


@st.composite
def overridden(draw: DrawFn) -> tuple[bytes, list[str]]:
    """Draw a valid file, and one to four overrides as a user or a script may type them."""
    name = draw(one_of(sorted(FULL)))
    keys = one_of(_dotted(FULL[name])) | one_of(
        ("team.x", "models.y.path", "a", "", ".", "a..b", "[0]")
    )
    said = texts() | (values() | PLAUSIBLE).map(json.dumps) | one_of(ODD_NUMBERS).map(repr)
    known = st.builds("{}={}".format, keys, PLAUSIBLE.map(json.dumps))
    whole = known | known | known | st.builds("{}={}".format, keys, said | one_of(PIECES)) | texts()
    overrides = draw(
        st.lists(whole.filter(lambda text: not text.startswith("-")), min_size=1, max_size=3)
    )
    return yaml.safe_dump(SHORT[name]).encode(), overrides


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the data that the configs name, and no hub."""
    import datasets

    def away(*arguments: Any, **more: Any) -> Any:
        raise ConnectionError("the hub is away")

    monkeypatch.setattr(datasets, "load_dataset", away)
    for name, rows in ROWS.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file in FILES:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _command(*words: str) -> tuple[int, str, str]:
    """Run `motet WORDS`; return exit code, stdout and stderr. An escaping exception is a
    traceback."""
    said, complained, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["motet", *words]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            main()
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return code, said.getvalue(), complained.getvalue()


def _read_and_opened(text: bytes, overrides: list[str]) -> str:
    """Return in one word how it ended."""
    Path("case.yaml").write_bytes(text)
    typable = [
        os.fsencode(one.replace("\0", "").encode("utf-8", "replace").decode()).decode()
        for one in overrides
    ]
    code, said, complained = _command("show", "case.yaml", *typable)
    if code:
        assert code == 2, f"exit code {code}: {complained[:500]}"
        assert "Traceback" not in complained
        assert re.search(r"error: .|Usage: ", complained), complained[:500]
        check_lines(complained)
        return "refused when read"
    config = load_config("case.yaml", typable)
    Path("shown.yaml").write_text(said, encoding="utf-8")
    assert load_config("shown.yaml") == config, "`motet show` describes another run"
    small = config.model_copy(update={"sandbox": config.sandbox.model_copy(update={"workers": 1})})
    try:
        with open_task_setup(small, train=True) as setup:
            assert steps_of(setup) >= 1
    except ConfigError as error:
        check_lines(str(error))
        return "refused when opened"
    return "opened"


@pytest.mark.parametrize(
    ("kind", "cases", "count"),
    [("keys", structures(), 2400), ("bytes", scribbles(), 1600), ("overrides", overridden(), 1000)],
    ids=["keys", "bytes", "overrides"],
)
def test_a_config_opens_or_is_refused_in_lines(place, tell, kind, cases, count):
    endings = Endings()

    @repeatable(count)
    @given(cases)
    def check(case):
        with within(SECONDS):
            endings.count[_read_and_opened(*case)] += 1

    check()
    tell("random configs", kind=kind, **endings.columns())


# --------------------------------------------------------------------------------------- whole runs

SMALL: dict[str, Any] = {
    **run_config(),
    "train": {"steps": 1, "tasks_per_step": 2, "token_budget": 4096, "rows_per_batch": 8,
        "max_fault_share": 0.5},
    "algorithm": {"name": "magrpo", "gamma": 1.0, "kl_in": "loss", "kl_coefficient": 0.1},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup_steps": 1,
        "betas": [0.9, 0.95], "clip_norm": 1.0},
    "decode": {"temperature": 1.0, "top_p": 0.9, "top_k": 4, "max_new_tokens": 3, "stop": ["x"]},
    "evaluation": {"every": 1, "tasks": 2, "samples": 1},
    "schedule": {"kind": "round_robin", "block": 1},
}  # fmt: skip


def _is_small(config: RunConfig) -> bool:
    plan = config.rollout
    tokens = max(config.decode_of(agent).max_new_tokens for agent in config.team)
    tiny = [base.embedded for base in config.models.values() if base.path is None]
    sizes = [
        max(one.hidden_size, one.layers, one.feed_forward, one.context, one.vocabulary) <= 512
        for one in tiny
    ]
    lengths = (
        config.train.steps or 9,
        config.train.tasks_per_step,
        config.evaluation.samples,
        config.algorithm.epochs,
    )
    warm = config.warmup is None
    return (
        warm
        and all(sizes)
        and len(sizes) == len(tiny)
        and tokens <= 8
        and max(lengths) <= 3
        and sum(plan.samples) <= 8
    )


def test_a_small_config_trains_a_step_or_says_in_lines_why_not(place, tell):
    endings = Endings()

    @repeatable(150)
    @given(changed(SMALL, PLAUSIBLE))
    def check(data):
        try:
            config = motet.read_config(data)
        except ConfigError:
            endings.count["refused when read"] += 1
            return
        if not _is_small(config):
            endings.count["too large to train here"] += 1
            return
        try:
            with within(60.0):
                summary = motet.train(config, runs=place / "runs", overwrite=True, show="silent")
        except MotetError as error:
            endings.count[
                "refused" if isinstance(error, ConfigError) else "stopped with a message"
            ] += 1
            check_lines(str(error))
            return
        assert summary.steps >= 1
        endings.count["trained"] += 1

    check()
    tell("random configs", kind="whole runs", **endings.columns())
