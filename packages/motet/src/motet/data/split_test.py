import pytest

from motet.data.split import Percent, Split, parse_split
from motet.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("test", Split("test")),
        ("test[33:163]", Split("test", 33, 163)),
        ("train[:1000]", Split("train", None, 1000)),
        ("train[16:]", Split("train", 16)),
        ("train[:80%]", Split("train", None, Percent(80))),
        ("train[-50:]", Split("train", -50)),
        ("train_r1[:-5%]", Split("train_r1", None, Percent(-5))),
        (" validation[:] ", Split("validation")),
    ],
)
def test_expressions_of_the_hub_are_read(text, split):
    assert parse_split(text) == split


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("test", range(0, 10)),
        ("test[3:5]", range(3, 5)),
        ("test[:1000]", range(0, 10)),
        ("test[8:]", range(8, 10)),
        ("test[-3:]", range(7, 10)),
        ("test[:-3]", range(0, 7)),
        ("test[:80%]", range(0, 8)),
        ("test[80%:]", range(8, 10)),
        ("test[:33%]", range(0, 3)),
        ("test[-20%:]", range(8, 10)),
        ("test[10:]", range(10, 10)),
    ],
)
def test_slices_count_as_python_does(text, rows):
    assert parse_split(text).rows(10) == rows


def test_shares_that_meet_leave_no_row_out():
    first, second = parse_split("train[:33%]"), parse_split("train[33%:]")
    assert [*first.rows(101), *second.rows(101)] == list(range(101))


@pytest.mark.parametrize(
    "text",
    [
        "test[33-163]", "test(33:163)", "train[1000]", "train[16:", "train[:80 %", "train[a:b]",
        "train[:80%]x", "[:5]", "", "test[1:2:3]",
    ],
)  # fmt: skip
def test_what_cannot_be_read_names_the_valid_forms(text):
    with pytest.raises(ConfigError, match=r"expected name, name\[a:b\] or name\[a%:b%\]"):
        parse_split(text)


def test_rows_and_percent_do_not_mix():
    with pytest.raises(ConfigError, match="mixes rows and percent"):
        parse_split("train[10:80%]")


def test_more_than_all_rows_is_refused():
    with pytest.raises(ConfigError, match="got 120% in a split; expected -100% to 100%"):
        parse_split("train[:120%]")


def test_a_bound_of_five_thousand_digits_is_one_line():
    with pytest.raises(ConfigError, match="expected name, name") as refused:
        parse_split(f"train[:{'9' * 5000}]")
    assert len(str(refused.value)) < 600
