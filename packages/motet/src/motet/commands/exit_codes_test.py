"""How a command ends, and what it writes where the terminal cannot show it."""

import sys
from io import BytesIO, TextIOWrapper

from motet.commands import exit_codes
from motet.commands.exit_codes import ends_with_one_line


def test_characters_that_the_terminal_lacks_are_written_as_escapes(monkeypatch):
    monkeypatch.setattr(exit_codes, "_end_in_time", lambda code: None)
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, "ascii"))
    ends_with_one_line(lambda: print("h\xfcte \ufffd", flush=True))
    assert written.getvalue() == b"h\\xfcte \\ufffd\n"


def test_a_closed_standard_output_is_no_error(monkeypatch):
    monkeypatch.setattr(exit_codes, "_end_in_time", lambda code: None)
    monkeypatch.setattr(sys, "stdout", None)
    assert ends_with_one_line(lambda: print("text")) is None
