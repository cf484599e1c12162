"""Tests references to user objects, and the errors for invalid ones."""

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
        ("motet_raises:Mine", "division by zero; expected an importable"),
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
