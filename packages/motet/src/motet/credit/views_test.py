"""Tests the inputs of critics and reward models."""

from motet.core import Completion, Message, Round
from motet.credit.views import joint_action, joint_observation, own_observation

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


def answered(**prompts) -> Round:
    samples = {
        agent: tuple(Completion(agent, f"{agent}{index}", "stop") for index in range(2))
        for agent in prompts
    }
    return Round(0, prompts, {}, samples, ())


def test_a_reward_model_reads_each_completion_after_its_prompt():
    round_ = answered(a="half 12:", b="half 34:")
    assert joint_action(round_, {"b": 0, "a": 1}) == "a: half 12:a1\nb: half 34:b0"


def test_a_reward_model_reads_a_chat_if_a_prompt_is_one():
    (message,) = joint_action(answered(a="half 12:", b=CHAT), {"a": 0, "b": 1})
    assert message == Message(
        "user",
        "a was asked:\nhalf 12:\n\na answered:\na0\n\n"
        "b was asked:\n[system] Be brief.\n[user] What is it?\n\nb answered:\nb1",
    )
