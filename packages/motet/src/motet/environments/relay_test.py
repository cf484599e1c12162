import asyncio
import collections

import pytest

from motet.core import Reply, Task
from motet.environments.check import check_environment
from motet.environments.relay import Dialogue, Relay, letter_codes
from motet.errors import ConfigError
from tests.fixtures.messages import facts

TASK = Task("12-34", {"a": "12", "b": "34"})


@pytest.fixture
def relay():
    return Relay(Relay.Options())


def play(relay, *turns):
    """Play the given replies. Return the prompts of every turn and the last transition."""

    async def run():
        state, prompts = await relay.start(TASK, 0), []
        for a, b in turns:
            prompts.append(dict(relay.observe(state)))
            transition = await relay.step(state, {"a": Reply(a), "b": Reply(b)}, 0)
            state = transition.state
        return prompts, transition

    return asyncio.run(run())


def test_turn_two_shows_the_own_message_and_the_other_one(relay):
    prompts, _ = play(relay, ("xy", "zw"), ("", ""))
    assert prompts == [{"a": "A12:", "b": "B34:"}, {"a": "A12:xy/zw=", "b": "B34:zw/xy="}]


@pytest.mark.parametrize(
    ("answers", "reward", "terms"),
    [
        (("1234", "1234"), 1.0, {"success": 1.0, "a_right": 1.0, "b_right": 1.0}),
        (("1234", "3412"), 0.2, {"success": 0.0, "a_right": 1.0, "b_right": 0.0}),
        (("", "1234"), 0.2, {"success": 0.0, "a_right": 0.0, "b_right": 1.0}),
        (("12", "34"), 0.0, {"success": 0.0, "a_right": 0.0, "b_right": 0.0}),
    ],
)
def test_only_the_final_joint_answer_is_rewarded(relay, answers, reward, terms):
    _, said = play(relay, ("xy", "zw"))
    assert (said.rewards, said.done, said.terms) == ({"a": 0.0, "b": 0.0}, False, {})
    _, answered = play(relay, ("xy", "zw"), answers)
    assert (answered.rewards, answered.done, answered.terms) == (
        {"a": reward, "b": reward},
        True,
        terms,
    )


def test_codes_disagree_on_every_digit():
    codes = letter_codes(5)
    assert codes[:2] == letter_codes(2)
    for digit in range(10):
        assert len({code[digit] for code in codes}) == 5
    assert all(sorted(code) == list("abcdefghij") for code in codes)


def test_three_hundred_passwords_are_held_out(relay):
    train, held_out = relay.tasks("train"), relay.tasks("eval")
    assert (len(train), len(held_out)) == (9700, 300)
    assert not {task.id for task in train} & {task.id for task in held_out}
    assert len(Relay(Relay.Options(digits=1)).tasks("eval")) == 20
    with pytest.raises(ConfigError, match=facts("'test' … train, eval")):
        relay.tasks("test")


def test_a_third_of_the_demonstrations_are_messages_and_codes_are_independent(relay):
    shown = [relay.demonstrate(TASK, seed) for seed in range(2000)]
    assert 0.31 < sum(one.turn == 0 for one in shown) / 2000 < 0.39
    for one in shown:
        assert (
            one.text == "1234"
            if one.turn
            else relay.convention(TASK, one.agent, one.text).startswith("code")
        )
    # prompts of agent a have the form "A12:own/heard="; each pair of codes is a quarter of them
    heard = [one.prompt[4:-1].split("/") for one in shown if one.turn and one.agent == "a"]
    pairs = collections.Counter(
        (relay.convention(TASK, "a", own), relay.convention(TASK, "b", other))
        for own, other in heard
    )
    assert set(pairs) == {(f"code {i}", f"code {j}") for i in range(2) for j in range(2)}
    assert min(pairs.values()) > 0.2 * len(heard)


def test_the_solution_speaks_code_0_and_then_answers(relay):
    said = relay.solve(Dialogue({"a": "12", "b": "34"}), 0)
    assert {relay.convention(TASK, agent, text) for agent, text in said.items()} == {"code 0"}
    assert relay.solve(Dialogue({"a": "12", "b": "34"}, 1, said), 0) == {"a": "1234", "b": "1234"}


def test_a_message_in_two_codes_is_called_mixed(relay):
    one, two = relay.codes
    assert relay.convention(TASK, "a", two[1] + two[2]) == "code 1"
    assert relay.convention(TASK, "a", one[1] + two[2]) == "mixed"
    assert relay.convention(TASK, "b", one[1] + one[2]) == "mixed"
    assert relay.convention(TASK, "a", "1234") == "answer"


@pytest.mark.parametrize("options", [{}, {"codes": 1, "digits": 1, "partial": 0.0}, {"codes": 5}])
def test_the_relay_keeps_every_rule_of_an_environment(options):
    assert "success" in str(check_environment(Relay(Relay.Options(**options))))
