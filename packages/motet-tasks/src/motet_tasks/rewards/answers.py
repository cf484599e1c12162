r"""Extract the final number of a completion as an exact fraction. No float is used.

    number("... so she pays \boxed{\$1{,}200.50}.") == Fraction(2401, 2)

The final answer is searched in this order:

1. the content of the last `\boxed{...}`;
2. the text after the last `####`, unless that begins a heading: `#### Step 4` or `#### 4. Sums`;
3. the text after the last "answer is";
4. the last line.

An ambiguous answer gives None, never a guess.
"""

import re
from fractions import Fraction

from motet_tasks.rewards.spoken import spoken

MOST_CHARACTERS = 400_000
"""Maximum number of characters read from a completion, counted from its start."""
_LONGEST = 1000
"""Maximum length, in characters, of a string that is searched for a number."""
_MOST_DIGITS = 60
"""Maximum length of a number, and maximum absolute exponent.

Longer numbers are never a real answer, and arithmetic with them is slow.
"""
_FEWEST_DECIMALS, _FEWEST_DIGITS = 2, 2
"""Decimals and significant digits that a rounded number must keep.

Significant digits count from the first digit that is not zero.
"""


def number(text: str) -> Fraction | None:
    """Return the final number of a text; None if there is none, or more than one."""
    text = spoken(text[:MOST_CHARACTERS])
    box = boxed(text)
    if box is not None:
        return read(box)
    marked = text.rpartition("####")
    statement = marked[2].lstrip().partition("\n")[0]
    if marked[1] and not _HEADING.match(statement):
        return read(statement)
    *_, said = (None, *_SAYS.finditer(text))
    statement = "" if said is None else text[said.end() :].lstrip(" \t\r\n*_`$:").partition("\n")[0]
    if re.search("[0-9]", statement):
        return _first(statement)
    return read(text.strip().rpartition("\n")[2])


def same_number(answer: Fraction, gold: Fraction) -> bool:
    """Test whether `answer` equals `gold`, exactly or after rounding.

    Rounding is allowed only if `gold` has more than two decimals. Then one number must be the other
    one, rounded to two or more decimals. 0.33 and 0.333333 match 1/3. A half may be rounded up or
    down: 0.12 and 0.13 match 0.125. A rounded number must keep two significant digits: 0.07 does
    not match 1/15, and 0 does not match 0.004. `gold` may itself be rounded: 1/3 matches 0.333.
    """
    if answer == gold:
        return True
    exact = gold * 10**_FEWEST_DECIMALS % 1 == 0
    return not exact and (_rounded(gold, answer) or _rounded(answer, gold))


def _rounded(value: Fraction, to: Fraction) -> bool:
    """Test whether `to` is `value`, rounded to the number of decimals of `to`.

    A Fraction has no trailing zeros. So 3 counts as 3.00. 0.05, which has one significant digit,
    counts as 0.050.
    """
    places = _decimals(to)
    if places is None or to == 0:
        return False
    unit = Fraction(1, 10 ** max(places, _FEWEST_DECIMALS))
    while abs(to) < unit * 10 ** (_FEWEST_DIGITS - 1):
        unit /= 10
    return abs(value - to) <= unit / 2


def _decimals(value: Fraction) -> int | None:
    """Return the number of decimals; None if the decimal expansion does not end."""
    rest = value.denominator
    twos = fives = 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


def written(value: Fraction) -> str:
    """Write a number in its one canonical form: 1200, 0.5, 1/3."""
    places = _decimals(value)
    if places is None or places > 12:
        return str(value)
    digits = f"{abs(value.numerator) * 10**places // value.denominator:0{places + 1}}"
    whole, rest = digits[: len(digits) - places], digits[len(digits) - places :]
    return ("-" if value < 0 else "") + whole + (f".{rest}" if rest else "")


# ---------------------------------------------------------------------------- where the answer is

