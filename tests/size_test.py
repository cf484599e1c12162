"""No file is over 350 lines, and no function over 60. Split what is too long."""

from tests.size import functions, long_files, long_functions, sources


def test_no_file_is_over_350_lines() -> None:
    assert long_files(sources()) == {}


def test_no_function_is_over_60_lines() -> None:
    assert long_functions(sources()) == {}


def test_lines_of_functions_are_counted_from_def_to_end() -> None:
    text = (
        "def f():\n"
        "    def g():\n"
        "        return 1\n"
        "    return g\n"
        "class C:\n"
        "    async def h(self):\n"
        '        """Say."""\n'
    )
    assert dict(functions(text)) == {"f": 4, "f.g": 2, "C.h": 2}


def test_the_bounds_themselves_are_allowed() -> None:
    texts = {"file.py": "x = 1\n" * 350, "long.py": "x = 1\n" * 351}
    assert long_files(texts) == {"long.py": 351}
    texts = {
        "a.py": "def f():\n" + "    x = 1\n" * 59,
        "b.py": "class C:\n    def f(self):\n" + "        x = 1\n" * 60,
    }
    assert long_functions(texts) == {"b.py: C.f": 61}
