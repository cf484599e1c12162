"""Paths are relative to the file that says them, and on the command line to the working folder."""

import pytest

from motet.config.load import load_config, make_config
from motet.errors import ConfigError
from tests.fixtures.messages import facts

CONFIG = """\
name: x
environment: {name: "./game.py:Game"}
data: {train: {path: rows.jsonl}}
models:
  small: {path: MODEL}
policies: {p: {model: small}}
team: {a: p}
train: {steps: 1}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A config in a folder beside its data and its model; the working directory is another."""
    folder = tmp_path / "project"
    (folder / "model").mkdir(parents=True)
    (folder / "rows.jsonl").write_text("{}\n")
    (folder / "x.yaml").write_text(CONFIG.replace("MODEL", "model"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_paths_in_a_file_are_relative_to_it(project):
    config = load_config(project / "x.yaml")
    assert config.environment.name == f"{project}/game.py:Game"
    assert config.data.train.path == f"{project}/rows.jsonl"
    assert config.models["small"].path == f"{project}/model"


def test_paths_on_the_command_line_are_relative_to_the_working_directory(project):
    config = load_config(project / "x.yaml", ["data.train.path=more.jsonl"])
    assert config.data.train.path == f"{project.parent}/elsewhere/more.jsonl"


def test_a_base_config_keeps_its_own_paths(project):
    deeper = project / "deeper"
    deeper.mkdir()
    (deeper / "y.yaml").write_text("extends: ../x.yaml\nmodels: {small: {path: ../other}}\n")
    config = load_config(deeper / "y.yaml")
    assert config.data.train.path == f"{project}/rows.jsonl"
    assert config.models["small"].path == f"{project}/other"


def test_a_name_of_the_hub_stays_a_name(project):
    (project / "x.yaml").write_text(CONFIG.replace("MODEL", "Qwen/Qwen3-0.6B"))
    assert load_config(project / "x.yaml").models["small"].path == "Qwen/Qwen3-0.6B"


def test_a_config_in_python_is_relative_to_the_working_directory(project):
    plain = load_config(project / "x.yaml").model_dump(mode="json")
    plain["data"]["train"]["path"] = "rows.jsonl"
    config = make_config(plain)
    assert config.data.train.path == f"{project.parent}/elsewhere/rows.jsonl"


def test_a_path_relative_to_the_wrong_folder_is_refused_with_the_right_one(project, monkeypatch):
    monkeypatch.chdir(project)
    (project / "configs").mkdir()
    (project / "configs" / "x.yaml").write_text(CONFIG.replace("MODEL", "../model"))
    expected = "x.yaml:3: data.train.path … configs/rows.jsonl does not exist … ../rows.jsonl"
    with pytest.raises(ConfigError, match=facts(expected)):
        load_config("configs/x.yaml")


def test_an_object_of_this_process_is_no_path(project):
    plain = load_config(project / "x.yaml").model_dump(mode="json")
    plain["data"]["train"]["path"] = "object:rows:train@ab081af2cce0"
    assert make_config(plain).data.train.path == "object:rows:train@ab081af2cce0"


def test_the_paths_of_names_with_dots_are_relative_to_the_file(project):
    named = CONFIG.replace("small", "qwen2.5").replace("MODEL", "model")
    named = named.replace(
        "{p: {model: qwen2.5}}", "{p.1: {model: qwen2.5, train: lora, adapter: a}}"
    )
    (project / "x.yaml").write_text(named.replace("a: p", "a: p.1"))
    config = load_config(project / "x.yaml")
    assert config.models["qwen2.5"].path == f"{project}/model"
    assert config.policies["p.1"].adapter == f"{project}/a"


def test_a_variable_of_a_template_is_no_path(project):
    options = "{path: MODEL, template_options: {path: model}}"
    named = CONFIG.replace("{path: MODEL}", options).replace("MODEL", "model")
    (project / "x.yaml").write_text(named)
    assert load_config(project / "x.yaml").models["small"].template_options == {"path": "model"}
