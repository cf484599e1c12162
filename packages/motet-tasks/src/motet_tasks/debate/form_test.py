import pytest

from motet_tasks.debate.form import length, repeats


def test_words_and_signs_are_counted():
    assert length("So 2 + 2 = 4.") == 7
    assert length("") == 0


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("no no no", False),
        ("no no no no", True),
        ("we add. we add. we add. we sum.", False),
        ("first we add. we add. we add. we add. last", True),
        ("7 7 7 7 7 7", False),
        ("7 = 7 = 7 = 7 = 7", True),
        (" ".join(["w" + str(number) for number in range(20)] * 4), True),
        (" ".join(["w" + str(number) for number in range(21)] * 4), False),
        ("", False),
    ],
)
def test_a_sequence_may_stand_three_times_in_a_row(text, repeated):
    assert repeats(text) == repeated
