import pytest

from motet_tasks.rewards.writing import (
    BEST,
    PHRASES,
    RUBRICS,
    Band,
    judge,
    shared_words,
    transition_kinds,
)

TLDR, ARXIV = RUBRICS["tldr"], RUBRICS["arxiv"]
CAT = "cat ran off mud rug den sun ice"
"""Eight words, 31 characters, no transition, seven content words ("off" is a function word)."""


def numbered(letter, count, width=3, different=None):
    """Return `count` words of `width` characters: `different` new ones, then repetitions."""
    names = [f"{letter}{i:0{width - 1}}" for i in range(different or count)]
    return " ".join(names[i % len(names)] for i in range(count))


# ---------------------------------------------------------------------------------- gates of tldr

TABLE = [
    # what is tested, first, second, structure, length, vocabulary, style
    ("seven words are too few", CAT[:-4], numbered("b", 16), 0.0, 0.0, 0.0, 0.0),
    ("so they are in the second", CAT, numbered("b", 7, width=9), 0.0, 0.0, 0.0, 0.0),
    ("257 words are too many", CAT, numbered("b", 257), 0.0, 0.0, 0.0, 0.0),
    ("256 are not, but 33 times as long", CAT, numbered("b", 256, width=4), 0.5, 0.0, 0.0, 0.0),
    ("one text twice: ratio 1, below 1.1", CAT, CAT, 0.5, 0.0, 0.0, 0.0),
    # eight words of 4, seven spaces and "!" are 40 characters, over 31
    (
        "between 1.1 and 1.6",
        CAT,
        numbered("b", 8, width=4) + "!",
        0.5,
        (40 / 31 - 1.1) / 0.5,
        0.0,
        0.0,
    ),
    (
        "full length, as many different words",
        CAT,
        numbered("b", 16, different=8),
        0.5,
        1.0,
        0.0,
        0.0,
    ),
    # 16 words of 3 = 63 characters: 63/31 = 2.03; 12 different over 8 = 1.5: half of 0.2/0.7
    ("vocabulary of 1.5", CAT, numbered("b", 16, different=12), 0.5, 1.0, 0.5 * 0.2 / 0.7, 0.0),
    ("vocabulary of 2", CAT, numbered("b", 16), 0.5, 1.0, 0.5, 0.0),
    # 124 characters over 31 = 4: (5 - 4) / 1.8 of the length, all of the vocabulary
    ("four times as long", CAT, numbered("b", 31) + ".", 0.5, 1 / 1.8, 0.5, 0.0),
    ("more than five times as long", CAT, numbered("b", 40), 0.5, 0.0, 0.0, 0.0),
    # one kind of transition: 0.4 x 0.4. Content words: 7 and 15, none shared
    ("one transition", CAT, numbered("b", 15) + " moreover", 0.5, 1.0, 0.5, 0.16),
    # "moreover" and "also" are one kind; "thus" is a second: 0.4 x 0.45
    ("two kinds", CAT, numbered("b", 13) + " moreover also thus", 0.5, 1.0, 0.5, 0.18),
    # one of 7 + 16 - 1 = 22 content words is shared: 1/22 is above 0.03, so all of 0.6
    ("one shared word", CAT, numbered("b", 15) + " cat", 0.5, 1.0, 0.5, 0.6),
    ("both", CAT, numbered("b", 14) + " cat thus", 0.5, 1.0, 0.5, 0.76),
]


@pytest.mark.parametrize(
    ("first", "second", "earned"), [pytest.param(a, b, c, id=i) for i, a, b, *c in TABLE]
)
def test_what_a_post_retold_twice_earns(first, second, earned):
    reward, terms = judge(TLDR, first, second)
    assert [
        terms[level] for level in ("structure", "length", "vocabulary", "style")
    ] == pytest.approx(earned)
    assert reward == pytest.approx(sum(earned))


def test_a_word_is_what_stands_between_spaces():
    """Eight words of any kind are enough, but without letters there is no vocabulary to compare."""
    reward, terms = judge(TLDR, "! ! ! ! ! ! ! !", "? ? ? ? ? ? ? ? ? ? ? ? ? ? ? ?")
    assert reward == 0.5 + 1.0
    assert "vocabulary_ratio" not in terms


def test_space_between_words_counts_once_however_wide():
    plain = judge(TLDR, CAT, CAT)
    assert judge(TLDR, CAT, CAT.replace(" ", "  \n\t ")) == plain
    assert judge(TLDR, CAT.replace(" ", "\n\n"), f"  {CAT}\n") == plain


def test_nothing_earns_nothing_and_measures_no_ratio():
    reward, terms = judge(TLDR, "", "")
    assert reward == 0.0
    assert set(terms) == {
        "structure",
        "length",
        "vocabulary",
        "style",
        "transition_kinds",
        "shared_words",
    }


