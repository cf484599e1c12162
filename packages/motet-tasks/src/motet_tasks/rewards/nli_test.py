from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.environments.check import ODD_REPLIES
from motet_tasks.rewards.nli import LABELS, label

E, N, C = "entailment", "neutral", "contradiction"
TABLE = [
    # one word
    ("entailment", E), ("Neutral.", N), ("CONTRADICTION", C), ("**Contradiction**", C),
    ('"neutral"', N),
    ("- Entailment", E),
    (r"\boxed{entailment}", E), (r"\boxed{\text{Neutral}}", N),
    (r"So \boxed{\textbf{contradiction}}.", C),
    (r"$\boxed{neutral}$", N),
    # other forms of the word
    ("The premise entails the hypothesis.", E), ("The hypothesis is entailed by the premise.", E),
    ("It contradicts the premise.", C),
    ("It is contradicted by the premise.", C), ("The two are contradictory.", C),
    ("The premise is neutral about it.", N),
    # several candidates
    (r"Contradictory at first. \boxed{entailment}", E),
    (r"\boxed{neutral}, no: \boxed{entailment}", E),
    ("I first thought of entailment. The answer is contradiction.", C), ("Answer: entailment", E),
    ("**Answer:** Contradiction", C),
    ('The label is "neutral".', N), ("The relationship is one of entailment.", E),
    ("The answer is:\n\ncontradiction", C),
    ("Neutral. The premise does not contradict it.", N),
    ("It could be neutral. But it is a contradiction.", C),
    ("Is it entailment? No. It is neutral.", N), ("Is it a contradiction? It entails it.", E),
    ("The answer is unclear. So it is neutral.", N), ("Neutral. So it is neutral.", N),
    ("The answer is contradiction, since the premise entails the opposite.", C),
    ("<think>contradiction</think>neutral", N),
    # denied
    ("not entailment but contradiction", C), ("not entailment, contradiction", C),
    ("Entailment, not contradiction.", E),
    ("It is not a contradiction; the answer is neutral", N),
    ("The answer is not entailment but neutral.", N),
    ("contradiction rather than entailment", C), ("entailment instead of neutral", E),
    ("It's a contradiction, not a neutral one.", C),
    ("The premise neither entails nor contradicts the hypothesis.", N),
    ("It isn't neutral or entailment.", C),
    ("The premise does not entail the hypothesis, nor does it contradict it.", N),
    ("The premise doesn\u2019t say, making it neutral.", N),
    ("The answer is neutral because the premise neither entails nor contradicts it.", N),
    ("It is neither entailment nor contradiction, so it is neutral.", N),
    ("It does not say, therefore neutral", N),
    # no label, or more than one
    ("", None), ("I cannot tell.", None), ("It is either entailment or neutral.", None),
    ("entailment, neutral or contradiction", None),
    (r"\boxed{entailment or neutral}", None), (r"\boxed{not entailment}", None),
    ("This is not an entailment.", None),
    ("The premise does not entail the hypothesis.", None), ("non-entailment", None),
    ("entailmentneutral", None),
    ("neutral\n\nNo, contradiction", None), (r"\boxed{maybe} entailment", None),
    ("Is it neutral?", None),
    (r"\boxed{0}", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_the_label_of_a_text(text, expected):
    assert label(text) == expected


@pytest.mark.parametrize("text", ODD_REPLIES.values(), ids=ODD_REPLIES)
def test_odd_texts_have_no_label(text):
    assert label(text) is None


@given(
    st.lists(
        st.sampled_from(
            ["not", "or", *LABELS, "answer is", ",", ".", "\n", "?", "nor", r"\boxed{"]
        ),
        max_size=12,
    )
)
def test_every_text_has_a_label_or_none(words):
    assert label(" ".join(words)) in (*LABELS, None)


@given(st.sampled_from(LABELS), st.text(max_size=80))
def test_a_label_in_the_last_box_counts_whatever_stands_before(name, before):
    assert label(f"{before}\nx \\boxed{{{name}}}") == name or "think>" in before or "\\" in before


@pytest.mark.parametrize(
    "long",
    [
        "neutral " * 14_000,
        "neutral. " * 12_000,
        "not " * 25_000,
        ". " * 50_000,
        "answer" + " " * 99_999,
    ],
)
def test_long_texts_take_no_long_time(long):
    """A regex that backtracks takes minutes."""
    begun = process_time()
    label(long)
    assert process_time() - begun < 5.0
