"""Tests the inputs of critics."""

from motet.core import Message, Round
from motet.views import joint_observation, own_observation

CHAT = (Message("system", "Be brief."), Message("user", "What is it?"))


def situation(**prompts) -> Round:
    return Round(0, prompts, {}, {}, ())


def test_a_critic_of_one_reads_what_that_one_was_asked():
    round_ = situation(a="half 12:", b=CHAT)
    assert own_observation(round_, "a") == "half 12:"
    assert own_observation(round_, "b") == CHAT


def test_a_critic_of_all_reads_each_prompt_under_its_agents_name():
    assert joint_observation(situation(a="half 12:", b="half 34:")) == "a: half 12:\nb: half 34:"


def test_one_chat_among_the_prompts_makes_it_a_chat():
    joint = joint_observation(situation(a="half 12:", b=CHAT))
    assert joint == (Message("user", "a: half 12:\n\nb: [system] Be brief.\n[user] What is it?"),)


def test_who_is_silent_is_not_read():
    assert joint_observation(situation(b="half 34:")) == "b: half 34:"
