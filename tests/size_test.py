"""What `make size` prints."""

from tests.size import functions


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
