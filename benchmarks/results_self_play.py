"""Run every experiment behind docs/self_play.md, and write its tables: `make results-self-play`.

Two runs are active at a time, with one thread each. Names as arguments run and write single tables.
The environment variable RUNS names the folder of the runs. Finished runs are not run again.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import results
from results import Part, tabled
from results_runs import ROOT, Experiment, summary
from results_runs import motet as called

from motet_tasks.zero_sum import kuhn_poker
from motet_tasks.zero_sum.exploitability import exploitability

PAGE = ROOT / "docs" / "self_play.md"
SEEDS = (1, 2, 3)
"""The settings were found with seeds 0, 4 and 5."""
KUHN: Mapping[str, Experiment] = {
    name: Experiment(f"self_play_{config}{suffix}", config, overrides, SEEDS)
    for name, config, suffix, overrides in (
        ("`kuhn_poker_tiny`: one policy", "kuhn_poker_tiny", "", ()),
        ("two policies", "kuhn_poker_tiny_two", "", ()),
        ("past opponents", "kuhn_poker_tiny_past", "", ()),
        ("without a baseline", "kuhn_poker_tiny_plain", "", ()),
        ("the last weights", "kuhn_poker_tiny", "_last", ("train.average_share=0",)),
        (
            "without an entropy bonus", "kuhn_poker_tiny", "_no_entropy",
            ("algorithm={entropy_coefficient: 0, entropy_final: null}",),
        ),
    )
}  # fmt: skip
BLUFF = {"`bluff_tiny`": Experiment("self_play_bluff_tiny", "bluff_tiny", (), SEEDS)}
TIC_TAC_TOE: Mapping[str, Experiment] = {
    "`tic_tac_toe_tiny`": Experiment("self_play_tic_tac_toe", "tic_tac_toe_tiny", (), SEEDS),
    "without a baseline": Experiment(
        "self_play_tic_tac_toe_plain",
        "tic_tac_toe_tiny",
        ("algorithm.name=mareinforce",),
        SEEDS,
    ),
}
ENDS = (200, 600, 1800)
"""Steps after which the exact gradient is judged."""
RATE = 5.0
"""Its learning rate."""


def exploited(runs: Mapping[str, Experiment]) -> Iterator[Sequence[str]]:
    """The exploitability of each way to learn, for each seed, in chips."""
    yield ("run", "before", "after: each seed", "after: mean", "the first wins", "CPU s")
    for name, one in runs.items():
        folders = [one.folder(seed) for seed in one.seeds]
        before = [_exploitability(_start(folder))["exploitability"]["ann"] for folder in folders]
        found = [_exploitability(folder) for folder in folders]
        after = [each["exploitability"]["ann"] for each in found]
        yield (
            name,
            f"{mean(before):.3f}",
            ", ".join(f"{value:.3f}" for value in after),
            f"{mean(after):.3f}",
            ", ".join(f"{each['first']:+.3f}" for each in found),
            f"{mean(summary(folder)['cpu_seconds'] for folder in folders):.0f}",
        )


def tic_tac_toe() -> Iterator[Sequence[str]]:
    """The games against the player without errors, before and after training."""
    yield (
        "run", "seed", "drawn before", "drawn after", "lost after", "of these by an illegal move",
        "CPU s",
    )  # fmt: skip
    for name, one in TIC_TAC_TOE.items():
        for seed in one.seeds:
            folder = one.folder(seed)
            before = _against_optimal(_start(folder), folder, "before")["terms"]
            after = _against_optimal(folder, folder, "after")["terms"]
            yield (
                name,
                str(seed),
                f"{before['drawn']:.3f}",
                *(f"{after[term]:.3f}" for term in ("drawn", "lost", "illegal/ann")),
                f"{summary(folder)['cpu_seconds']:.0f}",
            )


def entropy() -> Iterator[Sequence[str]]:
    """Where a table of probabilities ends that follows the exact gradient in Kuhn's poker."""
    yield ("entropy bonus", *(f"after {steps}" for steps in ENDS))
    for bonus in (0.0, 0.05, 0.1, 0.2, 0.5):
        logit = dict.fromkeys(kuhn_poker.EQUILIBRIUM, 0.0)
        found = []
        for step in range(1, ENDS[-1] + 1):
            gradient = _gradient(logit, bonus)
            logit = {known: value + RATE * gradient[known] for known, value in logit.items()}
            if step in ENDS:
                found.append(exploitability(kuhn_poker.RULES, _betting(logit)))
        yield (f"{bonus:g}", *(f"{value:.3f}" for value in found))


def _betting(logit: Mapping[str, float]) -> dict[str, dict[str, float]]:
    bets = {known: 1 / (1 + math.exp(-value)) for known, value in logit.items()}
    return {known: {"pass": 1 - bet, "bet": bet} for known, bet in bets.items()}


def _gradient(logit: Mapping[str, float], bonus: float) -> dict[str, float]:
    """Return the gradient of each player's reward and entropy by the logits of its bets."""
    rules, policy = kuhn_poker.RULES, _betting(logit)
    found = dict.fromkeys(logit, 0.0)

    def won(hand: kuhn_poker.Hand, reached: float) -> float:
        """Return what the first player wins from here on, where a share of the games comes."""
        value = rules.won(hand)
        if value is not None:
            return value
        known, sign = rules.known(hand), 1 if rules.seat(hand) == 0 else -1
        chance = policy[known]
        led_to = {
            move: won(rules.after(hand, move, move), reached * chance[move]) for move in chance
        }
        slope = chance["pass"] * chance["bet"]
        gain = sign * (led_to["bet"] - led_to["pass"]) - bonus * logit[known]
        found[known] += reached * slope * gain
        return sum(chance[move] * led_to[move] for move in chance)

    for deal in rules.deals:
        won(deal, 1 / len(rules.deals))
    return found


def _start(folder: Path) -> Path:
    """Return the checkpoint before the first step."""
    return folder / "checkpoints" / "step-000000"


def _exploitability(target: Path) -> dict[str, Any]:
    return called("exploitability", str(target))


def _against_optimal(target: Path, folder: Path, when: str) -> dict[str, Any]:
    kept = folder / f"optimal-{when}.json"
    if not kept.is_file():
        kept.write_text(json.dumps(called("evaluate", str(target), "environment.opponent=optimal")))
    read: dict[str, Any] = json.loads(kept.read_text())
    return read


PARTS = {
    "entropy": Part(tabled(entropy)),
    "kuhn": Part(tabled(partial(exploited, KUHN)), tuple(KUHN.values())),
    "bluff": Part(tabled(partial(exploited, BLUFF)), tuple(BLUFF.values())),
    "tic_tac_toe": Part(tabled(tic_tac_toe), tuple(TIC_TAC_TOE.values())),
}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-self-play")
