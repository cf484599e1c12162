"""Tests references to user objects, and the errors for invalid ones."""

import hashlib
import importlib
import sys

import pytest

from motet.errors import ConfigError
from motet.user_code.objects import keep
from motet.user_code.own_code import files_behind
from motet.user_code.plugins import code_behind, is_reference, load_object, look_at, nearest
from tests.fixtures.messages import facts


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
        ("broken.py:Mine", r"cannot be imported: SyntaxError.*broken\.py:1: class Mine\)"),
        ("raising.py:Mine", "cannot be imported: ZeroDivisionError"),
        ("no_such_package:Mine", "No module named"),
        (":Mine", r"names no file; expected \./file\.py:Mine or package\.module:Mine"),
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


def test_a_file_that_lies_here_is_named_in_place_of_one_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("class Mine: pass\n")
    with pytest.raises(ConfigError, match=r"old/mine\.py does not exist.* \./mine\.py:NAME"):
        load_object(f"{tmp_path}/old/mine.py:Mine")
    with pytest.raises(ConfigError, match=r"relative to the config$"):
        load_object(f"{tmp_path}/old/other.py:Mine")


def test_of_many_names_the_eight_nearest_are_said():
    with pytest.raises(ConfigError, match=r"it defines (\w+, ){8}\.\.\.$") as refused:
        load_object("os.path:joyn")
    assert "(did you mean 'join'?)" in str(refused.value)


def test_a_path_that_cannot_be_looked_at_is_said_and_one_that_cannot_be_is_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    looked = [look_at(tmp_path / name) for name in ("file", "", "none", "file/inside", "\0")]
    assert looked == ["file", "folder", "nothing", "nothing", "nothing"]
    with pytest.raises(ConfigError, match=facts("accessed: File name too long")) as refused:
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


def test_a_file_that_was_edited_is_loaded_again_within_the_same_second(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("PAID = 1\n\ndef pay():\n    return 1\n")
    first = load_object("./mine.py:pay", tmp_path)
    assert load_object("./mine.py:pay", tmp_path) is first
    file.write_text("PAID = 2\n\ndef pay():\n    return 2\n")  # of the same size
    again = load_object("./mine.py:pay", tmp_path)
    assert (first(), again()) == (1, 2)
    assert load_object("./mine.py:PAID", tmp_path) == 2
    assert load_object("./mine.py:pay", tmp_path) is again


def test_an_edited_module_beside_a_file_is_loaded_again_and_others_stay(tmp_path):
    (tmp_path / "mine_a.py").write_text("import beside_b, beside_c\npay = beside_b.pay\n")
    (tmp_path / "beside_b.py").write_text("from beside_d import BONUS\ndef pay(): return BONUS\n")
    (tmp_path / "beside_c.py").write_text("class Kept: pass\n")
    (tmp_path / "beside_d.py").write_text("BONUS = 1\n")
    (tmp_path / "mine_e.py").write_text("from beside_c import Kept\n")
    assert load_object("./mine_a.py:pay", tmp_path)() == 1
    kept = load_object("./mine_e.py:Kept", tmp_path)
    (tmp_path / "beside_d.py").write_text("BONUS = 2\n")
    assert load_object("./mine_a.py:pay", tmp_path)() == 2
    assert load_object("./mine_e.py:Kept", tmp_path) is kept
    assert load_object("./mine_a.py:beside_c", tmp_path).Kept is kept


def test_an_edited_module_and_its_package_are_loaded_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("BONUS = 1\n")
    (package / "pays.py").write_text("from .inner import BONUS\ndef pay(): return BONUS\n")
    assert load_object("own_package.pays:pay")() == 1
    (package / "inner.py").write_text("BONUS = 2\n")
    assert load_object("own_package.pays:pay")() == 2
    names = {path.name for path in code_behind("own_package.pays:pay")}
    assert names == {"__init__.py", "inner.py", "pays.py"}


def test_a_module_that_the_program_imported_before_an_edit_is_loaded_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_f.py").write_text("def pay(): return 1\n")
    old = importlib.import_module("imported_f").pay
    assert load_object("imported_f:pay") is old
    (tmp_path / "imported_f.py").write_text("def pay(): return 2\n")
    assert load_object("imported_f:pay")() == 2
    (tmp_path / "imported_g.py").write_text("def pay(): return 1\n")
    old = importlib.import_module("imported_g").pay
    (tmp_path / "imported_g.py").write_text("def pay(): return 3\n")
    assert (old(), load_object("imported_g:pay")()) == (1, 3)


def test_the_code_behind_a_reference_is_its_file_and_what_it_imports(tmp_path):
    (tmp_path / "mine_h.py").write_text(
        "import json, numpy, motet\ndef pay():\n    import beside_i\n    return beside_i.x\n"
    )
    (tmp_path / "beside_i.py").write_text("x = 1\n")
    load_object("./mine_h.py:pay", tmp_path)
    found = code_behind(f"{tmp_path}/mine_h.py:pay")
    assert {path.name for path in found} == {"mine_h.py", "beside_i.py"}
    assert found[tmp_path / "beside_i.py"] == hashlib.sha256(b"x = 1\n").hexdigest()[:12]
    assert code_behind("motet.environments.quickstart:Quickstart") == {}
    assert code_behind("./never.py:loaded") == {}


def test_looking_at_the_files_behind_code_runs_nothing(tmp_path):
    (tmp_path / "trap.py").write_text("import worse\nraise SystemExit\n")
    (tmp_path / "worse.py").write_text("from . import *\nfrom .. import x\n(")
    assert {path.name for path in files_behind(tmp_path / "trap.py")} == {"trap.py", "worse.py"}
    assert "worse" not in sys.modules


def test_the_hash_of_an_object_is_that_of_the_text_it_came_from(tmp_path, monkeypatch):
    """A process keeps a function whose file is edited: its hash may not become that of the text."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "objects_j.py").write_text("def pay(task, texts): return 1.0\n")
    module = importlib.import_module("objects_j")
    first = keep(module.pay)
    (tmp_path / "objects_j.py").write_text("def pay(task, texts): return 2.0\n")
    old = keep(module.pay)
    sys.modules.pop("objects_j")
    new = keep(load_object(f"{tmp_path}/objects_j.py:pay"))
    assert old.rpartition("@")[2] != new.rpartition("@")[2] != first.rpartition("@")[2]
