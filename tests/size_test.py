"""What `make size` prints."""

from tests.size import code_lines, functions


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


def test_lines_of_code_are_those_without_blanks_comments_and_docstrings() -> None:
    text = (
        '"""Say what it is.\n\nAnd more."""\n'
        "\n"
        "A = 1  # code\n"
        '"""What A is."""\n'
        "# none\n"
        "class C:\n"
        '    """Say."""\n'
        "    field: int = (\n"
        "        2\n"
        "    )\n"
        '    """What the field is,\n    on two lines."""\n'
        "    def f(self):\n"
        '        """Say."""\n'
        "        self.f = 1\n"
        '        "a text that is no docstring"\n'
        '        return """two\nlines"""\n'
    )
    assert code_lines(text) == 10
