from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codejudge import Call, Limits, Raised, Returned, Sandbox
from codejudge.errors import SandboxError
from tests.fixtures.messages import facts


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1, packages=("numpy",)) as made:
        yield made


def answer(sandbox: Sandbox, source: str, limits: Limits | None = None) -> Any:
    report = sandbox.run_sync([source], [Call("main")], limits)
    assert report.failure is None, report
    (got,) = report.calls
    return got.value if isinstance(got, Returned) else got


def test_programs_with_numpy_run(sandbox: Sandbox) -> None:
    source = """
import numpy as np
from numpy.linalg import inv
def main():
    grid = np.arange(6).reshape(2, 3)
    return (grid.sum(axis=0).tolist(), np.round(inv(2 * np.eye(2)), 3).tolist(), \
np.fft.fft([1, 0]).real.tolist(),
            float(np.polynomial.Polynomial([1, 2])(3)), str(np.array([1.5, 2])), \
np.median([3, 1, 2]).item())
"""
    assert answer(sandbox, source) == (
        [3, 5, 7],
        [[0.5, 0.0], [0.0, 0.5]],
        [1.0, 1.0],
        7.0,
        "[1.5 2. ]",
        2.0,
    )


def test_matrix_products_need_no_threads(sandbox: Sandbox) -> None:
    source = (
        "import numpy as np\n"
        "def main(): return (np.ones((400, 400)) @ np.ones((400, 400))).sum().item()"
    )
    assert answer(sandbox, source) == 400.0**3


def test_modules_of_a_package_that_only_a_text_names_are_loaded_in_time(sandbox: Sandbox) -> None:
    source = "import numpy.lib.recfunctions as late\ndef main(): return late.__name__"
    assert answer(sandbox, source) == "numpy.lib.recfunctions"


def test_the_limit_of_memory_is_for_the_program_and_not_for_its_packages(sandbox: Sandbox) -> None:
    source = "import numpy as np\ndef main(): return len(np.ones({} << 17))"  # {} is in MB
    limits = Limits(memory_mb=200)
    assert answer(sandbox, source.format(100), limits) == 100 << 17
    refused = answer(sandbox, source.format(250), limits)
    assert isinstance(refused, Raised)
    assert "MemoryError" in refused.kind


def test_random_numbers_are_the_same_on_every_server(sandbox: Sandbox) -> None:
    source = "import numpy\ndef main(): return numpy.random.rand(3).tolist()"
    with Sandbox(workers=1, packages=("numpy",)) as other:
        assert answer(sandbox, source) == answer(other, source)


@pytest.mark.parametrize("absent", ["pydantic", "yaml", "torch", "pip", "pytest", "codejudge.pool"])
def test_a_package_that_was_not_allowed_is_absent(absent: str, sandbox: Sandbox) -> None:
    report = sandbox.run_sync([f"import {absent}"], [])
    assert report.failure == "raised"
    assert "ModuleNotFoundError" in report.message


def test_numpy_is_absent_unless_it_is_allowed() -> None:
    with Sandbox(workers=1) as plain:
        assert (
            plain.run_sync(["import numpy"], []).message
            == "ModuleNotFoundError: No module named 'numpy'"
        )


def test_no_folder_of_packages_is_left_to_search(sandbox: Sandbox) -> None:
    source = """
import sys
def main():
    outside = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)
    return [path for path in sys.path if 'packages' in path], \
[str(finder) for finder in sys.meta_path][0], sorted(outside)
"""
    folders, first_finder, outside = answer(sandbox, source)
    assert (folders, "Gate" in first_finder) == ([], False)
    assert {"numpy", "candidate"} <= set(outside)
    assert not {"pydantic", "torch", "yaml", "site"} & set(outside)


def test_a_program_is_not_better_off_with_packages(sandbox: Sandbox) -> None:
    source = """
import os, numpy
def main():
    left = []
    for attempt in (lambda: open('/etc/passwd'), lambda: os.fork(), \
lambda: numpy.fromfile('/etc/passwd'),
                    lambda: numpy.memmap('/tmp/x', mode='w+', shape=1), \
lambda: numpy.save('/tmp/x', numpy.ones(3)),
                    lambda: numpy.ctypeslib.load_library('libc', '/')):
        try: left.append(str(attempt()))
        except (OSError, ImportError): pass
    return left
"""
    assert answer(sandbox, source) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("nunpy",), "nunpy … installed … pip install nunpy"),
        (
            ("numpy", "sklearn_absent.tree"),
            "sklearn_absent … installed … pip install sklearn_absent",
        ),
        ("numpy", "packages … string 'numpy' … expected a list such as ['numpy']"),
    ],
)
def test_a_package_that_is_not_installed_is_a_config_error(
    names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SandboxError, match=facts(message)):
        Sandbox(workers=1, packages=names)


def package(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return name


def test_what_a_package_imports_must_be_allowed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "lower", "value = 7")
    package(
        tmp_path,
        "upper",
        "try: import pydantic\nexcept ImportError: pydantic = None\nfrom lower import value",
    )
    with pytest.raises(SandboxError, match=facts("got upper … expected lower … imports")):
        Sandbox(workers=1, packages=("upper",))
    with Sandbox(workers=1, packages=("upper", "lower")) as sandbox:
        source = "import upper\ndef main(): return upper.value, upper.pydantic"
        assert answer(sandbox, source) == (7, None)


def test_a_package_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    broken = package(tmp_path, "broken", "raise RuntimeError('no such processor')")
    with pytest.raises(SandboxError, match="importing them fails: RuntimeError: no such processor"):
        Sandbox(workers=1, packages=(broken,))
