"""What the wheels hold, and that each of them works alone, installed in an empty environment.

The build backend that is installed builds them, without a network. The environments have no
packages of their own but the wheels; what the wheels require is found where the tests run.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.build import build_wheel

from motet.user_code.installed import EXTRAS
from tests.fixtures.wide import widely

PACKAGES = Path(__file__).parent.parent / "packages"
NAMES = sorted(path.name for path in PACKAGES.iterdir() if (path / "pyproject.toml").is_file())
METADATA = re.compile(r"[a-z_]+-[^/]+\.dist-info/")
OWN = re.compile(r"motet|codejudge|_*editable|.*\.pth$")
"""What belongs to the packages of this repository where they are installed for editing."""
TEST = re.compile(r"(_test|conftest)\.py$")
OPTIONAL = re.compile(r"matplotlib|mpl_toolkits|pylab|tensorboard|pandas|datasets|pyarrow")
"""What the core runs without. The environment of the core alone has none of it."""


def described(name: str) -> dict:
    return tomllib.loads((PACKAGES / name / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build all wheels: package -> file."""
    folder = tmp_path_factory.mktemp("wheels")
    built = {}
    for name in NAMES:
        assert described(name)["build-system"]["build-backend"] == "hatchling.build"
        with contextlib.chdir(PACKAGES / name):
            built[name] = folder / build_wheel(str(folder))
    return built


