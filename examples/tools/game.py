"""Sums of two numbers: a solver answers, and a checker judges the answer."""

import random

from calculator import add

import motet
from motet import Demonstration, Message, ToolCall

SUMS = [{"a": a, "b": b} for a in range(1, 10) for b in range(1, 10)]


async def sums(task, agents):
    asked, total = "{a} + {b}".format(**task.fields), str(sum(task.fields.values()))
    answer = await agents.solver.ask(asked)
    verdict = await agents.checker.ask(f"{asked} = {answer.text} ?")
    right = answer.text == total
    agrees = right == (verdict.text == "yes")
    return motet.Score({"solver": right, "checker": agrees}, success=right and agrees)


class Sums(motet.FreeForm):
    def tasks(self, split):
        held_out = [one for one in SUMS if (one["a"] + 2 * one["b"]) % 4 == 0]
        chosen = held_out if split == "eval" else [one for one in SUMS if one not in held_out]
        return [motet.Task("{a} + {b}".format(**one), one) for one in chosen]

    def demonstrate(self, task, seed):
        """A verdict, a call or a guess, or what is to be said of a result."""
        draw = random.Random(seed)
        numbers, guess = draw.choice(SUMS), str(draw.randint(2, 18))
        asked, call = Message("user", "{a} + {b}".format(**numbers)), ToolCall("add", numbers)
        match seed % 3:
            case 0:
                said = f"{asked.content} = {guess} ?"
                return Demonstration("checker", said, draw.choice(["yes", "no"]), turn=1)
            case 1:
                text = guess if draw.random() < 0.3 else call.written
                return Demonstration("solver", (asked,), text)
            case _:
                result = str(add(**numbers))
                read = (Message("assistant", "", calls=(call,)), Message("tool", result, "add"))
                return Demonstration("solver", (asked, *read), result, turn=1)


game = Sums(sums, agents=["solver", "checker"])
