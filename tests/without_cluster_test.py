"""A run without a cluster section knows nothing of Ray; one with it says what it needs."""

import json
import sys

import pytest

from motet.errors import ConfigError
from tests import fork_server
from tests.floors_test import imports_of, room_of, sources
from tests.small_runs import ROOT, run_config

SCRIPT = """
import json, sys
import motet
config, runs = json.loads(sys.argv[1]), sys.argv[2]
motet.train(config, runs=runs, show="silent")
print([name for name in sys.modules if name.split(".")[0] in ("ray", "vllm")
       or name.startswith("motet.cluster")])
"""


def test_a_run_without_the_section_never_imports_ray_vllm_or_the_cluster_package(tmp_path):
    given = [json.dumps(run_config()), str(tmp_path)]
    done = fork_server.run(
        [sys.executable, "-c", SCRIPT, *given], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_only_the_cluster_package_imports_ray_or_vllm():
    rooms = {
        room_of(module)
        for path, module in sources()
        for _, name in imports_of(path)
        if name.split(".")[0] in ("ray", "vllm")
    }
    assert rooms == {"cluster"}


def test_a_cluster_section_without_ray_says_what_to_install(train, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install "motet\[cluster\]"'):
        train(run_config(cluster={"learners": {"gpus": 0}}))
