"""A run without a cluster section knows nothing of Ray; one with it says what it needs."""

import json
import sys

import pytest
import yaml

import motet
import motet_compare
from motet.errors import ConfigError
from motet.user_code import installed
from tests import fork_server
from tests.floors_test import ALL, imports_of
from tests.small_runs import ROOT, run_config

SCRIPT = """
import json, sys
import motet
config, runs = json.loads(sys.argv[1]), sys.argv[2]
motet.train(config, runs=runs, show="silent")
print([name for name in sys.modules if name.split(".")[0] in ("ray", "vllm", "motet_cluster")])
"""
HOMES = {"learners": {"gpus": 0}}


def test_a_run_without_the_section_never_imports_ray_vllm_or_the_cluster_package(tmp_path):
    given = [json.dumps(run_config()), str(tmp_path)]
    done = fork_server.run(
        [sys.executable, "-c", SCRIPT, *given], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_only_the_cluster_package_imports_ray_or_vllm():
    packages = {
        module.partition(".")[0]
        for path, module in ALL
        for _, name in imports_of(path)
        if name.split(".")[0] in ("ray", "vllm")
    }
    assert packages == {"motet_cluster"}


def test_a_cluster_section_without_ray_says_what_to_install(train, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'need Ray, .* pip install "motet\[cluster\]"'):
        train(run_config(cluster=HOMES))


@pytest.fixture
def without_the_package(monkeypatch):
    found = installed.installed
    monkeypatch.setattr(
        installed, "installed", lambda group: {} if group == "clusters" else found(group)
    )


def test_without_the_package_training_says_what_to_install(without_the_package, tmp_path):
    config = run_config(cluster=HOMES)
    for refused in (motet.dry_run, lambda given: motet.train(given, runs=tmp_path / "runs")):
        with pytest.raises(ConfigError, match=r"it is in motet-cluster: .*'motet\[cluster\]'"):
            refused(config)
    assert not (tmp_path / "runs").exists()


def test_without_the_package_a_recorded_run_is_read_played_and_replayed(without_the_package, train):
    run = train(run_config())
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"cluster": HOMES}))
    assert motet.load_run(run).config.cluster.learners.gpus == 0
    assert motet.evaluate(run, samples=1, show="silent").samples == 1
    motet.play(run, show="silent")
    assert motet_compare.replay(run, show="silent").same
