import asyncio
from collections import Counter

import pytest

from motet.core import Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.word_games.telegram import Telegram, telegram
from motet_tasks.word_games.words import words_of_splits

GAME = Telegram(Telegram.Options())


def played(first, second, game=GAME):
    """Return the two transitions of a game in which anna has tiger and ben has piano."""
    state = asyncio.run(game.start(game.chat_task("tiger piano"), 0))
    made = []
    for texts in (first, second):
        replies = {agent: Reply(text) for agent, text in zip(game.agents, texts, strict=True)}
        made.append(asyncio.run(game.step(state, replies, 0)))
        state = made[-1].state
    return made


def prompts(state, game=GAME):
    asked = {}
    for agent, prompt in game.observe(state).items():
        (message,) = prompt
        assert message.role == "user"
        asked[agent] = message.content
    return asked


def test_it_keeps_the_rules_of_environments():
    check_environment(GAME, GAME.tasks("train")[:3])


@pytest.mark.parametrize("split", ["train", "eval", "new_groups"])
def test_two_words_of_a_split_are_a_task(split):
    words = {word for word, _ in words_of_splits()[split]}
    tasks = GAME.tasks(split)
    pairs = [(task.fields["anna"], task.fields["ben"]) for task in tasks]
    assert len(set(pairs)) == len({task.id for task in tasks}) == len(tasks)
    assert all(anna != ben and {anna, ben} <= words for anna, ben in pairs)
    if split == "train":
        assert len(tasks) > 1950
    else:
        each = [Counter(words) for words in zip(*pairs, strict=True)]
        assert each == [Counter(words), Counter(words)], "each word once for each agent"
    assert tasks == Telegram(Telegram.Options()).tasks(split)


def test_no_word_of_a_split_is_in_another():
    splits = [
        {word for task in GAME.tasks(split) for word in task.fields.values()}
        for split in ("train", "eval", "new_groups")
    ]
    assert len(set.union(*splits)) == sum(map(len, splits))
    with pytest.raises(ConfigError, match="new_groups"):
        GAME.tasks("test")


def test_each_reads_its_own_word_and_then_the_telegram_of_the_other_one():
    start = asyncio.run(GAME.start(GAME.chat_task("tiger piano"), 0))
    assert prompts(start) == {
        "anna": "What is a tiger? Answer in 8 words.",
        "ben": "What is a piano? Answer in 8 words.",
    }
    first, _ = played(("A tiger is a big cat.", "music with keys"), ("", ""))
    assert prompts(first.state) == {
        "anna": "What is it? Guess up to 3 words.\nmusic with keys",
        "ben": "What is it? Guess up to 3 words.\nA ___ is a big cat.",
    }
    assert first.metrics == {"leaked/anna": 1.0, "leaked/ben": 0.0}
    assert first.rewards == {"anna": 0.0, "ben": 0.0}
    assert not first.done


def test_both_are_paid_for_the_share_of_words_that_are_found():
    _, last = played(("", ""), ("A harp, an organ or a piano", "lion, tigers"))
    assert last.rewards == {"anna": 1.0, "ben": 1.0}
    assert (last.done, last.success) == (True, 1.0)
    _, last = played(("", ""), ("It is a piano.", "a piano"))
    assert last.metrics == {"found/anna": 1.0, "found/ben": 0.0}, "ben looks for tiger"
    assert (last.rewards, last.success) == ({"anna": 0.5, "ben": 0.5}, 0.0)
    _, last = played(("", ""), ("harp, organ, flute, piano", "lion"))
    assert last.rewards == {"anna": 0.0, "ben": 0.0}, "the fourth guess does not count"


def test_options_say_how_long_a_telegram_is_and_how_many_guesses_count():
    game = Telegram(Telegram.Options(telegram_length=1, guesses=1))
    start = asyncio.run(game.start(game.chat_task("tiger piano"), 0))
    assert prompts(start, game)["anna"] == "What is a tiger? Answer in 1 word."
    first, last = played(("big cat", "tall keys"), ("harp piano", "tiger"), game)
    assert first.state.telegrams == {"anna": "big", "ben": "tall"}
    assert prompts(first.state, game)["anna"] == "What is it? Guess one word.\ntall"
    assert last.metrics == {"found/anna": 0.0, "found/ben": 1.0}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("tiger bread", "tiger bread"),
        ("tiger, bread, piano and moon", "tiger, bread, piano"),
        ("1. tiger 2. bread 3. piano 4. moon", "1. tiger 2. bread 3. piano"),
        ("\n don't know Anna's word", "don't know Anna's"),
        ("tiger bread\npiano moon", "tiger bread"),
        ("tiger-bread-piano-moon", "tiger-bread-piano"),
        ("  ", ""),
    ],
)
def test_a_telegram_is_one_line_cut_after_its_words(text, sent):
    assert telegram(text, 3) == sent


def test_a_person_gives_two_words_and_reads_two_guesses():
    task = GAME.chat_task(" Tiger, PIANO ")
    assert task.fields == {"anna": "tiger", "ben": "piano"}
    assert GAME.chat_answer(task, {"anna": " piano", "ben": "lion"}) == "anna: piano\nben: lion"
    for text in ("tiger", "tiger tiger", "one two three", ""):
        with pytest.raises(ConfigError, match="two different English words"):
            GAME.chat_task(text)
