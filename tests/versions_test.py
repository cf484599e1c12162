"""code.json of a run has the versions of the packages that compute it, and what differs is said."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import motet
from motet.api.code_record import changed_code, recorded_code
from motet.api.versions import LIBRARIES, versions_of
from motet.config.load import load_config, make_config
from motet.config.paths import config_path
from motet.trainer.run_folder import RunFolder
from motet.user_code import installed
from motet.user_code.plugins import load_object
from tests.fixtures.messages import says
from tests.small_runs import run_config, summary

OF_LIBRARIES = {name: version(name) for name in LIBRARIES}
STEPS = ["train.steps=2", "optimizer.schedule=constant"]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    motet.train(run_config(), STEPS, show="silent")
    return Path("runs/run")


@pytest.fixture
def gobang(tmp_path, monkeypatch):
    """An installed package gobang-games 1.5, whose module is called gobang."""
    (tmp_path / "gobang.py").write_text(
        "import motet\nclass Game(motet.Environment):\n    pass\ndef pay(task, texts):\n    pass\n"
    )
    info = tmp_path / "gobang_games-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gobang-games\nVersion: 1.5\n")
    (info / "top_level.txt").write_text("gobang\n")
    (info / "entry_points.txt").write_text(
        "[motet.environments]\ngobang = gobang:Game\n[motet.rewards]\npay = gobang:pay\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    installed.installed.cache_clear()
    yield
    sys.modules.pop("gobang", None)
    installed.installed.cache_clear()


def recorded(run: Path) -> list[dict]:
    return json.loads((run / "code.json").read_text())["loaded"]


def rewrite(run: Path, **versions: str) -> None:
    """Let the run have been computed with other versions."""
    entries = recorded(run)
    entries[-1]["versions"] |= versions
    (run / "code.json").write_text(json.dumps({"loaded": entries}))


def test_a_run_records_the_versions_of_its_libraries(run):
    (entry,) = recorded(run)
    assert entry["versions"] == OF_LIBRARIES
    assert OF_LIBRARIES.keys() == {
        "motet", "codejudge", "torch", "transformers", "peft", "tokenizers"
    }  # fmt: skip


def test_the_package_of_a_named_environment_is_recorded():
    config = load_config(config_path("bugfix_tiny"))
    assert versions_of(config) == {**OF_LIBRARIES, "motet-tasks": version("motet-tasks")}


@pytest.mark.parametrize("key", ["environment", "reward"])
def test_a_part_of_somebodys_package_has_its_version(gobang, key):
    name = {"environment": "gobang", "reward": "pay"}[key]
    config = make_config(run_config(**{key: {"name": name}}))
    assert versions_of(config) == {**OF_LIBRARIES, "gobang-games": "1.5"}


def test_a_module_of_somebodys_package_has_its_version_once_it_is_loaded(gobang):
    config = make_config(run_config(reward={"name": "gobang:pay"}))
    assert versions_of(config) == OF_LIBRARIES, "nothing is loaded for a look at the versions"
    load_object("gobang:pay")
    assert versions_of(config) == {**OF_LIBRARIES, "gobang-games": "1.5"}


def test_a_verifier_and_a_cluster_have_the_versions_of_their_packages():
    server, scorer = {"base_url": "http://localhost:8000"}, {"folder": "verifier"}
    for verifier, packages in (
        (server, {}),
        (scorer, {"motet-verifier"}),
        ({"ensemble": [server, scorer]}, {"motet-verifier"}),
        ({"agents": {"a": server, "b": scorer}}, {"motet-verifier"}),
    ):
        found = versions_of(make_config(run_config(verifier=verifier)))
        assert found.keys() - {*LIBRARIES} == {*packages}, verifier
    found = versions_of(make_config(run_config(cluster={})))
    assert found["motet-cluster"] == version("motet-cluster")


def test_other_versions_are_said_one_line_each_and_recorded_on_resume(run):
    rewrite(run, torch="1.0", peft="0.1", gone="2.0")
    place = RunFolder(run)
    wanted = [
        f"{name}: … version … changed … runs/run … {then} then … {version(name)} now"
        for name, then in (("torch", "1.0"), ("peft", "0.1"))
    ]
    said = changed_code(place, make_config(run_config()))
    assert len(said) == len(wanted)
    assert all(map(says, said, wanted))
    lines = motet.evaluate(run, show="silent").code_changed
    assert len(lines) == len(said)
    assert all(says(line, f"{one} … now") for line, one in zip(lines, said, strict=True))
    motet.train(run_config(), [*STEPS, "train.steps=3"], resume=True, show="silent")
    warnings = summary(run)["warnings"]
    assert len(warnings) == len(said)
    assert all(says(line, f"{one} … differ") for line, one in zip(warnings, said, strict=True))
    assert [entry["after_step"] for entry in recorded(run)] == [0, 2]
    assert recorded(run)[-1]["versions"] == OF_LIBRARIES
    assert changed_code(place, make_config(run_config())) == []


def test_torch_is_not_said_twice_if_the_machine_has_changed(run):
    """A checkpoint has the version of torch, too."""
    rewrite(run, torch="1.0")
    (place,) = (run / "checkpoints").glob("step-000002")
    state = json.loads((place / "state.json").read_text())
    assert state["machine"]["torch"].startswith(version("torch"))
    with pytest.MonkeyPatch.context() as patch:
        now = {**state["machine"], "torch": "9.0"}
        patch.setattr("motet.api.resuming.machine", lambda: now)
        motet.train(run_config(), [*STEPS, "train.steps=3"], resume=True, show="silent")
    (warning,) = summary(run)["warnings"]
    assert says(warning, "torch … version … changed")


def test_a_record_without_versions_is_read_as_before(run):
    (entry,) = recorded(run)
    del entry["versions"]
    (run / "code.json").write_text(json.dumps({"loaded": [entry]}))
    assert changed_code(RunFolder(run), make_config(run_config())) == []
    motet.train(run_config(), [*STEPS, "train.steps=3"], resume=True, show="silent")
    assert summary(run)["warnings"] == []
    first, second = recorded_code(RunFolder(run))
    assert (first.versions, second.versions) == ({}, OF_LIBRARIES)


@pytest.mark.parametrize("versions", [["torch"], {"torch": 2}, "2.0"])
def test_versions_that_are_none_are_refused(run, versions):
    (entry,) = recorded(run)
    (run / "code.json").write_text(json.dumps({"loaded": [{**entry, "versions": versions}]}))
    with pytest.raises(motet.ConfigError, match=r"code\.json: expected versions, and hashes"):
        changed_code(RunFolder(run), make_config(run_config()))
