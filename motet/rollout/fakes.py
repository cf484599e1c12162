"""Stand-ins for this room's tests: a sampler that knows no model, and a game whose rewards can be read off its replies."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motet.core import (
    Completion,
    Episode,
    Fault,
    Message,
    OnAnswer,
    Outcome,
    Prompt,
    Reply,
    Round,
    Sampled,
    SampleRequest,
    Task,
    Team,
    Transition,
)
from motet.rollout.playthrough import Playthrough, playthroughs
from motet.settings import Decode


@dataclass
class KeySampler:
    """An answer is the last three digits of its key, so texts show the seeds; a greedy answer is 999. Remembers every wave.

    `clock` draws which answers are handed out early, in which order and when.
    """

    refuse: Callable[[SampleRequest], bool] = lambda request: False
    clock: random.Random | None = None
    waves: list[list[tuple[Any, ...]]] = field(default_factory=list)
    requests: list[SampleRequest] = field(default_factory=list)

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        self.waves.append([request.id for request in requests])
        self.requests.extend(requests)
        answers = [self._answer(request) for request in requests]
        await asyncio.sleep(0)
        if self.clock is not None and on_answer is not None:
            for place in self.clock.sample(range(len(answers)), self.clock.randint(0, len(answers))):
                on_answer(place, answers[place])
                await asyncio.sleep(self.clock.random() * 0.002)
        return answers

    def _answer(self, request: SampleRequest) -> Sampled | Fault:
        if self.refuse(request):
            return Fault("sampler", "long_prompt", "no room")
        texts = ["999" if request.greedy else f"{key % 1000:03d}" for key in request.keys]
        completions = tuple(
            Completion(request.policy, text, "stop", tokens=tuple(map(int, text)), logprobs=(-0.5,) * 3)
            for text in texts
        )
        return Sampled((1, 2), completions)


Replies = tuple[tuple[str, str], ...]


@dataclass
class Talk:
    """A state is what was said so far. Every turn pays each agent `pay(said)`; `clock` draws how long a step takes."""

    agents: Sequence[str] = ("ann", "bob")
    branches: bool = True
    acting: Callable[[int], Sequence[str]] = lambda turn: ("ann", "bob")
    pay: Callable[[tuple[Replies, ...]], float] = lambda said: 0.0
    ends: Callable[[tuple[Replies, ...]], bool] = lambda said: False
    break_at: Callable[[str, tuple[Replies, ...]], None] = lambda where, said: None
    clock: random.Random | None = None
    closed: list[Any] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    async def start(self, task: Task, seed: int) -> tuple[Replies, ...]:
        self.break_at("start", ())
        return ()

    def observe(self, state: tuple[Replies, ...]) -> Mapping[str, Prompt]:
        self.break_at("observe", state)
        return {agent: (Message("user", f"{agent} after {state}"),) for agent in self.acting(len(state))}

    async def step(self, state: tuple[Replies, ...], replies: Mapping[str, Reply], seed: int) -> Transition:
        if self.clock is not None:
            await asyncio.sleep(self.clock.random() * 0.002)
        said = (*state, tuple(sorted((agent, reply.text) for agent, reply in replies.items())))
        self.break_at("step", said)
        self.seeds.append(seed)
        return Transition(
            said, dict.fromkeys(self.agents, self.pay(said)), self.ends(said), {"length": float(len(said))}
        )

    async def close(self, state: tuple[Replies, ...]) -> None:
        self.closed.append(state)
        self.break_at("close", state)


def team_of(agents: Sequence[str], system: Mapping[str, str] | None = None) -> Team:
    return Team({agent: (f"{agent}-policy",) for agent in agents}, {agent: Decode() for agent in agents}, system or {})


PAIR = team_of(("ann", "bob"))


# ---------------------------------------------------------------------------------------------------- finished games

TASK = Task("t", {})
BROKEN = Fault("sandbox", "TimeoutError", "slow")


def said(text: str) -> Completion:
    """One token per letter."""
    return Completion("p", text, "stop", tokens=tuple(range(len(text))), logprobs=(0.0,) * len(text))


def outcome(pick: int, reward: float, next: Round | None = None, **terms: float) -> Outcome:
    """Agents earn reward ± 1, so that `reward` is their mean."""
    rewards = {"a": reward - 1.0, "b": reward + 1.0}
    return Outcome({"a": pick, "b": pick}, rewards, terms, next, None if next else "done")


def broken(pick: int) -> Outcome:
    return Outcome({"a": pick, "b": pick}, {}, fault=BROKEN)


def round_(turn: int, texts: Sequence[str], *outcomes: Outcome) -> Round:
    """`texts` are what a says in each sample; b says the same twice over."""
    samples = {"a": tuple(said(text) for text in texts), "b": tuple(said(text * 2) for text in texts)}
    return Round(turn, {"a": "?", "b": "?"}, {"a": (1,), "b": (1,)}, samples, outcomes)


def game(*turns: tuple[float, Mapping[str, float]]) -> Playthrough:
    """One game of which every turn earned (reward, terms)."""
    below = None
    for turn in reversed(range(len(turns))):
        reward, terms = turns[turn]
        below = round_(turn, ["x"], outcome(0, reward, below, **terms))
    return playthroughs(Episode("e", TASK, below))[0]


WON, LOST = game((1.0, {"success": 1.0})), game((0.0, {"success": 0.0}))
BROKE = Playthrough(TASK, ((round_(0, ["x"], broken(0)), broken(0)),))
