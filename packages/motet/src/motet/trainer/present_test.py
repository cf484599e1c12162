"""Learners that work side by side, and answers that are read after other prompts."""

import asyncio
from types import SimpleNamespace

import pytest

from motet.core import Completion, Episode, Outcome, Round, SampleId, Task, Team
from motet.errors import Interrupted
from motet.trainer.present import influences, side_by_side


def test_learners_work_at_the_same_time_and_results_keep_their_order():
    order = []

    async def do(learner):
        order.append(f"{learner} begins")
        for _ in range(3 if learner == "slow" else 0):
            await asyncio.sleep(0)
        order.append(f"{learner} ends")
        return len(order)

    found = asyncio.run(side_by_side([("slow", do), ("fast", do), ("slow", do)]))
    assert order == [
        "slow begins", "fast begins", "fast ends", "slow ends", "slow begins", "slow ends",
    ]  # fmt: skip
    assert found == [4, 3, 6]


def test_a_check_that_raises_stops_every_learner_before_its_next_piece():
    done = []

    async def do(learner):
        done.append(learner)
        await asyncio.sleep(0)

    def check():
        if len(done) == 2:
            raise Interrupted("stopped as asked")

    with pytest.raises(Interrupted):
        asyncio.run(side_by_side([("a", do), ("b", do), ("a", do), ("b", do)], check))
    assert done == ["a", "b"]


class OfThePrompt:
    """A learner whose log-probability of a token is −1/10 of the last token of the prompt."""

    def __init__(self):
        self.rows = 0

    async def logprobs(self, batch):
        self.rows += len(batch.tokens_BL)
        last_B = batch.prompts_PL[batch.prompt_of_B][:, -1]
        return -0.1 * last_B[:, None] * batch.mask_BL


def test_an_answer_is_read_again_after_the_default_of_the_agent_before():
    def answer(prompt, *logprobs):
        said = Completion("q", "x", "stop", tokens=(5,) * len(logprobs), logprobs=logprobs)
        end = Outcome({"b": 0}, {"a": 0.0, "b": 0.0}, end="done")
        return Round(1, {"b": "?"}, {"b": prompt}, {"b": (said,)}, (end,))

    drawn = tuple(Completion("p", text, "stop", tokens=(1,), logprobs=(-1.0,)) for text in "xyz")
    nothing = {"a": 0.0, "b": 0.0}
    read = [answer((7, 3), -1.0, -2.0), answer((7, 4), -0.5), answer((7, 9), -0.25)]
    outcomes = tuple(Outcome({"a": g}, nothing, next=one) for g, one in enumerate(read))
    silent = Outcome({}, nothing, next=answer((7, 9), -3.0), once=True)
    root = Round(0, {"a": "?"}, {"a": (0,)}, {"a": drawn}, outcomes, (silent,))
    learner = OfThePrompt()
    components = SimpleNamespace(
        team=Team({"a": ("p",), "b": ("q",)}, decode={}),
        models=SimpleNamespace(learners={"q": learner}),
        train=SimpleNamespace(token_budget=64),
        longest={"q": 4},
    )
    episodes = [Episode("e", Task("t", {}), root)]
    found = asyncio.run(influences(components, episodes, {}))
    # After the default, a token of b has −0.9. The third prompt is the same with and without a.
    assert found == {
        (SampleId("e", (0,), "b", 0), "a"): pytest.approx(-3.0 + 1.8),
        (SampleId("e", (1,), "b", 0), "a"): pytest.approx(-0.5 + 0.9),
        (SampleId("e", (2,), "b", 0), "a"): 0.0,
    }
    assert learner.rows == 2
    present = {SampleId("e", (1,), "b", 0): (-0.75,)}
    found = asyncio.run(influences(components, episodes, present))
    assert found[SampleId("e", (1,), "b", 0), "a"] == pytest.approx(-0.75 + 0.9)