_BOX = re.compile(r"(?<!\\)\\++(?:boxed|fbox)\s*\{")
"""The pattern is tried once per run of backslashes, not again at each backslash of the run."""
_BRACE = re.compile(rf"{_BOX.pattern}|\\[{{}}\\]|[{{}}]")
_HEADING = re.compile(
    r"[*_`\s]*(?:(?:step|part|case|section|problem|question|solution)\b|[0-9]+[.)]\s+[*_`]*[a-z])"
    r"|[^0-9]*\Z",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\banswer\b[\s*_`]*(?:is|was|equals|would be|must be|should be|[:=])(?!\s+not\b)",
    re.IGNORECASE,
)


def boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` that is closed and not empty; None if none."""
    first = _BOX.search(text)  # braces before the first box do not matter
    if first is None:
        return None
    opened: list[int | None] = []  # start of each open box's content; None for any other brace
    last, found = -1, None
    for brace in _BRACE.finditer(text, first.start()):
        if brace.group() in ("\\{", "\\}", "\\\\"):
            continue
        if brace.group() != "}":
            opened.append(brace.end() if brace.group() != "{" else None)
        elif opened:
            begun = opened.pop()
            if begun is not None and begun > last and text[begun : brace.start()].strip():
                last, found = begun, text[begun : brace.start()]
    return found


# ------------------------------------------------------------------------------ what number it is

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_PLAIN = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+(?![0-9a-zA-Z]))?"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w)\]}}%])[-+]\s*)?"
    rf"(?:(?P<whole>[0-9]+)\s+(?P<of>[0-9]+)\s*/\s*(?P<parts>[0-9]+)"
    rf"|(?P<over>{_PLAIN})(?:\s*/\s*(?P<under>{_PLAIN}))?)"
)
"""A mixed number such as `3 1/2`, a plain number, or one number over another."""
_NOT = re.compile(r"\bnot\b|n['\u2019]t\b")
_END = re.compile(r"[.;!?](?=\s|$)")
_ANOTHER = re.compile(
    r"\s*\(?(?:[,;:&]|(?:\s*[a-zA-Z]+\s*){0,2}?"
    r"(?:,|,?\s*\b(?:or|and|to)\b(?:\s+[a-zA-Z]+)?))\s*[-+(]?\s*\.?[0-9]"
)
"""Text after a number that adds a second number: `5, or maybe 6`, `2 hours, 30 minutes`, `3:30`."""
_OPERATORS = tuple("+-*/^_(<>|√∛∜±∓÷×")
_GOES_ON = re.compile(
    r"[⁰¹²³⁴-⁹₀-₉]|\.\(|\s*[+*^!÷±∓×|]|\s*(?:hundred|thousand|million|billion|trillion)\b"
    r"|\s*(?:over|divided by|times|plus|minus|modulo|mod)\s+[-(]?[0-9]"
    r"|\s*(?:and\s+)?(?:an?|one|two|three|four)\s+"
    r"(?:hal(?:f|ves)|thirds?|quarters?|fifths?|sixths?|eighths?|tenths?)\b"
)
"""Text that continues a number, so that the number alone is not the whole value.

Examples: `5²`, `0.(3)`, `2 ÷ 4`, `1.5 million`, `7 over 3`, `3 and a half`.
"""
_DASHES = dict.fromkeys(map(ord, "\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d"), "-")
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5",
           "⅗": "3/5", "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8",
           "⅞": "7/8"}  # fmt: skip
_REWRITTEN = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (
            r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathit|mbox|operatorname|boxed|fbox)"
            r"\s*\{([^{}]*)\}",
            r" \1 ",
        ),
        (r"\\!", ""),
        (r"\{,\}|\\,(?=[0-9]{3})|(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3})", ","),
        (r"\\[$%#&]|[$€£¥₹%]|\\(?:left|right|displaystyle|dots|ldots)\b|\*\*|__|`", ""),
        (r"\\[,;: ]|\\q?quad\b|~", " "),
        (r"\\[dt]?frac\s*\{\s*([^{}]*?)\s*\}\s*\{\s*([^{}]*?)\s*\}", r" \1/\2 "),
        (r"\\[dt]?frac\s*([0-9])\s*([0-9])", r" \1/\2 "),
        (r"\s*(?:\\times|\\cdot|[×·*])\s*10\s*\^\s*\{?\s*([-+]?[0-9]+)\s*\}?", r"e\1"),
        (r"\\approx\b|\\equiv\b|≈", "="),
        (r"(?<=[a-zA-Z])\s*(?:\^\s*\{?[0-9]\}?|[²³])|\^\s*\{?\\circ\}?|\\degree\b|°", ""),
        (r"\\[()\[\]]", " "),
    )
)
"""Rules that rewrite LaTeX and typography as plain characters, applied in this order.

A text that still contains a LaTeX command afterwards is not read as a number.
"""


def read(said: str) -> Fraction | None:
    """Return the number in `said`, if it contains exactly one.

    `said` should hold the answer only: `\\$1{,}200`, `x = 3`, `72 clips`, `\\frac{1}{2}`. In a
    calculation, the answer is what follows the last `=`. Returns None for several numbers, and for
    terms that are not evaluated.
    """
    if len(said) > _LONGEST:
        return None
    plain = _plain(said).rpartition("=")[2].strip("()[]{} ")
    found = list(_NUMBER.finditer(plain))
    if len(found) != 1 or "\\" in plain:
        return None
    before, after = plain[: found[0].start()].rstrip(), plain[found[0].end() :].lstrip()
    if (
        before.endswith(_OPERATORS)
        or _GOES_ON.match(after)
        or re.match(r"\(|[-/]\s*[^a-zA-Z\s]", after)
    ):
        return None
    return None if _NOT.search(before) else _value(found[0])


def _first(said: str) -> Fraction | None:
    """Return the first number of a sentence, or the one after its last `=`."""
    sentence = _END.split(_plain(said[:_LONGEST]))[0].rpartition("=")[2]
    found = _NUMBER.search(sentence)
    if found is None:
        return None
    before, after = sentence[: found.start()].rstrip(" ("), sentence[found.end() :]
    if (
        "\\" in before
        or before.endswith(_OPERATORS)
        or re.match(r"\s*[-/x]\s*[0-9(.]", after)
        or _GOES_ON.match(after)
    ):
        return None
    return None if _NOT.search(before) or _ANOTHER.match(after) else _value(found)


def _plain(said: str) -> str:
    plain = re.sub(r"[ \t\r\n]+", " ", said).translate(_DASHES)
    for sign, fraction in _VULGAR.items():
        plain = plain.replace(sign, f" {fraction} ")
    for pattern, instead in _REWRITTEN:
        plain = pattern.sub(instead, plain)
    return plain


def _value(found: re.Match[str]) -> Fraction | None:
    if len(found.group()) > _MOST_DIGITS:
        return None
    sign = -1 if found["sign"] and "-" in found["sign"] else 1
    if found["whole"] is not None:
        whole, over, under = (
            Fraction(found["whole"]),
            Fraction(found["of"]),
            Fraction(found["parts"]),
        )
    else:
        parts = [_fraction(found["over"]), _fraction(found["under"] or "1")]
        if parts[0] is None or parts[1] is None:
            return None
        whole, over, under = Fraction(0), parts[0], parts[1]
    return sign * (whole + over / under) if under else None


def _fraction(digits: str) -> Fraction | None:
    """Convert digits to a Fraction; None if the exponent exceeds `_MOST_DIGITS`."""
    exponent = re.search(r"[eE]([-+]?[0-9]+)$", digits)
    if exponent is not None and abs(int(exponent[1])) > _MOST_DIGITS:
        return None
    return Fraction(digits.replace(",", ""))
