"""References to Python objects: where they came from, and when another process finds them."""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from motet.errors import ConfigError
from motet.user_code import objects
from motet.user_code.objects import (
    described,
    file_behind,
    found,
    is_found,
    is_object,
    keep,
    keep_rows,
)
from tests.fixtures.messages import facts

ROOT = Path(__file__).parents[5]


def by_module(task, texts):
    return 1.0


class Judge:
    def __init__(self, scale=1.0):
        self.scale = scale

    def score(self, task, texts):
        return self.scale


def test_a_reference_says_module_name_and_source():
    reference = keep(by_module)
    assert reference.startswith(f"object:{by_module.__module__}:by_module@")
    assert is_object(reference)
    assert found(reference) is by_module
    assert "the Python object by_module of module" in described(reference)


def test_the_hash_follows_source_and_values_not_identity():
    def made(bonus):
        return lambda task, texts: bonus

    assert keep(made(1.0)) == keep(made(1.0))
    assert keep(made(1.0)) != keep(made(2.0))
    assert keep(Judge(1.0)) == keep(Judge(1.0)) != keep(Judge(2.0))
    assert keep(lambda task, texts: 1.0) != keep(lambda task, texts: 2.0)


def test_tables_with_any_keys_belong_to_the_hash():
    def made(table):
        return lambda task, texts: table

    pairs = {("C", "C"): 3.0, ("C", "D"): 0.0}
    assert keep(made(pairs)) == keep(made(dict(pairs))) != keep(made({("C", "C"): 4.0}))
    assert keep(made({1: "a", "x": "b"})) != keep(made({1: "a", "x": "c"}))
    around: list[object] = [1]
    around.append(around)
    assert keep(made(around)) == keep(made(around))
    assert keep(Judge(pairs)) != keep(Judge({("C", "C"): 4.0}))


def test_rows_count_by_their_values():
    assert keep_rows([{"a": 1}], "train") == keep_rows([{"a": 1}], "train")
    assert keep_rows([{"a": 1}], "train") != keep_rows([{"a": 2}], "train")
    assert "the rows of data.train" in described(keep_rows([{"a": 1}], "train"))


def test_another_process_imports_a_function_with_the_same_source_and_nothing_else(monkeypatch):
    kept = {"function": keep(by_module), "instance": keep(Judge(2.0)), "lambda": keep(lambda: 1)}
    monkeypatch.setattr(objects, "_kept", {})
    module = by_module.__module__
    monkeypatch.setitem(sys.modules, module, sys.modules[module])
    assert found(kept["function"]) is by_module
    assert not is_found(kept["instance"])
    with pytest.raises(ConfigError, match=facts("not in this process … object")):
        found(kept["lambda"])
    changed = kept["function"][:-1] + ("0" if kept["function"][-1] != "0" else "1")
    assert not is_found(changed)


def test_what_a_main_script_defines_is_not_found_by_another_process():
    code = "from motet.user_code.objects import keep\ndef own(): pass\nprint(keep(own))"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert said.startswith("object:__main__:own@")
    assert not is_found(said)


def test_a_class_of_a_notebook_has_no_file_behind_it(monkeypatch):
    notebook = types.ModuleType("__main__")  # it has no __file__
    exec("class Own:\n    def score(self, task, texts):\n        return 1.0", vars(notebook))  # noqa: S102
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    assert file_behind(keep(notebook.Own())) is None
