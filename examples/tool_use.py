"""A solver that may call a calculator, and a checker that reads its answer and has no tool.

Run: python examples/tool_use.py
"""

import random

import motet


def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One number.
        b: The other.
    """
    return a + b


async def sums(task, agents):
    a, b = task.fields["a"], task.fields["b"]
    answer = await agents.solver.ask(f"{a} + {b}")
    verdict = await agents.checker.ask(f"{a} + {b} = {answer.text} ?")
    right = answer.text == str(a + b)
    agrees = (verdict.text == "yes") == right
    return motet.Score({"solver": right, "checker": agrees}, success=right and agrees)


class Sums(motet.FreeForm):
    def tasks(self, split):
        pairs = [(a, b) for a in range(1, 10) for b in range(1, 10)]
        chosen = [(a, b) for a, b in pairs if ((a + 2 * b) % 4 == 0) == (split == "eval")]
        return [motet.Task(f"{a} + {b}", {"a": a, "b": b}) for a, b in chosen]

    def demonstrate(self, task, seed):
        draw = random.Random(seed)
        a, b, guess = (draw.randint(1, 9) for _ in range(3))
        call, asked = motet.ToolCall("add", {"a": a, "b": b}), motet.Message("user", f"{a} + {b}")
        if seed % 3 == 0:
            text = draw.choice(["yes", "no"])
            return motet.Demonstration("checker", f"{a} + {b} = {a + guess} ?", text, turn=1)
        if seed % 3 == 1:
            text = str(a + guess) if draw.random() < 0.3 else call.written
            return motet.Demonstration("solver", [asked], text)
        read = [motet.Message("assistant", "", calls=(call,)), motet.Message("tool", str(a + b), "add")]
        return motet.Demonstration("solver", [asked, *read], str(a + b), turn=1)


game = Sums(sums, agents=["solver", "checker"])

if __name__ == "__main__":
    summary = motet.train("examples/tool_use.yaml", overwrite=True)
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"right sums with a right verdict, held out: {before:.2f} -> {after:.2f}")
