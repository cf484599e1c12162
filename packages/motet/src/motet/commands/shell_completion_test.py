"""Completion of paths."""

import pytest

from motet.commands.shell_completion import complete_config, complete_run, complete_target


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("configs/relay.yaml", "configs/relay_tree.yaml", "configs/notes.txt",
                 "runs/relay/config.yaml", "runs/short/config.yaml", "runs/deep/x/config.yaml",
                 ".hidden/config.yaml", "own.yml"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("incomplete", "found"),
    [
        ("", ["configs/", "own.yml", "runs/"]),
        ("o", ["own.yml"]),
        ("configs/rel", ["configs/relay.yaml", "configs/relay_tree.yaml"]),
        ("conf", ["configs/relay.yaml", "configs/relay_tree.yaml"]),
        ("nothing/", []),
        ("configs/n", []),
    ],
)
def test_configs(incomplete, found):
    assert complete_config(incomplete) == found


@pytest.mark.parametrize(
    ("incomplete", "found"),
    [
        ("runs/s", ["runs/short"]),
        ("ru", ["runs/deep/", "runs/relay", "runs/short"]),
        ("runs/d", ["runs/deep/x"]),
        ("own", []),
    ],
)
def test_runs(incomplete, found):
    assert complete_run(incomplete) == found


def test_configs_of_packages_are_offered_by_name():
    assert complete_config("relay_t") == ["relay_tree"]
    assert complete_target("cluster/o") == ["cluster/own"]


def test_a_target_is_either(place):
    assert complete_target("own") == ["own.yml"]
    assert complete_target("runs/re") == ["runs/relay"]
    assert complete_target(f"{place}/configs/relay_") == [f"{place}/configs/relay_tree.yaml"]
