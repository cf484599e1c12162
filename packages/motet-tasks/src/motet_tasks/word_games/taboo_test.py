import asyncio

import pytest

from motet.core import Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.word_games.taboo import BLANK, Clue, Taboo, blanked, forms, guesses_of
from motet_tasks.word_games.words import GROUPS

GAME = Taboo(Taboo.Options())


def played(game, word, description, guess):
    """Return both transitions of a game."""
    first = asyncio.run(game.step(Clue(word), {"describer": Reply(description)}, 0))
    return first, asyncio.run(game.step(first.state, {"guesser": Reply(guess)}, 0))


def test_it_keeps_the_rules_of_environments():
    check_environment(GAME, GAME.tasks("train")[:3])


def test_no_word_is_in_two_groups_and_no_split_shares_one():
    words = [word for group in GROUPS.values() for word in group]
    assert len(words) == len(set(words)) > 550
    assert all(word.isalpha() and word.islower() for word in words)
    splits = {
        name: {task.id for task in GAME.tasks(name)} for name in ("train", "eval", "new_groups")
    }
    assert set.union(*splits.values()) == set(words)
    assert sum(map(len, splits.values())) == len(words)
    assert len(splits["eval"]) >= 48
    groups = {
        name: {task.fields["group"] for task in GAME.tasks(name)}
        for name in ("train", "new_groups")
    }
    assert not groups["train"] & groups["new_groups"]
    with pytest.raises(ConfigError, match="new_groups"):
        GAME.tasks("test")


def test_the_describer_sees_the_word_and_the_guesser_only_the_description():
    (asked,) = GAME.observe(Clue("elephant"))["describer"]
    assert "elephant" in asked.content
    first, _ = played(GAME, "elephant", "A big animal; elephants have trunks.", "?")
    assert not first.done
    (shown,) = GAME.observe(first.state)["guesser"]
    assert shown.content.endswith(f"words.\nA big animal; {BLANK} have trunks.")
    assert "elephant" not in shown.content


def test_both_are_paid_for_a_right_guess_at_the_end():
    first, last = played(GAME, "elephant", "A big gray animal.", "It's an Elephant.")
    assert first.rewards == {"describer": 0.0, "guesser": 0.0}
    assert first.metrics == {"leaked": 0.0, "clue_words": 4.0}
    assert last.rewards == {"describer": 1.0, "guesser": 1.0}
    assert (last.done, last.success) == (True, 1.0)
    _, wrong = played(GAME, "elephant", "A big gray animal.", "A whale")
    assert (wrong.rewards["guesser"], wrong.success) == (0.0, 0.0)


def test_a_description_that_says_the_word_costs_its_penalty():
    strict = Taboo(Taboo.Options(leak_penalty=0.5))
    first, last = played(strict, "sun", "The Sun's light.", "sun")
    assert first.metrics["leaked"] == 1.0
    assert last.rewards["describer"] == 0.5
    assert last.success == 1.0


def test_so_many_words_of_the_answer_count_as_guesses():
    listed = "A whale, a whale, or a rhino. An elephant!"
    for guesses, right in ((1, 0.0), (2, 0.0), (3, 1.0)):
        game = Taboo(Taboo.Options(guesses=guesses))
        first, last = played(game, "elephant", "A big gray animal.", listed)
        assert (last.rewards["guesser"], last.success) == (right, right)
        assert last.metrics == {"guesses": float(guesses)}
        (asked,) = game.observe(first.state)["guesser"]
        assert ("one word" in asked.content) == (guesses == 1)


@pytest.mark.parametrize(
    ("word", "text", "covered"),
    [
        ("cherry", "Cherries are red.", f"{BLANK} are red."),
        ("knife", "Two knives and a KNIFE!", f"Two {BLANK} and a {BLANK}!"),
        ("skate", "Skating is fun", f"{BLANK} is fun"),
        ("run", "He runs, running, runner", f"He {BLANK}, {BLANK}, {BLANK}"),
        ("water", "A waterfall of water", f"A {BLANK} of {BLANK}"),
        ("butterfly", "It likes butter", f"It likes {BLANK}"),
        ("football", "You kick it with a foot", f"You kick it with a {BLANK}"),
        ("bee", "It has been here", "It has been here"),
        ("ear", "You hear with it", "You hear with it"),
        ("train", "It runs in the rain", "It runs in the rain"),
        ("dog", "My dog's 2 dogs", f"My {BLANK} 2 {BLANK}"),
    ],
)
def test_the_word_its_forms_and_what_is_made_of_it_are_blanked(word, text, covered):
    assert blanked(text, word) == covered


@pytest.mark.parametrize(
    ("text", "guesses"),
    [
        ("Elephant", ["elephant"]),
        ("It is an elephant.", ["elephant"]),
        ("The answer is: **Elephants**", ["elephants"]),
        ("I’m a dog or a cat, a dog", ["dog", "cat"]),
        ("It's", []),
        ("", []),
    ],
)
def test_guesses_are_the_different_words_that_say_something(text, guesses):
    assert guesses_of(text) == guesses


def test_every_word_is_a_form_of_itself_and_of_no_other_word_of_its_group():
    for group in GROUPS.values():
        for word in group:
            assert word in forms(word)
            assert not forms(word) & set(group) - {word}, word


def test_a_person_gives_the_team_a_word():
    task = GAME.chat_task(" Elephant! ")
    assert asyncio.run(GAME.start(task, 0)) == Clue("elephant")
    said = {"describer": "Elephants are big.", "guesser": "elephant"}
    assert GAME.chat_answer(task, said) == f"{BLANK} are big.\n→ elephant"
    for text in ("", "two words"):
        with pytest.raises(ConfigError, match="one English word"):
            GAME.chat_task(text)
