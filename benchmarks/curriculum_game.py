"""A game whose tasks mostly teach nothing: the runs behind docs/curricula.md.

Both agents read the number of a task and answer with a digit, without a word. Demonstrations show
the last digit of solved tasks, and any of four digits for all others.

    tasks        level   success                              before training
    0 to 19      0       both say the last digit              nearly always
    20 to 29     1       both say the same digit              one time in four
    30 to 59     2       both say x, which nobody ever shows  never
"""

import random

import motet

AGENTS = ("ann", "bob")
SOLVED, OPEN, ALL = 20, 30, 60
"""The numbers below which a task is solved, or open; and the number of tasks."""


class MostlyFlat(motet.Environment):
    agents = AGENTS
    branches = True
    most_turns = 1

    def tasks(self, split):
        """All tasks are for training, and the open ones are held out too: what is learned of a task
        is the answer to its number."""
        mine = range(ALL) if split == "train" else range(SOLVED, OPEN)
        return [motet.Task(f"{split} {k}", {"k": k}) for k in mine]

    def level(self, task):
        return (task.fields["k"] >= SOLVED) + (task.fields["k"] >= OPEN)

    async def start(self, task, seed):
        return task.fields["k"]

    def observe(self, k):
        return {agent: f"{agent} of {k}: " for agent in AGENTS}

    async def step(self, k, replies, seed):
        one, other = (replies[agent].text.strip() for agent in AGENTS)
        same = one == other and one in self._answers(k)
        return motet.Transition(k, dict.fromkeys(AGENTS, float(same)), True, success=float(same))

    def _answers(self, k):
        """Return the answers of which both agents must give the same one."""
        if k < SOLVED:
            return (str(k % 10),)
        if k < OPEN:
            return tuple("0123456789")
        return ("x",)

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        agent, k = draw.choice(AGENTS), task.fields["k"]
        said = k % 10 if k < SOLVED else draw.randrange(4)
        return motet.Demonstration(agent, self.observe(k)[agent], str(said))