# --------------------------------------------------------------------------------- gates of arxiv

ARXIV_TABLE = [
    # n words of w characters are n (w + 1) - 1 characters in all; 200 of 5 are 1199
    ("127 words are too few", numbered("a", 127, 5), numbered("b", 150, 6), 0.0),
    (
        "128 are enough",
        numbered("a", 128, 5),
        numbered("b", 256, 9),
        0.5,
    ),  # 2559 / 767 = 3.3: too long
    # as long: (1 - 0.8) / 0.5 of the length, all of the vocabulary
    ("as long and as varied", numbered("a", 200, 5), numbered("b", 200, 5), 0.5 + 0.4 + 0.5),
    (
        "1.5 times as long",
        numbered("a", 160, 5),
        numbered("b", 240, 5),
        0.5 + 1.0 + 0.25,
    ),  # 240/160: (1.7 - 1.5) / 0.4
    (
        "1.5 times as long, as varied",
        numbered("a", 160, 5),
        numbered("b", 240, 5, 160),
        0.5 + 1.0 + 0.5,
    ),
    (
        "0.6 of the vocabulary",
        numbered("a", 200, 4),
        numbered("b", 200, 6, 120),
        0.5 + 1.0 + 0.25,
    ),  # 1399/999 = 1.4
    (
        "less than half of the vocabulary",
        numbered("a", 200, 4),
        numbered("b", 200, 6, 99),
        0.5 + 1.0,
    ),
    (
        "1.8 times the vocabulary",
        numbered("a", 140, 5, 100),
        numbered("b", 200, 5, 180),
        0.5 + 1.0,
    ),  # 1199/839 = 1.43
]


@pytest.mark.parametrize(
    ("first", "second", "reward"), [pytest.param(a, b, c, id=i) for i, a, b, c in ARXIV_TABLE]
)
def test_what_an_introduction_in_two_parts_earns(first, second, reward):
    assert judge(ARXIV, first, second)[0] == pytest.approx(reward)


def test_transitions_count_in_both_parts_of_an_introduction_and_only_in_the_detail_of_a_post():
    introduction = judge(ARXIV, "thus " + numbered("a", 159, 5), numbered("b", 230, 5, 160))[1]
    assert (introduction["transition_kinds"], introduction["style"]) == (1.0, pytest.approx(0.16))
    assert judge(TLDR, CAT + " thus", numbered("b", 20))[1]["transition_kinds"] == 0.0


def test_shared_words_earn_in_proportion_up_to_their_mark():
    # 200 content words each, 40 of them shared: 40 / 360 = 0.111 of 0.23
    first = numbered("a", 160, 5) + " " + numbered("c", 40, 5)
    second = numbered("b", 160, 7) + " " + numbered("c", 40, 5)
    assert judge(ARXIV, first, second)[1]["style"] == pytest.approx(0.6 * (40 / 360) / 0.23)


# ----------------------------------------------------------------------------------- the measures


def test_transitions_are_whole_words_in_any_case_and_across_kinds():
    assert transition_kinds("He was also thusly also-ran; ifs and buttons") == {"addition"}
    assert transition_kinds("THUS, for example: on the other hand") == {
        "cause",
        "example",
        "contrast",
    }
    assert transition_kinds("Nothing. Beautiful hensroost! Whenever? Finality.") == frozenset()


def test_no_phrase_stands_under_two_kinds():
    phrases = [phrase for words in PHRASES.values() for phrase in words.split("|")]
    assert len(phrases) == len(set(phrases))
    assert len(PHRASES) == 12


def test_function_words_are_not_shared_content():
    assert shared_words("The cat is here", "the dog was there") == 0.0
    assert shared_words("The cat sat", "the cat ran") == pytest.approx(1 / 3)
    assert shared_words("it is", "they are") == 0.0


def test_the_best_there_is_falls_short_of_three():
    """Test eight long words, then twelve kinds of transition and one of the eight again."""
    every_kind = " ".join(words.split("|")[0] for words in PHRASES.values())
    reward, terms = judge(TLDR, numbered("a", 8, width=7), every_kind + " a000000")
    assert terms["transition_kinds"] == 12.0
    assert reward == pytest.approx(BEST) == pytest.approx(2.98)


@pytest.mark.parametrize(
    ("ratio", "share"),
    [
        (0.99, None),
        (1.0, 0.0),
        (1.5, 0.5),
        (2.0, 1.0),
        (3.0, 1.0),
        (4.0, 0.5),
        (5.0, 0.0),
        (5.01, None),
    ],
)
def test_a_band_is_straight_lines_and_its_ends_belong_to_it(ratio, share):
    assert Band(1.0, 2.0, 3.0, 5.0).share(ratio) == share


def test_a_band_may_have_no_end():
    assert Band(1.0, 2.0).share(1e9) == 1.0
