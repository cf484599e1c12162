import asyncio
from collections import Counter

import pytest

from motet.core import Message, Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.word_games.telegram import Telegram, telegram
from motet_tasks.word_games.words import words_of_splits

GAME = Telegram(Telegram.Options())
LISTS = "tiger bread piano / moon piano shoe"


def played(first, second, anna, ben, game=GAME):
    """Return the three transitions of a game."""
    state = asyncio.run(game.start(game.chat_task(LISTS), 0))
    made = []
    for replies in ({"anna": first}, {"ben": second}, {"anna": anna, "ben": ben}):
        texts = {agent: Reply(text) for agent, text in replies.items()}
        made.append(asyncio.run(game.step(state, texts, 0)))
        state = made[-1].state
    return made


def prompts(state, game=GAME):
    return {
        agent: [(said.role, said.content) for said in prompt]
        for agent, prompt in game.observe(state).items()
    }


def test_it_keeps_the_rules_of_environments():
    check_environment(GAME, GAME.tasks("train")[:3])


@pytest.mark.parametrize("split", ["train", "eval", "new_groups"])
def test_two_lists_of_a_split_have_one_word_in_common(split):
    words = {word for word, _ in words_of_splits()[split]}
    tasks = GAME.tasks(split)
    assert len({task.id for task in tasks}) == len(tasks) == {"train": 2000}.get(split, 64)
    places = Counter()
    for task in tasks:
        lists = task.fields["anna"], task.fields["ben"]
        assert [len(set(own)) for own in lists] == [6, 6]
        (common,) = set(lists[0]) & set(lists[1])
        places[lists[0].index(common)] += 1
        assert set().union(*lists) <= words
    assert len(places) == 6, "no place of the list says which word it is"
    assert tasks == Telegram(Telegram.Options()).tasks(split)


def test_no_word_of_a_split_is_in_another():
    splits = [{word for word, _ in words} for words in words_of_splits().values()]
    assert len(set.union(*splits)) == sum(map(len, splits))
    with pytest.raises(ConfigError, match="new_groups"):
        GAME.tasks("test")


def test_each_reads_its_own_list_and_the_telegrams_and_no_more():
    first, second, _ = played("bread piano", "piano", "piano", "piano")
    start = asyncio.run(GAME.start(GAME.chat_task(LISTS), 0))
    assert list(prompts(start)) == ["anna"]
    ((_, asked),) = prompts(start)["anna"]
    assert "tiger, bread, piano" in asked
    assert "moon" not in asked
    assert list(prompts(first.state)) == ["ben"]
    ((_, read),) = prompts(first.state)["ben"]
    assert "Anna's words: bread piano\nList: moon, piano, shoe" in read
    assert "tiger" not in read
    last = prompts(second.state)
    assert [role for role, _ in last["anna"]] == ["user", "assistant", "user"]
    assert last["anna"][:2] == [("user", asked), ("assistant", "bread piano")]
    assert last["anna"][2][1].startswith("Ben's words: piano\n")
    assert last["ben"][2][1].startswith("Anna's words: bread piano\n")
    assert last["ben"][:2] == [("user", read), ("assistant", "piano")]


def test_both_are_paid_for_listed_words_and_at_the_end_for_the_share_that_is_right():
    first, second, last = played("tiger, bread", "hello piano", "It is a Piano.", "shoe")
    assert first.metrics == {"words/anna": 2.0, "listed/anna": 2.0}
    assert second.metrics == {"words/ben": 2.0, "listed/ben": 1.0}
    assert first.rewards == pytest.approx({"anna": 0.1, "ben": 0.1}), "two words of four"
    assert second.rewards == pytest.approx({"anna": 0.05, "ben": 0.05})
    assert not first.done
    assert not second.done
    assert last.rewards == pytest.approx({"anna": 0.7, "ben": 0.7}), "one is right, both listed"
    assert last.metrics == {"named/anna": 1.0, "named/ben": 0.0, "own/anna": 1.0, "own/ben": 1.0}
    astray = played("", "", "tiger", "hello")[-1]
    assert astray.rewards == pytest.approx({"anna": 0.1, "ben": 0.1}), "anna's word is on her list"
    assert (last.done, last.success) == (True, 0.0)
    assert played("", "", "piano", "piano")[-1].success == 1.0
    said = "The common word is piano.", "We both have piano"
    assert played("", "", *said)[-1].success == 1.0
    assert played("", "", "piano, bread or tiger", "piano")[-1].success == 1.0, "the first counts"
    assert played("", "", "bread or piano", "piano")[-1].success == 0.0
    copied = played("tiger bread piano", "moon", "piano", "tiger, bread, piano")[-1]
    assert copied.metrics["named/ben"] == 0.0, "ben copies anna's telegram"
    assert played("tiger tiger tiger bread", "", "", "")[0].rewards["anna"] == pytest.approx(0.1)
    unpaid = Telegram(Telegram.Options(listed_reward=0.0))
    assert set(played("tiger", "moon", "piano", "", unpaid)[0].rewards.values()) == {0.0}


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


def test_shorter_telegrams_are_asked_for_and_cut():
    short = Telegram(Telegram.Options(telegram_length=1, list_length=3))
    first, *_ = played("tiger bread", "piano", "piano", "piano", short)
    assert first.state.telegrams == ("tiger",)
    start = asyncio.run(short.start(short.tasks("eval")[0], 0))
    (asked,) = short.observe(start)["anna"]
    assert isinstance(asked, Message)
    assert "Copy 1 word of the list." in asked.content
