"""Programs per second through the sandbox, and through a fresh interpreter each, interleaved. `python benchmarks/sandbox.py`

Both run the same small program and call it five times, two at a time on two cores.
"""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter

from motet.sandbox import Call, Sandbox

SOURCE = "def main(xs):\n return sum(x * {k} for x in xs if x > 2)\n"
CALLS = [Call("main", (list(range(n, n + 8)),)) for n in range(5)]
ROUNDS, PROGRAMS, WORKERS = 5, 200, os.cpu_count() or 1


async def sandboxed(sandbox: Sandbox, start: int) -> float:
    """Programs per second; every text is new, so that nothing comes from memory."""
    begun = perf_counter()
    await asyncio.gather(*(sandbox.run([SOURCE.format(k=start + k)], CALLS) for k in range(PROGRAMS)))
    return PROGRAMS / (perf_counter() - begun)


def fresh(start: int) -> float:
    calls = "\n".join(f"main({call.args[0]})" for call in CALLS)
    begun = perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        commands = [[sys.executable, "-I", "-S", "-c", SOURCE.format(k=start + k) + calls] for k in range(PROGRAMS)]
        list(pool.map(lambda command: subprocess.run(command, check=True), commands))
    return PROGRAMS / (perf_counter() - begun)


def main() -> None:
    with Sandbox(WORKERS) as sandbox:
        asyncio.run(sandboxed(sandbox, 10**6))
        pairs = [(asyncio.run(sandboxed(sandbox, n * PROGRAMS)), fresh(n * PROGRAMS)) for n in range(ROUNDS)]
        level = sandbox.level.name
    inside, outside = median(a for a, _ in pairs), median(b for _, b in pairs)
    ratio = median(a / b for a, b in pairs)
    print(
        f"level {level}, {WORKERS} workers: sandbox {inside:.0f} programs/s, fresh interpreter {outside:.0f}/s, ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
