"""The files around the code: metadata of the packages, CHANGELOG, workflows, images, forms."""

import contextlib
import re
import shutil
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from hatchling.build import build_wheel
from packaging.requirements import Requirement
from packaging.version import Version

import motet

ROOT = Path(__file__).parent.parent
PROJECTS = {
    path.parent.name: tomllib.loads(path.read_text())["project"]
    for path in sorted(ROOT.glob("packages/*/pyproject.toml"))
}
SHARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEV = SHARED["dependency-groups"]["dev"]
PINNED = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
)
NOT_INSTALLED = {"bitsandbytes", "wandb", "ray", "vllm", "verifiers", "openenv"}
"""Libraries of extras that `make install` leaves out, so no test ran with them in .venv."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
"""The targets of make."""


def required(project: dict) -> list[Requirement]:
    """Return everything that a package requires, with all of its extras."""
    extras = project.get("optional-dependencies", {}).values()
    return [Requirement(one) for one in [*project["dependencies"], *(r for e in extras for r in e)]]


@pytest.mark.parametrize("name", PROJECTS)
def test_a_package_has_the_version_of_all_and_says_whose_it_is(name: str) -> None:
    project = PROJECTS[name]
    assert project["name"] == name
    assert project["version"] == motet.__version__
    # codejudge stands alone: nothing in its package names the house that uses it.
    house = "codejudge" if name == "codejudge" else "Motet"
    assert project["authors"] == [{"name": f"The {house} developers"}]
    assert project["license"] == "Apache-2.0"
    assert (ROOT / "packages" / name / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len(project["keywords"]) >= 3
    assert "Programming Language :: Python :: 3.11" in project["classifiers"]


@pytest.mark.parametrize("name", PROJECTS)
def test_packages_of_one_minor_version_go_together(name: str) -> None:
    version = Version(motet.__version__)
    next_minor = Version(f"{version.major}.{version.minor + 1}.0")
    for one in required(PROJECTS[name]):
        if one.name in PROJECTS and one.name != name:
            assert one.specifier.contains(version), one
            assert one.specifier.contains(f"{version.major}.{version.minor}.99"), one
            assert not one.specifier.contains(next_minor), one


def test_what_the_tests_ran_with_is_pinned() -> None:
    wanted = {one.name: one for project in PROJECTS.values() for one in required(project)}
    wanted |= {one.name: one for one in map(Requirement, DEV)}
    unpinned = set(wanted) - set(PINNED) - set(PROJECTS) - NOT_INSTALLED - {"types-PyYAML"}
    assert unpinned == set()
    for name, one in wanted.items():
        assert name not in PINNED or one.specifier.contains(PINNED[name], prereleases=True), one


def test_the_packages_and_the_tests_allow_the_same_versions_of_a_library() -> None:
    allowed: dict[str, set[str]] = {}
    for project in PROJECTS.values():
        for one in required(project):
            if one.name not in PROJECTS:
                allowed.setdefault(one.name, set()).add(str(one.specifier))
    assert {name: each for name, each in allowed.items() if len(each) > 1} == {}
    for one in map(Requirement, DEV):
        assert one.name not in allowed or {str(one.specifier)} == allowed[one.name], one


def test_uv_finds_all_packages_in_this_repository() -> None:
    found = SHARED["tool"]["uv"]
    assert set(found["sources"]) == set(PROJECTS)
    alone = {Path(one).name for one in found["workspace"]["exclude"]}
    for name, source in found["sources"].items():
        path = {"path": f"packages/{name}", "editable": True}
        assert source == (path if name in alone else {"workspace": True}), name


def test_the_changelog_has_the_version_in_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    dated = dict(versions[1:])
    assert motet.__version__ in dated
    assert all(dated.values())
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(kinds) <= {"Breaking", "Removed", "Changed", "Fixed", "Added", "Security"}


def test_the_citation_is_that_of_this_version() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "license"} <= set(found)
    assert found["cff-version"] == "1.2.0"
    assert found["version"] == motet.__version__
    assert found["authors"] == PROJECTS["motet"]["authors"]


def test_the_hooks_need_no_environment_and_have_the_versions_of_make_lint() -> None:
    found = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in found["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"python"}
    for hook in hooks:
        assert hook["additional_dependencies"] == [f"ruff=={PINNED['ruff']}"]


# ------------------------------------------------------------------------------- GitHub's files


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_there_is_a_workflow_for_each_purpose() -> None:
    names = {path.stem for path in WORKFLOWS}
    assert names == {"lint", "tests", "nightly", "wheels", "docs", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_bounded_and_calls_targets_that_exist(path: Path) -> None:
    found = yaml.safe_load(path.read_text())
    assert found["name"] == path.stem
    assert found["permissions"] == {"contents": "read"}, "a job asks for more where it needs more"
    called = set()
    for job in found["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 180
        matrix = job.get("strategy", {}).get("matrix", {})
        called |= set(matrix.get("target", ()))
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for words in re.findall(r"^make (.+)$", step.get("run", ""), re.MULTILINE):
                rest = re.sub(r'\w+=("[^"]*"|\S+)|\$\{\{.*?\}\}', "", words)
                called |= set(rest.split())
    assert called <= TARGETS
    assert called


def test_the_tests_run_on_every_python_that_the_packages_take() -> None:
    found = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    matrix = found["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert "macos-latest" in [one["os"] for one in matrix["include"]]
    assert {project["requires-python"] for project in PROJECTS.values()} == {">=3.11"}


def test_only_the_job_that_publishes_gets_a_token_of_the_index() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    trusted = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert trusted == ["publish"]
    assert "secrets." not in text
    assert not any("run" in step for step in jobs["publish"]["steps"]), "it runs no code of ours"


@pytest.mark.parametrize("name", ["mistake.yml", "wish.yml"])
def test_a_form_has_a_question_for_each_field(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    assert form["name"]
    assert form["description"]
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    assert len({one["id"] for one in fields}) == len(fields)
    assert all(one["attributes"]["label"] for one in fields)


# ------------------------------------------------------------------------------- images


IMAGES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return (instruction, arguments) of a Dockerfile, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line.strip()]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_copies_what_exists_and_what_is_not_ignored(path: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    stages = {line.split(" AS ")[1] for word, line in instructions(path) if " AS " in line}
    copied = [line.split() for word, line in instructions(path) if word == "COPY"]
    assert len(copied) >= 3
    for words in copied:
        origin = words[0].removeprefix("--from=")
        if words[0] == origin:
            for source in words[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored
        else:
            assert origin in stages


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_installs_packages_that_exist_with_what_they_require(path: Path) -> None:
    (built,) = (line for word, line in instructions(path) if "pip wheel" in line)
    names = re.findall(r"packages/([\w-]+)", built)
    needed = {
        one.name for name in names for one in map(Requirement, PROJECTS[name]["dependencies"])
    }
    assert needed & set(PROJECTS) <= set(names)
    assert "motet-serve" in names


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_the_core_can_be_built_from_what_an_image_copies(path: Path, tmp_path: Path) -> None:
    for word, line in instructions(path):
        if word == "COPY" and not line.startswith("--") and (ROOT / line.split()[0]).is_dir():
            source, into = line.split()
            skipped = shutil.ignore_patterns("__pycache__", "*_test.py")
            shutil.copytree(ROOT / source, tmp_path / into, ignore=skipped)
    with contextlib.chdir(tmp_path / "packages" / "motet"):
        wheel = build_wheel(str(tmp_path))
    assert "motet/examples/notes/team.py" in ZipFile(tmp_path / wheel).namelist()


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_is_not_run_by_root_and_serves_with_a_key_and_a_health_check(path: Path) -> None:
    found = instructions(path)
    words = [word for word, _ in found]
    users = [line for word, line in found if word == "USER"]
    assert users == ["motet"]
    assert "useradd" in "".join(line for word, line in found if word == "RUN")
    assert words.index("USER") > max(k for k, word in enumerate(words) if word == "RUN")
    said = dict(found)
    assert "/health" in said["HEALTHCHECK"]
    assert '"--key-variable", "TEAM_KEY"' in said["CMD"]
    assert not any("KEY" in line for word, line in found if word in ("ENV", "ARG"))
