from motet.errors import ConfigError, shortened


def test_what_is_short_is_left_as_it_is() -> None:
    assert shortened("x" * 200) == "x" * 200
    assert str(ConfigError("one line\nand another")) == "one line\nand another"
    assert str(ConfigError()) == ""


def test_what_is_long_keeps_its_beginning_and_its_end() -> None:
    text = shortened("a" * 300 + "b" * 300, 100, 20)
    assert (len(text), text) == (100, "a" * 75 + " ... " + "b" * 20)


def test_no_line_of_a_message_is_as_long_as_what_it_repeats() -> None:
    first, second = str(
        ConfigError(f"name is {'x' * 10_000}; expected a short one\nname: it is long")
    ).split("\n")
    assert len(first) == 1500
    assert first.startswith("name is xxx")
    assert first.endswith("xxx; expected a short one")
    assert second == "name: it is long"
