"""A solver may call a calculator before it answers; a checker, without a tool, judges the answer.

Run: python examples/tool_use.py
"""

import motet

summary = motet.train("examples/tools/config.yaml", overwrite=True)
before, after = (summary.heldout[when].success for when in ("before", "after"))
print(f"right sums with right verdicts, held out: {before:.2f} -> {after:.2f}")
