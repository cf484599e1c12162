"""A game whose reward can be cheated: one of the sick runs of docs/reading_a_run.md."""

import random

import motet


class Guess(motet.Environment):
    """Two agents guess a digit that nobody is shown.

    The reward is paid for each answer that contains the digit, and success is one answer that is
    the digit. So an answer with many digits earns more and more, and never succeeds.
    """

    branches = True
    most_turns = 1
    agents = ("ann", "bob")

    def tasks(self, split):
        """The numbers to 79 are for training, and those to 99 are held out."""
        mine = range(80) if split == "train" else range(80, 100)
        return [motet.Task(f"{split} {k}", {"k": k}) for k in mine]

    async def start(self, task, seed):
        return (task.fields["k"],)

    def observe(self, state):
        return {agent: f"{agent}, guess the digit of {state[0] // 10}: " for agent in self.agents}

    async def step(self, state, replies, seed):
        hidden = str(state[0] % 10)
        texts = [replies[agent].text.strip() for agent in self.agents]
        reward = sum(hidden in text for text in texts) / len(texts)
        return motet.Transition(
            state, dict.fromkeys(self.agents, reward), True, success=float(hidden in texts)
        )

    def demonstrate(self, task, seed):
        """An answer of one to three digits, mostly one."""
        draw = random.Random(seed)
        agent = draw.choice(self.agents)
        said = "".join(str(draw.randrange(10)) for _ in range(draw.choice((1, 1, 1, 2, 3))))
        return motet.Demonstration(agent, self.observe((task.fields["k"],))[agent], said)
