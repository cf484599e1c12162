from fractions import Fraction
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.environments.check import ODD_REPLIES
from motet_tasks.rewards.answers import boxed, number, read, same_number, written

TABLE = [
    # plain numbers
    ("72", "72"), ("1,200", "1200"), ("1,234,567", "1234567"), ("5.0", "5"), ("5.", "5"),
    (".5", "0.5"), ("-3", "-3"),
    ("+3", "3"),
    ("- 3", "-3"), ("\u22127", "-7"), ("\u20137", "-7"), ("007", "7"), ("1e3", "1000"),
    ("1.5e-3", "0.0015"), ("1/2", "0.5"),
    ("1 / 3", "1/3"), ("-1/2", "-0.5"), ("3 1/2", "3.5"), ("-3 1/2", "-3.5"), ("3\u00bd", "3.5"),
    ("1\u202f200", "1200"),
    # money, percent, units
    ("$5.00", "5"), ("$ 5", "5"), ("-$5", "-5"), ("$-5", "-5"), ("\u20ac1,200.50", "1200.5"),
    ("50%", "50"),
    ("72 clips", "72"),
    ("72 clips.", "72"), ("60 km/h", "60"), ("25 m^2", "25"), ("90\u00b0", "90"), ("5-day", "5"),
    ("(5)", "5"),
    ("**8**", "8"),
    # LaTeX
    (r"\boxed{72}", "72"), (r"So it is \boxed{72}.", "72"), (r"\boxed{\text{\$}1{,}200}", "1200"),
    (r"\boxed{\$1{,}200.50}", "1200.5"),
    (r"\boxed{10\,000}", "10000"), (r"\boxed{\frac{1}{2}}", "0.5"),
    (r"\boxed{-\frac{3}{4}}", "-0.75"),
    (r"\boxed{\dfrac12}", "0.5"),
    (r"\boxed{1\frac{1}{2}}", "1.5"), (r"\boxed{50\%}", "50"), (r"\boxed{72 \text{ clips}}", "72"),
    (r"\boxed{25\text{ cm}^{2}}", "25"),
    (r"\boxed{90^\circ}", "90"), (r"\boxed{x = 5}", "5"), (r"\boxed{48+24=72}", "72"),
    (r"\boxed{3 \times 10^{4}}", "30000"),
    (r"\boxed{3\times10^{-2}}", "0.03"), (r"\boxed{\approx 3.14}", "3.14"),
    (r"\boxed{\boxed{5}}", "5"),
    (r"$\boxed{18}$", "18"),
    (r"\boxed{10,\!000}", "10000"), (r"\\boxed{5}", "5"), (r"x \\\boxed{5}", "5"),
    (r"\boxed{5 \mathrm{~cm}}", "5"),
    (r"\boxed{\frac{1,200}{2}}", "600"), (r"\boxed{\text{18 dollars}}", "18"),
    (r"\boxed{\frac{x}{2}}", None),
    # several candidates
    (r"\boxed{1}, no: \boxed{2}", "2"), (r"\boxed{5} or \boxed{6", "5"),
    (r"\boxed{5} in \boxed{}", "5"),
    (r"{ \boxed{5}", "5"),
    (r"\boxed{7} #### 8 The answer is 9", "7"), ("#### 72", "72"),
    ("48/2=24\n#### $1,200\n", "1200"),
    ("#### 3\n#### -4", "-4"),
    ("#### Step 4: Final answer\nShe makes 18 dollars.\nThe answer is 18.", "18"),
    ("#### 4. Conclusion\nThe answer is 18.", "18"), ("#### **4) Sum**\nThe answer is 18.", "18"),
    ("#### Final Answer\n18", "18"), ("#### Total: 18 dollars\nThat is all.", "18"),
    ("#### 18.", "18"), ("#### **18**\nDone.", "18"), ("#### 18 apples", "18"),
    ("The answer is 72.", "72"), ("The answer is 5.5. I checked it 3 times.", "5.5"),
    ("The final answer is: **$18** a day", "18"),
    ("The answer is 48 + 24 = 72 clips.", "72"), ("The answer is 10/2 = 5.", "5"),
    ("Answer: -7", "-7"),
    ("The answer is (72).", "72"), ("The answer is 3-4.", None),
    ("**Answer:** 8", "8"), ("The answer is 12 eggs for 3 days.", "12"),
    ("The answer is 18 dollars, which is 9 * 2.", "18"),
    ("The answer is 7 (because 3 + 4).", "7"), ("The answer is 1,200, and that is all.", "1200"),
    ("The answer is:\n72", "72"), ("The answer is 1. Wait, the answer is 2.", "2"),
    ("In 3 days 5 left.\nSo 7 remain.", "7"),
    ("The answer is below.\n24 clips", "24"), ("48 / 2 = 24", "24"),
    (r"<think>\boxed{3}</think>\boxed{4}", "4"),
    # no answer, or more than one
    ("", None), ("no idea", None), (r"\boxed{}", None), (r"\boxed{x}", None),
    (r"\boxed{5, 6}", None),
    (r"\boxed{2+3}", None),
    (r"\boxed{x-3}", None), (r"\boxed{2^3}", None), (r"\boxed{5!}", None),
    (r"\boxed{\sqrt{4}}", None),
    (r"\boxed{2\pi}", None),
    (r"\boxed{5 \text{ hours } 30 \text{ minutes}}", None), (r"\boxed{12,34}", None),
    (r"\boxed{1000,000}", None),
    ("1/0", None),
    ("The answer is not 5.", None), ("The answer is not 5 but 6.", None),
    ("The answer is 48 + 24.", None), ("5 or 6", None),
    ("The answer is 5 or 6.", None), ("The answer is 5, 6", None),
    ("The answer is between 5 and 6.", None),
    ("The answer is 2 hours and 30 minutes.", None), ("The answer is 3:30 pm.", None),
    ("The answer is 5 (or -5).", None),
    ("So in 2 months she sold 72.", None), ("\u00b2", None), ("1e999999999", None),
    ("9" * 100, None),
    (r"\boxed{not 5}", None),
    (r"<think>\boxed{3}", None),
    # a number that is only part of the value
    (r"\boxed{10³}", None), (r"\boxed{√16}", None), (r"\boxed{|-5|}", None),
    ("The answer is 5².", None), ("#### 101₂", None),
    ("The answer is 0.(3).", None), ("The answer is 5, or 6.", None),
    ("The answer is 5, and 6.", None),
    ("The answer is 5 or maybe 6.", None), ("The answer is 5 hours, 30 minutes.", None),
    ("The answer is 2 ÷ 4.", None),
    ("The answer is 5 ± 1.", None), ("The answer is 3 and a half.", None),
    ("The answer is 3 and three quarters.", None),
    ("The answer is 1.5 million.", None), (r"\boxed{1.5 million}", None),
    ("The answer is 7 over 3", None),
    (r"\boxed{6 \text{ divided by } 3}", None), ("The answer is 5 and a bit.", "5"),
    ("The answer is 6 and that is all.", "6"),
    ("The answer is 7 dollars a day, as 3 + 4 is.", "7"), ("The answer is 5 m².", "5"),
    ("The answer is 9 millionaires.", "9"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_the_number_of_a_text(text, expected):
    found = number(text)
    assert (None if found is None else written(found)) == expected


@pytest.mark.parametrize("text", ODD_REPLIES.values(), ids=ODD_REPLIES)
def test_no_text_is_too_odd(text):
    assert number(text) == (1200 if text == "1,200" else None)


@given(st.text(alphabet="0123456789.,-+/=$%{}\\ \nabctexboxedframhi#e", max_size=60))
def test_every_text_has_a_number_or_none(text):
    assert isinstance(number(text), Fraction | None)
    assert isinstance(number(f"\\boxed{{{text}}}"), Fraction | None)


@given(st.fractions(min_value=-(10**12), max_value=10**12, max_denominator=10**6))
def test_what_is_written_is_read_again(value):
    assert read(written(value)) == value
    assert number(f"Some steps: 1, 2.\n\n\\boxed{{{written(value)}}}") == value


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_decimals_and_thousands_are_exact(units, places):
    value = Fraction(units, 10**places)
    sign, digits = "-" if units < 0 else "", str(abs(units)).rjust(places + 1, "0")
    whole, rest = (digits[:-places], "." + digits[-places:]) if places else (digits, "")
    assert read(f"{sign}${int(whole):,}{rest}") == value


@pytest.mark.parametrize(
    "long",
    ["\\boxed{" * 14_000, "\\boxed{" + " " * 50_000 + "}", "answer is 1" + " " * 50_000,
     "1," * 50_000, "-" + " " * 99_999,
     "answer is 1" + " = 1" * 20_000, "\\frac{" * 16_000, "\\times" + " " * 90_000, "{" * 100_000],
)  # fmt: skip
def test_long_texts_take_no_long_time(long):
    """Seconds here would be hours in a run. A regex that backtracks takes minutes."""
    begun = process_time()
    number(long)
    assert process_time() - begun < 5.0


def test_a_box_is_closed_not_empty_and_the_last_one():
    assert boxed(r"\boxed{a} \fbox{b{c}}") == "b{c}"
    assert boxed(r"\boxed {a} \boxed{ }") == "a"
    assert boxed(r"\boxed{\{1, 2\}}") == r"\{1, 2\}"
    assert boxed(r"\boxed{a") is None
    assert boxed("boxed{a}") is None


SAME = [
    ("0.33", "1/3"), ("0.333", "1/3"), ("0.333333", "1/3"), (".67", "2/3"), ("-0.33", "-1/3"),
    ("33.33%", "100/3"),
    ("3.33", "3.333333333"), ("10/3", "3.333333333"), ("3.3333333333333", "3.333333333"),
    ("1,234.57", "1234.5678"),
    ("0.13", "0.125"), ("0.12", "0.125"), ("-0.13", "-0.125"), ("12.35", "12.345"),
    ("12.34", "12.345"),
    ("3", "3.004"), ("3.00", "3.004"), ("2.5", "2.499"), ("0.0417", "1/24"), ("1/3", "0.333"),
    ("1.0000", "1"),
    ("0.05", "0.04999999999999999"), ("-0.05", "-0.050000000000000003"),
    ("0.001", "0.0009999999999999998"),
    ("0.3", "0.30000000000000004"), ("0.050", "0.0504"), ("0.1249", "0.125"), ("0.1251", "0.125"),
]  # fmt: skip
"""Pairs of an answer and a gold number that are equal, possibly after rounding one of them."""
OTHERS = [
    ("0.3", "1/3"), ("0.34", "1/3"), ("0.32", "1/3"), ("0.331", "1/3"), ("-0.33", "1/3"),
    ("3", "10/3"), ("3.3", "10/3"),
    ("3.331", "10/3"), ("0.14", "0.125"), ("0.11", "0.125"), ("0.1", "0.125"), ("33", "100/3"),
    ("0.3333", "33.333%"),
    ("1234.6", "1234.5678"), ("1235", "1234.5678"),
    ("0.05", "0.0506"), ("0.001", "0.0011"), ("0.1244", "0.125"), ("0", "0.0000001"),
    ("0", "0.004"), ("0.01", "0.0125"), ("0.07", "1/15"), ("0.04", "1/24"),
    ("72.004", "72"), ("0.504", "0.5"), ("2.999999", "3"), ("10/3", "3.33"), ("1/8", "0.13"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_a_gold_number_with_more_than_two_decimals_may_be_rounded_to_two_or_more(answer, gold):
    assert same_number(number(f"\\boxed{{{answer}}}"), number(f"\\boxed{{{gold}}}"))


@pytest.mark.parametrize(("answer", "gold"), OTHERS)
def test_a_number_that_was_rounded_further_or_is_another_is_wrong(answer, gold):
    assert not same_number(number(f"\\boxed{{{answer}}}"), number(f"\\boxed{{{gold}}}"))


@given(
    st.fractions(max_denominator=1000).filter(lambda gold: abs(gold) >= Fraction(1, 10)),
    st.integers(2, 6),
)
def test_what_python_rounds_to_two_or_more_decimals_is_the_same_number(gold, places):
    assert same_number(round(gold, places), gold)


def test_numbers_are_spelt_one_way():
    assert [
        written(Fraction(text)) for text in ("1200.00", "1/2", "-1/8", "1/3", "0", "-0.05")
    ] == ["1200", "0.5", "-0.125", "1/3", "0", "-0.05"]  # fmt: skip


def test_a_box_is_found_after_braces_and_among_backslashes_and_soon():
    assert boxed("}{{" + r"\\\boxed{a{b}}") == "a{b}"
    assert boxed(r"\\{\boxed{a}\}") == "a"
    begun = process_time()
    assert boxed("\\" * 300_000) is None
    assert process_time() - begun < 2.0, "trying every backslash again takes minutes"
