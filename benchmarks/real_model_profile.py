"""Say where the time of the writing task of real_model.py goes.

`python benchmarks/real_model_profile.py` runs one step (two minutes on two quiet cores) and writes
a table of docs/performance.md: the shares of 20 tokens of decoding, of one batch of learning, and
of the whole update.
"""

import functools
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from real_model import PAGE, THREADS, WORKS, written_texts
from tables import replaced, table
from torch.profiler import ProfilerActivity, profile

import motet
from motet.models import decode
from motet.models.learner import LocalLearner
from motet.trainer import learn, step_bound

BEGIN = "<!-- profile: `python benchmarks/real_model_profile.py` writes this part -->"
END = "<!-- /profile -->"
VOCABULARY, RANK = 49_152, 16
FIRST, TOKENS = 40, 20
"""Decoding is watched for so many tokens after the first ones."""
Shapes = Sequence[Sequence[int]]


def decoding(name: str, shapes: Shapes) -> str:
    """Return the group of an operation of decoding."""
    wide = any(VOCABULARY in shape for shape in shapes)
    if "linear" in name:
        return "language head" if wide else "linear layers"
    if wide:
        return "draw of the token"
    if name in ("aten::mm", "aten::addmm"):
        return "adapters"
    if name in ("aten::bmm", "aten::_softmax", "aten::masked_fill_"):
        return "attention"
    if name in ("aten::copy_", "aten::cat", "aten::index"):
        return "copies and conversions"
    return "other operations"


def learning(name: str, shapes: Shapes) -> str:
    """Return the group of an operation of learning."""
    if "attention" in name:
        return "attention's gradient" if "backward" in name else "attention"
    if any(VOCABULARY in shape for shape in shapes):
        return "language head"
    if name in ("aten::mm", "aten::addmm"):
        return "adapters" if any(RANK in shape for shape in shapes) else "linear layers"
    return "other operations"


def main() -> None:
    written_texts()
    lines = [
        (part, name, f"{share:.0%}")
        for part, own in shares().items()
        for name, share in sorted(own.items(), key=lambda one: -one[1])
        if share >= 0.005
    ]
    page = table(("part", "operations", "share"), lines)
    print(page)
    PAGE.write_text(replaced(PAGE.read_text(), page, BEGIN, END))


def shares() -> Mapping[str, Mapping[str, float]]:
    """Return part of a step -> what it does -> its share of the part's time."""
    work = next(one for one in WORKS if one.name == "writing")
    found: dict[str, Mapping[str, float]] = {}
    spent: dict[str, float] = defaultdict(float)
    watch_decoding(found)
    watch_learning(found)
    for place, name, said in (
        (LocalLearner, "accumulate", "reading and gradients"),
        (learn, "_step", "optimizer"),
        (step_bound, "begin", "the bound on the step"),
        (step_bound, "hold", "the bound on the step"),
    ):
        count_seconds(place, name, said, spent)
    with tempfile.TemporaryDirectory() as runs:
        settings = (
            f"threads={THREADS}", "train.steps=1", "evaluation={every: 0, tasks: 1, samples: 1}",
        )  # fmt: skip
        motet.train(work.config, [*work.overrides, *settings], runs=runs, show="silent")
    found["the whole update"] = {name: each / sum(spent.values()) for name, each in spent.items()}
    return found


def watch_decoding(found: dict[str, Mapping[str, float]]) -> None:
    read = decode._DecodeBatch.read
    state: dict[str, Any] = {"count": 0, "watch": None}

    @functools.wraps(read)
    def watched(*args: Any, **options: Any) -> Any:
        state["count"] += 1
        if state["count"] == FIRST:
            state["watch"] = begin()
        result = read(*args, **options)
        if state["count"] == FIRST + TOKENS:
            found[f"decoding, {TOKENS} tokens of each row"] = ended(state["watch"], decoding)
        return result

    decode._DecodeBatch.read = watched  # type: ignore[method-assign]


def watch_learning(found: dict[str, Mapping[str, float]]) -> None:
    accumulate, count = LocalLearner.accumulate, Counter[str]()

    async def watched(*args: Any, **options: Any) -> Any:
        count["batches"] += 1
        if count["batches"] != 2:
            return await accumulate(*args, **options)
        watch = begin()
        result = await accumulate(*args, **options)
        found["learning from one batch"] = ended(watch, learning)
        return result

    LocalLearner.accumulate = watched  # type: ignore[method-assign]


def begin() -> tuple[profile, float]:
    watch = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    watch.__enter__()
    return watch, time.perf_counter()


def ended(
    begun: tuple[profile, float], group_of: Callable[[str, Shapes], str]
) -> Mapping[str, float]:
    """Return group -> its share of the time since then; the rest is spent between operations."""
    watch, since = begun
    seconds = time.perf_counter() - since
    watch.__exit__(None, None, None)
    groups: dict[str, float] = defaultdict(float)
    for one in watch.key_averages(group_by_input_shape=True):
        groups[group_of(one.key, one.input_shapes)] += one.self_cpu_time_total / 1e6
    between = {"Python between operations": max(0.0, seconds - sum(groups.values()))}
    return {name: each / seconds for name, each in {**groups, **between}.items()}


def count_seconds(place: Any, name: str, said: str, spent: dict[str, float]) -> None:
    called = getattr(place, name)

    async def counted(*args: Any, **options: Any) -> Any:
        since = time.perf_counter()
        result = await called(*args, **options)
        spent[said] += time.perf_counter() - since
        return result

    setattr(place, name, counted)


if __name__ == "__main__":
    main()
