"""Whatever only looks at a run executes nothing that the run names.

A stranger's run names a Python file at every key that may name code. The file leaves a mark when it
is executed. Every command and every function of the API that looks at runs must leave none.
"""

import ast
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import motet
import motet.api
import motet_compare
import motet_view
from motet.commands import main as cli
from motet.config.load import dump_config, load_config
from motet.errors import ConfigError
from motet_cluster.planning import plan
from motet_view.export import export_viewer
from motet_view.pages import Pages
from motet_view.recorded import episodes as recorded_games
from motet_view.shelf import find_runs
from tests.fixtures.messages import says
from tests.fixtures.recorded_runs import make_run
from tests.small_runs import run_config

CODE = """
open({mark!r}, "a").write(__name__ + "\\n")
from motet.algorithms import ALGORITHMS
ROW = ALGORITHMS["magrpo"]
def named(*args, **kwargs):
    return [0.0]
"""
KEYS = {
    "algorithm.name": "{file}:ROW",
    "algorithm.baseline": "{file}:named",
    "algorithm.policy_loss": "{file}:named",
    "algorithm.credit.function": "{file}:named",
    "credit": "{file}:named",
    "environment.name": "{file}:named",
    "environment.feedback": {"mode": "{file}:named"},
    "reward": {"name": "{file}:named"},
    "optimizer.kind": "{file}:named",
    "policies.p.optimizer": {"kind": "{file}:named"},
    "report.to": "{file}:named",
    "reward_model": {"model": "{file}:named"},
    "verifier": {"path": "{folder}"},
    "comparator": {"team": {"ann": "{file}:named"}},
    "comparator.name": "{file}:named",
    "warmup.kind": "{file}:named",
    "critic.optimizer.kind": "{file}:named",
    "data": {"train": {"path": "{file}"}, "eval": {"path": "{folder}"}},
    "data.train": {"path": "object:stranger:rows@0123456789ab"},
    "credit ": "object:stranger:named@0123456789ab",
    "models.tiny": {"path": "{folder}", "chat_template": "{folder}/template.jinja"},
    "extends": "{folder}/base.yaml",
}
"""Key of a config -> a value that names code. A space at the end tells two values apart."""


