import asyncio

import pytest

from motet.core import Message
from motet.errors import ConfigError
from motet_tasks.debate.verifiers import one_each, scores_of
from tests.fixtures.messages import facts


class Fixed:
    def __init__(self, score):
        self.value, self.asked = score, []

    async def score(self, chats):
        self.asked.append(len(chats))
        return [self.value] * len(chats)


CHATS = {agent: (Message("user", "?"), Message("assistant", agent)) for agent in ("a", "b", "c")}


def test_each_verifier_scores_its_own_agents_in_one_call():
    small, large = Fixed(0.25), Fixed(0.75)
    verifiers = one_each({"a": small, "b": large, "c": small}, ("a", "b", "c"))
    assert asyncio.run(scores_of(CHATS, verifiers)) == {"a": 0.25, "b": 0.75, "c": 0.25}
    assert (small.asked, large.asked) == ([2], [1])


def test_one_verifier_is_for_all_agents():
    one = Fixed(0.5)
    found = asyncio.run(scores_of(CHATS, one_each(one, tuple(CHATS))))
    assert list(found) == ["a", "b", "c"]
    assert one.asked == [3]


def test_verifiers_are_for_the_agents_of_the_debate():
    with pytest.raises(ConfigError, match=facts("verifier.agents … no verifier for b")):
        one_each({"a": Fixed(0.5)}, ("a", "b"))
    with pytest.raises(ConfigError, match=facts("verifier.agents … 'bb' … 'b'")):
        one_each({"a": Fixed(0.5), "b": Fixed(0.5), "bb": Fixed(0.5)}, ("a", "b"))
