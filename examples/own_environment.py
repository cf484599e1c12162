"""An environment of your own: two agents must name the same number, and cannot talk. Run: python examples/own_environment.py"""

import random

import motet


class SameNumber:
    agents = ("left", "right")
    branches = True

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {"highest": 3 + k % 6}) for k in range(60 if split == "train" else 12)]

    async def start(self, task, seed):
        return task.fields["highest"]

    def observe(self, highest):
        return {agent: f"{agent}, a number up to {highest}: " for agent in self.agents}

    async def step(self, highest, replies, seed):
        said = [reply.text.strip() for reply in replies.values()]
        same = float(said[0] == said[1] and said[0].isdecimal() and int(said[0]) <= highest)
        return motet.Transition(highest, dict.fromkeys(self.agents, same), done=True, terms={"success": same})

    async def close(self, highest): ...

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        agent, highest = draw.choice(self.agents), task.fields["highest"]
        return motet.Demonstration(agent, f"{agent}, a number up to {highest}: ", str(draw.randint(0, highest)))


if __name__ == "__main__":
    print(motet.check_environment(SameNumber()))
    summary = motet.train("examples/same_number.yaml", ["name=own_environment"], overwrite=True)
    before, after = (summary["heldout"][when]["success"] for when in ("before", "after"))
    print(f"the same number, held out: {before:.2f} -> {after:.2f}")