@pytest.fixture(scope="module")
def core(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with motet, and no other package but codejudge."""
    folder = tmp_path_factory.mktemp("core") / "environment"
    return environment_of(folder, [wheels[each] for each in ("motet", "codejudge")], OPTIONAL)


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_holds_all_files_of_its_package_and_no_test(wheels, name: str) -> None:
    held = {each for each in ZipFile(wheels[name]).namelist() if not METADATA.match(each)}
    home = PACKAGES / name / "src"
    expected = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not TEST.search(path.name)
    }
    if name == "motet":
        expected |= {f"motet/examples/{path}" for path in examples()}
    assert held == expected


def examples() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "."],
        cwd=PACKAGES.parent / "examples",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_wheels_hold_configs_the_page_of_the_viewer_and_the_card_of_exports(wheels) -> None:
    held = {name: ZipFile(path).namelist() for name, path in wheels.items()}
    assert "motet/configs/quickstart.yaml" in held["motet"]
    for name in NAMES:
        assert f"{name.replace('-', '_')}/py.typed" in held[name]
    assert "motet_tasks/configs/humaneval.yaml" in held["motet-tasks"]
    assert "motet_view/static/vendor/uPlot.LICENSE" in held["motet-view"]
    assert "motet_serve/exports/card.md.jinja" in held["motet-serve"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_has_the_licence_and_a_page_that_says_what_it_is(wheels, name: str) -> None:
    wheel = ZipFile(wheels[name])
    about = {METADATA.sub("", each): each for each in wheel.namelist() if METADATA.match(each)}
    assert "licenses/LICENSE" in about
    text = wheel.read(about["METADATA"]).decode()
    page = text.partition("\n\n")[2]
    assert page.startswith(f"# {name}")
    assert len(page.splitlines()) > 10
    summary = re.search(r"^Summary: (.+)$", text, re.MULTILINE)
    assert summary is not None
    if name == "motet":
        scripts = ConfigParser()
        scripts.read_string(wheel.read(about["entry_points.txt"]).decode())
        assert dict(scripts["console_scripts"]) == {"motet": "motet.commands.main:main"}


def test_an_error_names_the_extra_of_everything_that_the_wings_register() -> None:
    registered = {}
    for name in NAMES:
        if name in ("motet", "codejudge"):
            continue
        points = described(name)["project"]["entry-points"]
        registered[name.removeprefix("motet-")] = {
            group.removeprefix("motet."): tuple(sorted(entries))
            for group, entries in points.items()
            if group.startswith("motet.") and group != "motet.configs"
        }
        folder = PACKAGES / name / "src" / name.replace("-", "_") / "configs"
        if "motet.configs" in points:
            files = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.yaml"))
            registered[name.removeprefix("motet-")]["configs"] = tuple(sorted(map(str, files)))
    assert registered == {
        extra: {group: tuple(sorted(names)) for group, names in groups.items()}
        for extra, groups in EXTRAS.items()
    }
    extras = described("motet")["project"]["optional-dependencies"]
    assert set(registered) <= set(extras)


def environment_of(folder: Path, wheels: list[Path], without: re.Pattern[str] = OWN) -> Path:
    """Make an environment with these wheels and return its Python.

    It has links to the libraries of the tests' own environment, and to no package of this
    repository. `without`: nor to these.
    """
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for wheel in wheels:
        ZipFile(wheel).extractall(site)
    for path in (Path(each) for each in sys.path if each.endswith("site-packages")):
        for entry in path.iterdir():
            link = site / entry.name
            left_out = OWN.match(entry.name) or without.match(entry.name)
            if not left_out and not link.exists():
                link.symlink_to(entry)
    return folder / "bin" / "python"


def needed_by(name: str) -> list[str]:
    """Return a package and the packages of this repository that it requires, also indirectly."""
    found: dict[str, None] = {}
    ahead = [name]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found[one] = None
            words = described(one)["project"]["dependencies"]
            ahead += [word for word in (re.split(r"[\[<>=]", w)[0] for w in words) if word in NAMES]
    return list(found)


ALONE = {
    "codejudge": """
import codejudge
with codejudge.Sandbox(workers=1) as sandbox:
    verdict = sandbox.judge_sync(["def f(x): return x + 1"],
                                 codejudge.Suite.asserts(("assert f(1) == 2", "assert f(1) == 3")))
print([case.status for case in verdict.cases])
""",
    "motet": """
import motet
summary = motet.train("quickstart", SMALL, show="silent")
(no_curve,) = (line for line in summary.warnings if "curve" in line)
print(summary.steps, no_curve)
""",
    "motet-tasks": """
import motet
print(motet.train("bugfix_tiny", SMALL, show="silent").steps)
""",
    "motet-published": """
from motet_published import published, translate
print("ok")
""",
    "motet-view": """
from motet_view.app import STATIC
from motet.user_code.installed import load
for name in ("episodes", "view"):
    load("commands", name)
print((STATIC / "index.html").is_file())
""",
    "motet-serve": """
import motet_serve
from motet.user_code.installed import load
for name in ("chat", "export", "serve"):
    load("commands", name)
print(motet_serve.chat("debate_magrpo", ["warmup=null"], lines=["12+39"], seed=1, show="silent",
                       write=lambda text: None, complain=lambda text: None))
""",
    "motet-verifier": """
import motet_verifier
from motet.user_code.installed import load
load("commands", "verifier"), load("verifiers", "folder")
print(motet_verifier.sample_answers.__name__)
""",
    "motet-cluster": """
import motet
print([home.name for home in motet.dry_run("quickstart", ["cluster.learners.gpus=0"]).homes])
""",
    "motet-compare": """
import motet_compare
from motet.user_code.installed import load
for name in ("baselines", "compare", "crossplay", "diagnose", "messages", "replay"):
    load("commands", name)
print(motet_compare.compare.__name__)
""",
    "motet-foreign": """
import sys
from motet.user_code.installed import load
for name in ("openenv", "pettingzoo", "textarena", "verifiers"):
    load("environments", name)
print({"openenv", "pettingzoo", "textarena", "verifiers"} & set(sys.modules))
""",
}
"""Package -> a program that uses it, in an empty folder."""
SMALL = """
SMALL = ["train.steps=1", "train.tasks_per_step=1", "warmup.steps=2", "evaluation.tasks=2",
         "threads=1"]
"""
SAYS = {
    "codejudge": "['passed', 'failed']",
    "motet": '1 no curve is drawn without matplotlib: pip install "motet[plots]"',
    "motet-tasks": "1",
    "motet-published": "ok",
    "motet-view": "True",
    "motet-serve": "0",
    "motet-verifier": "sample_answers",
    "motet-cluster": "['aux', 'main']",
    "motet-compare": "compare",
    "motet-foreign": "set()",
}


ALONE_THERE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def said(python: Path, place: Path, *words: str) -> str:
    """Run Python in a folder and return what it printed."""
    done = subprocess.run(
        [python, *words], cwd=place, env=ALONE_THERE, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", widely(NAMES, keep=["codejudge", "motet"]))
def test_a_package_works_alone_in_an_empty_environment(
    wheels: dict[str, Path], core: Path, tmp_path: Path, name: str
) -> None:
    needed = needed_by(name)
    python = (
        core
        if name == "motet"
        else environment_of(tmp_path / "environment", [wheels[each] for each in needed])
    )
    place = tmp_path / "empty"
    place.mkdir()
    modules = [each.replace("-", "_") for each in NAMES]
    there = json.loads(
        said(
            python,
            place,
            "-c",
            "import importlib.util, json; "
            f"print(json.dumps([name for name in {modules} if importlib.util.find_spec(name)]))",
        )
    )
    assert set(there) == {each.replace("-", "_") for each in needed}
    assert said(python, place, "-c", SMALL + ALONE[name]).splitlines()[-1] == SAYS[name]


COMMANDS = """
import contextlib, io, json, sys
from motet.commands.main import main
said = []
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.suppress(SystemExit):
        main()
    said.append(errors.getvalue())
print(json.dumps(said))
"""
"""Runs several commands in one process, and prints what each of them wrote as an error."""


@pytest.mark.wide
def test_what_is_not_installed_is_one_line_that_names_the_extra(core: Path, tmp_path: Path) -> None:
    homes = ("train", "quickstart", "cluster.learners.gpus=0")
    extra_of = {
        ("view", "runs/quickstart", "--no-open"): "view",
        ("episodes", "runs/quickstart", "--worst", "3"): "view",
        ("chat", "runs/quickstart"): "serve",
        ("export", "runs/quickstart", "--into", "team"): "serve",
        ("plan", "quickstart"): "cluster",
        ("verifier", "sample", "debate"): "verifier",
        ("check", "quickstart", "environment=bug_fix"): "tasks",
        ("train", "quickstart", "report.tensorboard=true"): "tensorboard",
        homes: "cluster",
        (*homes, "--dry-run"): "cluster",
    }
    found = json.loads(said(core, tmp_path, "-c", COMMANDS, json.dumps(list(extra_of))))
    for errors, (words, extra) in zip(found, extra_of.items(), strict=True):
        (line,) = errors.splitlines()
        assert f"motet[{extra}]" in line, words
        assert "pip install" in line, words
