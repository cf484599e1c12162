"""Small games of two to four agents, whose credit is known: the runs behind docs/credit.md.

`ignored` names an agent whose answers change nothing, made useless on purpose.
"""

import random

from pydantic import Field

import motet

NAMES = ("ann", "bob", "cid", "dee")


class _Game(motet.Environment):
    branches = True

    class Options(motet.Settings):
        agents: int = Field(2, ge=2, le=len(NAMES))
        ignored: str | None = None

    def __init__(self, options):
        self.options = options
        self.agents = NAMES[: options.agents]
        self.counted = [agent for agent in self.agents if agent != options.ignored]

    def tasks(self, split):
        """The numbers to 79 are for training, and those to 99 are held out."""
        mine = range(80) if split == "train" else range(80, 100)
        return [motet.Task(f"{split} {k}", {"k": k}) for k in mine]

    async def start(self, task, seed):
        return (task.fields["k"],)

    def paid(self, state, worth, solved):
        return motet.Transition(
            state, dict.fromkeys(self.agents, float(worth)), True, success=float(solved)
        )


class SameDigit(_Game):
    """All must say the same digit, without a word: each needs the others.

    The reward is the share of pairs that agree, and success is that all do.
    """

    most_turns = 1

    def observe(self, state):
        return {agent: f"{agent} of {state[0]}: " for agent in self.agents}

    async def step(self, state, replies, seed):
        said = [replies[agent].text.strip() for agent in self.counted]
        pairs = [
            one == other and one.isdecimal() and len(one) == 1
            for place, one in enumerate(said)
            for other in said[:place]
        ]
        return self.paid(state, sum(pairs) / len(pairs), all(pairs))

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        agent = draw.choice(self.agents)
        return motet.Demonstration(
            agent, self.observe((task.fields["k"],))[agent], str(draw.randrange(4))
        )


class OneIsEnough(_Game):
    """One right answer pays for all: everybody can do the work, and everybody can ride free.

    The answer is the digit that is shown. One demonstration in five gives it, the others any digit.
    """

    most_turns = 1

    def observe(self, state):
        return {agent: f"{agent} {state[0] % 10}: " for agent in self.agents}

    async def step(self, state, replies, seed):
        right = str(state[0] % 10)
        solved = any(replies[agent].text.strip() == right for agent in self.counted)
        return self.paid(state, solved, solved)

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        agent, k = draw.choice(self.agents), task.fields["k"]
        said = k % 10 if draw.random() < 0.2 else draw.randrange(10)
        return motet.Demonstration(agent, self.observe((k,))[agent], str(said))


class Whispers(_Game):
    """The first agent reads a digit, each next one what the one before it said, and the last must
    say the digit. Each adds −1, 0 or 1 at first: they have to learn to add up to nothing."""

    def turn_of(self, state):
        return len(state) - 1

    def observe(self, state):
        turn = self.turn_of(state)
        agent = self.agents[turn]
        heard = [
            said for name, said in zip(self.agents, state[1:], strict=False) if name in self.counted
        ]
        read = heard[-1] if heard else str(state[0] % 10)
        return {agent: f"{agent} {read[:4]}: "}

    async def step(self, state, replies, seed):
        (reply,) = replies.values()
        state = (*state, reply.text.strip())
        if len(state) <= len(self.agents):
            return motet.Transition(state, dict.fromkeys(self.agents, 0.0), False)
        solved = state[-1] == str(state[0] % 10)
        return self.paid(state, solved, solved)

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        agent, k = draw.choice(self.agents), draw.randrange(10)
        said = (k + draw.choice((-1, 0, 1))) % 10
        return motet.Demonstration(agent, f"{agent} {k}: ", str(said), self.agents.index(agent))
