"""The form of an answer: its length, and whether it repeats itself.

MAPoRL (arXiv 2502.18439) counts tokens of the model. An environment reads strings, so words and
signs are counted here. Of English prose, they are about as many.
"""

import re
from collections.abc import Mapping

LONGEST_PERIOD = 20
"""Maximum length of a sequence that is repeated."""
MOST_REPEATS = 3
"""How often in a row a sequence may stand."""
_PIECE = re.compile(r"\w+|[^\w\s]")


def in_good_form(
    scores: Mapping[str, float],
    texts: Mapping[str, str],
    boxed: Mapping[str, bool],
    min_length: int,
    bad_form_score: float,
) -> dict[str, float]:
    """Return each agent's score, or `bad_form_score` if its answer is shorter than `min_length`,
    repeats itself or is not in a box."""
    return {
        agent: score
        if boxed[agent] and length(texts[agent]) >= min_length and not repeats(texts[agent])
        else bad_form_score
        for agent, score in scores.items()
    }


def length(text: str) -> int:
    """Return the number of words and signs."""
    return len(_PIECE.findall(text))


def repeats(text: str) -> bool:
    """Return whether a sequence of 1 to 20 words and signs stands more than three times in a row.

    Sequences of digits only do not count: 1000000 may be written as 1 000 000.
    """
    pieces = _PIECE.findall(text)
    for period in range(1, min(LONGEST_PERIOD, len(pieces) // (MOST_REPEATS + 1)) + 1):
        equal = 0
        for place in range(period, len(pieces)):
            equal = equal + 1 if pieces[place] == pieces[place - period] else 0
            if equal == period * MOST_REPEATS:
                if not all(piece.isdigit() for piece in pieces[place - period + 1 : place + 1]):
                    return True
                equal -= 1
    return False