@pytest.fixture
def mark(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a module of the working directory can be imported
    return tmp_path / "mark"


def stranger(tmp_path: Path, mark: Path, keys: dict[str, Any], name: str = "stranger") -> Path:
    """A run with recorded games, whose config names code at these keys."""
    run = make_run(tmp_path / "runs", name, steps=2)
    for place in (run / "stranger.py", tmp_path / "stranger.py"):
        place.write_text(CODE.format(mark=str(mark)))
    (run / "template.jinja").write_text("{{ cycler.__init__.__globals__.os.system('touch mark') }}")
    remote = {"auto_map": {"AutoTokenizer": "stranger.Named", "AutoConfig": "stranger.Named"}}
    (run / "config.json").write_text(json.dumps({"model_type": "stranger", **remote}))
    (run / "tokenizer_config.json").write_text(json.dumps(remote))
    (run / "base.yaml").write_text(f"algorithm: {run / 'stranger.py'}:ROW\n")
    config: dict[str, Any] = yaml.safe_load(dump_config(motet.read_config(run_config(name=name))))
    for key, value in keys.items():
        inside, (*above, last) = config, key.strip().split(".")
        for part in above:
            if not isinstance(inside.get(part), dict):
                inside[part] = {}
            inside = inside[part]
        said = json.dumps(value).replace("{file}", str(run / "stranger.py"))
        inside[last] = json.loads(said.replace("{folder}", str(run)))
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run


def look_everywhere(run: Path, other: Path) -> list[str]:
    """Run every command and function that looks at a run. Returns what was run."""
    done = []
    commands = [
        ["view", str(run), "--export", str(run.parent.parent / "out")],
        ["episodes", str(run)],
        ["episodes", str(run), "--step", "2", "--best", "1"],
        ["episodes", str(run), "--evaluation"],
        ["compare", str(run), str(other)],
        ["compare", str(other), str(run), "--csv"],
        ["show", str(run)],
        ["show", str(run / "config.yaml"), "seed=3"],
        ["plan", str(run)],
        ["plan", str(run / "config.yaml"), "--prompt-tokens", "20"],
        ["doctor", "--no-hub"],
    ]
    for command in commands:
        result = CliRunner().invoke(cli.whole_app(), command)
        assert result.exception is None or isinstance(
            result.exception, (SystemExit, motet.MotetError)
        ), (command, result.exception)
        done.append(command[0])
    loaded = motet.load_run(run)
    calls: dict[str, Any] = {
        "load_run.config": lambda: loaded.config,
        "load_run.summary": lambda: loaded.summary,
        "load_run.metrics": lambda: loaded.metrics,
        "load_run.warmup": lambda: loaded.warmup,
        "load_run.episodes": lambda: list(loaded.episodes()),
        "load_run.samples": lambda: loaded.samples(2),
        "load_run.repr": lambda: loaded._repr_html_(),
        "load_run.tokenizer": lambda: loaded.tokenizer("p"),
        "load_run.model": lambda: loaded.model("p"),
        "runs.metrics": lambda: motet_compare.runs([run, other]).metrics,
        "runs.summaries": lambda: motet_compare.runs([run, other]).summaries,
        "runs.statistics": lambda: motet_compare.runs([run, other]).statistics,
        "runs.differences": lambda: motet_compare.runs(str(run.parent / "*")).differences,
        "runs.plot": lambda: motet_compare.runs([run, other]).plot(run.parent / "plot.png"),
        "episodes": lambda: recorded_games(run, step=2),
        "compare": lambda: motet_compare.compare([run, other]),
        "plan": lambda: plan(run, prompt_tokens=20),
        "pages": lambda: look_at_pages(run),
        "export_viewer": lambda: export_viewer(
            Pages(find_runs([run]), "0"), run.parent.parent / "exported", 9
        ),
    }
    for name, call in calls.items():
        with suppress(ConfigError, KeyError):
            call()
        done.append(name)
    return done


def look_at_pages(run: Path) -> None:
    pages = Pages(find_runs([run]), "0")
    pages.update()
    (row,) = pages.runs()["runs"]
    for one in pages.team, pages.overview, lambda name: pages.curves(name, None):
        one(row["name"])
    for number in range(1, row["games"] + 1):
        pages.game(row["name"], number)
        pages.advantages(row["name"], number)
    pages.configs([row["name"]])


TOGETHER = (
    ("algorithm.name", "credit", "comparator.name", "warmup.kind", "critic.optimizer.kind"),
    ("algorithm.baseline", "algorithm.policy_loss", "algorithm.credit.function", "environment.name",
     "environment.feedback", "reward", "optimizer.kind", "policies.p.optimizer", "report.to"),
    ("models.tiny", "extends"),
)  # fmt: skip
"""Keys whose values make one valid config."""


@pytest.mark.parametrize(
    "keys", [*TOGETHER, *(pytest.param((key,), marks=pytest.mark.wide) for key in KEYS)]
)
def test_nothing_that_looks_at_a_run_executes_what_it_names(keys, tmp_path, mark):
    other = make_run(tmp_path / "runs", "other")
    (other / "config.yaml").write_text(dump_config(motet.read_config(run_config(name="other"))))
    run = stranger(tmp_path, mark, {key: KEYS[key] for key in keys})
    if keys in TOGETHER:
        assert motet.load_run(run).config.name == run.name, "a config that is refused names nothing"
    look_everywhere(run, other)
    assert not mark.exists(), mark.read_text()


def test_the_mark_is_left_where_code_is_loaded(tmp_path, mark):
    """The control: a config that is loaded in order to run does execute the file."""
    run = stranger(tmp_path, mark, {"algorithm.name": "{file}:ROW"})
    load_config(run / "config.yaml")
    assert mark.exists()


def test_a_config_that_names_code_is_shown_as_written(tmp_path, mark):
    function = {"function": "{file}:named"}
    keys = {"algorithm": {"name": "{file}:ROW", "gamma": 0.5, "credit": function}}
    run = stranger(tmp_path, mark, keys)
    config = motet.load_run(run).config
    assert (config.algorithm.name, config.algorithm.gamma) == (f"{run}/stranger.py:ROW", 0.5)
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(config))
    assert yaml.safe_load(again.read_text())["algorithm"] == {
        "name": f"{run}/stranger.py:ROW", "gamma": 0.5,
        "credit": {"function": f"{run}/stranger.py:named"},
    }  # fmt: skip
    assert says(again.read_text(), "code … not loaded")
    other = stranger(tmp_path, mark, {**keys, "algorithm.gamma": 0.25}, "other")
    rows = motet_compare.compare([run, other])
    assert "algorithm.gamma=0.25" in rows[1].differs
    assert all(not one.advantages for one in recorded_games(run))
    assert not mark.exists()


def test_a_run_without_code_keeps_its_advantages_and_its_config(tmp_path, mark):
    run = stranger(tmp_path, mark, {})
    assert motet.read_config(motet.load_run(run).config) == load_config(run / "config.yaml")
    assert dump_config(motet.load_run(run).config) == dump_config(load_config(run / "config.yaml"))
    wrong = stranger(tmp_path, mark, {"algorithm.baseline": "grop_mean"}, "wrong")
    with pytest.raises(ConfigError, match="did you mean 'group_mean'"):
        recorded_games(wrong)


LOOKS = (
    "api/recorded.py", "doctor.py", "commands/episodes.py", "commands/shell_completion.py",
)  # fmt: skip
LOADS = {
    "read_config", "load_config", "load_target", "make_config", "load_object", "load_function",
    "RunConfig", "import_module", "LoadedTeam", "load_team",
}  # fmt: skip
"""Names with which code that a config names can be loaded."""


def test_modules_that_look_import_no_name_that_loads_code():
    package = Path(motet.__file__).parent
    files = [package / name for name in LOOKS]
    files += Path(motet_view.__file__).parent.glob("*.py")
    files.append(Path(motet_compare.__file__).parent / "many_runs.py")
    assert len(files) > 15
    for file in files:
        if file.stem.endswith("_test"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                found = LOADS & {name.name for name in node.names}
                assert not found, f"{file.name} imports {found}"
