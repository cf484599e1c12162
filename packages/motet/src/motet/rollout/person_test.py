"""Tests of a person who plays one agent."""

import asyncio

from motet.core import Completion, Message, Sampled, SampleRequest
from motet.rollout.person import PersonSampler
from motet.settings import Decode


class Echo:
    async def sample(self, requests):
        return [Sampled((1,), (Completion("p", "from the model", "stop"),)) for _ in requests]


def request(agent, prompt="?"):
    return SampleRequest(("e", (), 0, agent), "p", prompt, Decode(), keys=(1,))


def test_only_the_persons_agent_is_typed_and_the_order_stays():
    asked = []

    def read(question):
        asked.append(question)
        return "typed"

    person = PersonSampler("b", Echo(), read)
    chat = (Message("user", "hello"),)
    answers = asyncio.run(person.sample([request("a"), request("b", chat), request("c")]))
    assert [answer.completions[0].text for answer in answers] == [
        "from the model",
        "typed",
        "from the model",
    ]
    assert asked == ["user: hello\nb> "]
    assert answers[1].completions[0].tokens is None  # so it is never trained


def test_what_others_wrote_cannot_steer_the_terminal():
    asked = []
    person = PersonSampler("b", Echo(), lambda question: asked.append(question) or "typed")
    asyncio.run(person.sample([request("b", "\x1b[2J")]))
    assert asked == ["\\x1b[2J\nb> "]


def test_nothing_is_handed_out_early_so_that_no_step_runs_while_a_person_types():
    handed = []
    person = PersonSampler("b", Echo(), lambda question: "typed")
    asyncio.run(
        person.sample([request("a"), request("b")], lambda place, answer: handed.append(place))
    )
    assert handed == []
