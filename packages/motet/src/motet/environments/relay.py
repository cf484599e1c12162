"""The embedded two-turn task: each of two agents knows one half of a password.

In turn one both send a message at the same time. In turn two each has read the other's message and
writes the whole password. Only the answers are rewarded, so a message gets credit only through its
effect. Demonstrations write a half in one of several letter codes that use the same letters. The
code of the partner's message is chosen independently. So after the warm-up no agent knows which
code the other one uses.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from motet.core import Demonstration, Environment, Reply, Task, Transition
from motet.environments.chat_texts import one_or_each
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings

AGENTS = ("a", "b")
LETTERS = "abcdefghij"
FIRST_TURN_SHARE = 0.35
"""Share of demonstrations that show a message. The larger part shows an answer, because answers are
harder to learn."""


@dataclass(frozen=True)
class Dialogue:
    """The state: both halves, the turn to play next, and the messages of turn one."""

    halves: Mapping[str, str]
    turn: int = 0
    messages: Mapping[str, str] = field(default_factory=dict)

    @property
    def password(self) -> str:
        return "".join(self.halves[agent] for agent in AGENTS)


def letter_codes(count: int) -> tuple[str, ...]:
    """Return `count` codes that map the digits 0 to 9 to letters, always the same ones.

    No two codes map any digit to the same letter.
    """
    draw = random.Random(7)
    codes: list[str] = []
    while len(codes) < count:
        letters = list(LETTERS)
        draw.shuffle(letters)
        if all(one != other for code in codes for one, other in zip(code, letters, strict=True)):
            codes.append("".join(letters))
    return tuple(codes)


def other(agent: str) -> str:
    return AGENTS[1 - AGENTS.index(agent)]


class Relay(Environment[Dialogue]):
    """Two turns. Both agents get the same reward, at the end only: 1 if both answers are right,
    `partial` if one is."""

    agents: Sequence[str] = AGENTS
    branches = True
    most_turns = 2

    class Options(Settings):
        """Options of the relay environment."""

        codes: int = Field(2, ge=1, le=5)
        """Number of letter codes that the demonstrations mix."""
        digits: int = Field(2, ge=1, le=2)
        """Number of digits of each half."""
        partial: float = Field(0.2, ge=0.0, lt=1.0)
        """Reward if one of the two answers is right."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.codes = letter_codes(options.codes)

    def tasks(self, split: str) -> list[Task]:
        """Return the passwords of `train` or `eval`, always the same in the same shuffled order.

        A fifth is held out, at most 300.
        """
        digits, count = self.options.digits, 10**self.options.digits
        pairs = [(a, b) for a in range(count) for b in range(count)]
        random.Random(0).shuffle(pairs)
        held_out = min(300, len(pairs) // 5)
        parts = {"train": pairs[held_out:], "eval": pairs[:held_out]}
        chosen = part_of("relay", parts, split)
        written = [(f"{a:0{digits}}", f"{b:0{digits}}") for a, b in chosen]
        return [Task(f"{a}-{b}", {"a": a, "b": b}) for a, b in written]

    async def start(self, task: Task, seed: int) -> Dialogue:
        return self._begin(task)

    def observe(self, state: Dialogue) -> Mapping[str, str]:
        return {agent: self._prompt(state, agent) for agent in AGENTS}

    async def step(self, state: Dialogue, replies: Mapping[str, Reply], seed: int) -> Transition:
        texts = {agent: replies[agent].text for agent in AGENTS}
        if state.turn == 0:
            return Transition(
                Dialogue(state.halves, 1, texts), dict.fromkeys(AGENTS, 0.0), done=False
            )
        right = {agent: float(texts[agent] == state.password) for agent in AGENTS}
        both, one = min(right.values()), max(right.values())
        reward = both or self.options.partial * one
        return Transition(
            Dialogue(state.halves, 2, state.messages),
            dict.fromkeys(AGENTS, reward),
            done=True,
            success=both,
            metrics={f"{agent}_right": right[agent] for agent in AGENTS},
        )

    def _begin(self, task: Task) -> Dialogue:
        return Dialogue({agent: task.fields[agent] for agent in AGENTS})

    def _prompt(self, state: Dialogue, agent: str) -> str:
        question = f"{agent.upper()}{state.halves[agent]}:"
        if not state.messages:
            return question
        return f"{question}{state.messages[agent]}/{state.messages[other(agent)]}="

    def _say(self, state: Dialogue, agent: str, code: int) -> str:
        return "".join(self.codes[code][int(digit)] for digit in state.halves[agent])

    # ------------------------------------------------------------ chat

    def chat_task(self, text: str) -> Task:
        """Read the two halves of a password, such as "12 34"."""
        halves, digits = text.replace("-", " ").split(), self.options.digits
        fits = [len(half) == digits and half.isascii() and half.isdecimal() for half in halves]
        if fits != [True, True]:
            raise ConfigError(
                f"got {shortened(text)!r}; expected two numbers of {digits} digits, such as "
                f"{'12'[:digits]} {'34'[:digits]}: the halves of a password"
            )
        return Task("-".join(halves), dict(zip(AGENTS, halves, strict=True)))

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the password that both agents say, or what each of them says."""
        return one_or_each(texts, AGENTS)

    # ------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return a message in a random code, or the answer to a dialogue.

        The two messages of the dialogue are in independent random codes.
        """
        draw = random.Random(seed)
        begun, agent = self._begin(task), draw.choice(AGENTS)
        said = {each: self._say(begun, each, draw.randrange(len(self.codes))) for each in AGENTS}
        if draw.random() < FIRST_TURN_SHARE:
            return Demonstration(agent, self._prompt(begun, agent), said[agent], turn=0)
        after_turn_one = Dialogue(begun.halves, 1, said)
        return Demonstration(agent, self._prompt(after_turn_one, agent), begun.password, turn=1)

    def solve(self, state: Dialogue, seed: int) -> dict[str, str]:
        if state.turn == 0:
            return {agent: self._say(state, agent, 0) for agent in AGENTS}
        return dict.fromkeys(AGENTS, state.password)

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return `code 0`, `code 1`, ... for a message in that code; `answer` for digits;
        `mixed` for anything else."""
        begun = self._begin(task)
        for code in range(len(self.codes)):
            if text == self._say(begun, agent, code):
                return f"code {code}"
        return "answer" if text.isdecimal() else "mixed"
