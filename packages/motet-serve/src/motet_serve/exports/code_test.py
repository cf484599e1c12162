"""A user's own files come with the modules beside them that they import."""

import pytest

from motet.errors import ConfigError
from motet_serve.exports.code import CodeFiles
from tests.fixtures.messages import facts


def test_a_file_comes_with_what_it_imports_from_its_folder(tmp_path):
    home, out = tmp_path / "home", tmp_path / "out"
    (home / "parts").mkdir(parents=True)
    (home / "own.py").write_text("import json\nfrom first import two\n\nthree = two + 1\n")
    (home / "first.py").write_text("import parts.last\n\ntwo = parts.last.one + 1\n")
    (home / "parts" / "last.py").write_text("one = 1\n")
    (home / "unused.py").write_text("raise RuntimeError\n")
    code = CodeFiles(out)
    assert code.moved(f"{home}/own.py:three") == "./code/own.py:three"
    assert sorted(code.copied) == ["code/first.py", "code/own.py", "code/parts/last.py"]
    code.check()
    assert not list(out.rglob("*.pyc"))


def test_files_of_two_folders_do_not_meet(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(f"value = {name!r}\n")
    code = CodeFiles(tmp_path / "out")
    found = [code.moved(f"{tmp_path}/{name}/own.py:value") for name in ("a", "b")]
    assert found == ["./code/own.py:value", "./code-2/own.py:value"]
    assert (tmp_path / "out" / "code-2" / "own.py").read_text() == "value = 'b'\n"


def test_what_is_missing_or_not_python_is_named(tmp_path):
    code = CodeFiles(tmp_path / "out")
    with pytest.raises(ConfigError, match=facts("own.py does not exist … value")):
        code.moved(f"{tmp_path}/own.py:value")
    (tmp_path / "own.py").write_text("value =\n")
    code.moved(f"{tmp_path}/own.py:value")
    with pytest.raises(ConfigError, match=facts("copy … own code … SyntaxError")):
        code.check()
    (tmp_path / "own.py").write_text("other = 1\n")
    code.moved(f"{tmp_path}/own.py:value")
    with pytest.raises(ConfigError, match=facts("copy … own code … no 'value'")):
        code.check()
