"""What a wheel of Motet holds: the package, and neither its tests nor their fixtures.

pip builds it without a network, so with the build backend that is installed.
"""

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest

REPOSITORY = Path(__file__).parent.parent
METADATA = re.compile(r"motet-[^/]+\.dist-info/")
TEST = re.compile(r"(_test|conftest)\.py$")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", folder, REPOSITORY],
        check=True,
        timeout=120,
    )
    (built,) = folder.glob("*.whl")
    return ZipFile(built)


def test_a_wheel_holds_all_code_of_the_package_and_no_test(wheel: ZipFile) -> None:
    held = {name for name in wheel.namelist() if not METADATA.match(name)}
    code = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "motet").rglob("*.py")
        if not TEST.search(path.name)
    }
    page = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "motet/viewer/static").rglob("*")
        if path.is_file()
    }
    assert "motet/viewer/static/vendor/uPlot.LICENSE" in page
    assert held == code | page | {"motet/py.typed"}


def test_a_wheel_has_the_command_and_the_licence(wheel: ZipFile) -> None:
    about = {METADATA.sub("", name): name for name in wheel.namelist() if METADATA.match(name)}
    assert "licenses/LICENSE" in about
    scripts = ConfigParser()
    scripts.read_string(wheel.read(about["entry_points.txt"]).decode())
    assert dict(scripts["console_scripts"]) == {"motet": "motet.cli:main"}
