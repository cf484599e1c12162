"""A dialogue with a tool call: one agent queries a table, the other reads the result and answers.

Run: python examples/dialogue.py
"""

import random

import motet

PRICES = {"tea": "2", "rice": "5", "salt": "9", "milk": "4"}
CALL, READ = "Write one item: ", "The price is {}. Answer: "


async def dialogue(task, agents):
    call = await agents.caller.ask(CALL)
    price = PRICES.get(call.text.strip(), "unknown")  # the tool: any Python, or await a server
    answer = await agents.reader.ask(READ.format(price))
    right = price == task.fields["wanted"] == answer.text.strip()
    return motet.Score(float(right), success=right)


class Shopping(motet.FreeForm):
    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {"wanted": "9"}) for k in range(40)]

    def demonstrate(self, task, seed):
        item, price = random.Random(seed).choice(list(PRICES.items()))
        if seed % 2:
            return motet.Demonstration("caller", CALL, item)
        return motet.Demonstration("reader", READ.format(price), price, turn=1)


shopping = Shopping(dialogue, agents=["caller", "reader"])

if __name__ == "__main__":
    summary = motet.train("examples/dialogue.yaml", overwrite=True)
    before, after = (summary.heldout[when].success for when in ("before", "after"))
    print(f"the dearest item bought, held out: {before:.2f} -> {after:.2f}")
