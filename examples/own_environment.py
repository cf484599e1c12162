"""Two agents must name the same number, without a word. Run: python examples/own_environment.py"""

import random

import motet


class SameNumber(motet.Environment):
    agents = ("left", "right")
    branches = True

    def tasks(self, split):
        count = 60 if split == "train" else 12
        return [motet.Task(f"{split} {k}", {"highest": 3 + k % 6}) for k in range(count)]

    async def start(self, task, seed):
        return task.fields["highest"]

    def observe(self, highest):
        return {agent: f"{agent}, a number up to {highest}: " for agent in self.agents}

    async def step(self, highest, replies, seed):
        left, right = (replies[agent].text.strip() for agent in self.agents)
        same = float(left == right and left.isdecimal() and int(left) <= highest)
        return motet.Transition(highest, dict.fromkeys(self.agents, same), True, success=same)

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        agent, number = draw.choice(self.agents), draw.randint(0, task.fields["highest"])
        return motet.Demonstration(agent, self.observe(task.fields["highest"])[agent], str(number))


if __name__ == "__main__":
    print(motet.check_environment(SameNumber()))
    summary = motet.train("examples/same_number.yaml", ["name=own_environment"], overwrite=True)
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
