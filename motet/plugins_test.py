"""Tests references to user objects, and the errors for invalid ones."""

import sys

import pytest

from motet.errors import ConfigError
from motet.plugins import is_reference, load_object, look_at, nearest


def test_the_nearest_name_is_offered_and_a_far_one_is_not():
    assert nearest("magrp", ["magrpo", "marloo"]) == " (did you mean 'magrpo'?)"
    assert nearest("zebra", ["magrpo", "marloo"]) == ""


def test_a_reference_names_a_module_or_a_file():
    assert is_reference("package.module:Name")
    assert is_reference("./file.py:Name")
    assert not is_reference("quickstart")


def test_objects_come_from_modules_and_from_files(tmp_path):
    (tmp_path / "mine.py").write_text("class Mine: pass\n")
    assert load_object("motet.core:Task").__name__ == "Task"
    mine = load_object("mine.py:Mine", tmp_path)
    assert mine is load_object(f"{tmp_path}/mine.py:Mine"), (
        "one file is one module, however it is named"
    )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("absent.py:Mine", "does not exist"),
        ("mine.py:Mime", r"did you mean 'Mine'"),
        ("broken.py:Mine", "cannot be imported: SyntaxError"),
        ("raising.py:Mine", "cannot be imported: ZeroDivisionError"),
        ("no_such_package:Mine", "No module named"),
        (":Mine", "expected an importable"),
        ("motet_raises:Mine", r"division by zero \(.*raises.py:1 in .*\); expected an importable"),
        ("motet.core:Tusk", r"did you mean 'Task'"),
    ],
)
def test_what_leads_nowhere_is_one_clear_error(tmp_path, monkeypatch, reference, message):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "motet_raises.py").write_text("1 / 0\n")
    (tmp_path / "mine.py").write_text("class Mine: pass\n")
    (tmp_path / "broken.py").write_text("class Mine\n")
    (tmp_path / "raising.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=message):
        load_object(reference, tmp_path)


def test_of_many_names_the_eight_nearest_are_said():
    with pytest.raises(ConfigError, match=r"it defines (\w+, ){8}\.\.\.$") as refused:
        load_object("os.path:joyn")
    assert "(did you mean 'join'?)" in str(refused.value)


def test_a_path_that_cannot_be_looked_at_is_said_and_one_that_cannot_be_is_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    looked = [look_at(tmp_path / name) for name in ("file", "", "none", "file/inside", "\0")]
    assert looked == ["file", "folder", "nothing", "nothing", "nothing"]
    with pytest.raises(ConfigError, match="cannot be accessed: File name too long") as refused:
        look_at(tmp_path / ("x" * 5000))
    assert len(str(refused.value)) < 400


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_file_imports_the_modules_beside_it(tmp_path):
    one = write(tmp_path / "one", game="from points import POINTS\n", points="POINTS = 1\n")
    two = write(tmp_path / "two", game="from points import POINTS\n", points="POINTS = 2\n")
    before = list(sys.path)
    assert load_object("game.py:POINTS", one) == 1
    assert load_object("game.py:POINTS", two) == 2, "a file gets the modules of its own folder"
    assert sys.path == before


def test_a_module_beside_a_file_gets_the_same_classes_from_it(tmp_path):
    write(
        tmp_path,
        host="class Base: pass\nfrom guest import Derived\n",
        guest="from host import Base\nclass Derived(Base): pass\n",
    )
    base, derived = (load_object(f"host.py:{name}", tmp_path) for name in ("Base", "Derived"))
    assert issubclass(derived, base)
    assert "host" not in sys.modules


def test_a_file_named_like_a_library_does_not_replace_it(tmp_path):
    write(tmp_path, random="import json\nX = json.dumps([1])\n")
    library = sys.modules["random"]
    assert load_object("random.py:X", tmp_path) == "[1]"
    assert sys.modules["random"] is library


def test_a_circular_import_is_named_with_its_files(tmp_path):
    write(
        tmp_path,
        first="from second import B\nA = 1\n",
        second="from first import A\nB = 2\n",
    )
    expected = r"circular import, first.py -> second.py -> first.py: .*: move what both need"
    with pytest.raises(ConfigError, match=expected):
        load_object("first.py:A", tmp_path)


def test_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch):
    write(tmp_path, motet_here="from motet_beside import Y\n", motet_beside="Y = 3\n")
    monkeypatch.chdir(tmp_path)
    assert load_object("motet_here:Y") == 3


def test_a_folder_with_a_main_program_leaves_ours_alone(tmp_path):
    (tmp_path / "__main__.py").write_text("")
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "own.py").write_text("class Own: pass\n")
    before = sys.modules["__main__"]
    assert load_object(f"{tmp_path}/own.py:Own").__name__ == "Own"
    assert sys.modules["__main__"] is before
