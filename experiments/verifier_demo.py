"""Train a verifier, and a team with its scores as the only reward: `make verifier-demo`.

It uses the embedded debate environment and tiny models.

1. Agent a, which knows one of two operations, answers at three temperatures. The gold answer labels
   each answer.
2. A model that sees only the questions learns to predict the labels. On balanced answers it cannot.
3. A verifier is trained on the balanced answers, from a model that was trained on both operations.
   It is evaluated on held-out questions.
4. The training process loads the verifier. A server of the same verifier gives the same scores.
5. Two agents learn to debate with its scores as the only reward.

Writes everything to runs/verifier-demo. Its summary.json has auc, ece, question_only_auc_before,
question_only_auc_after, reward_correlation, and the gold success of the team before and after.
"""

import json
import shutil
import sys
from pathlib import Path
from time import monotonic

import motet
from motet.commands.console import out, titled
from motet.commands.exit_codes import ends_with_one_line
from motet_verifier.api import train_verifier
from motet_verifier.api_answers import balance_answers, sample_answers

TASKS = 9000
"""Number of questions that are answered."""
STEPS = 60
"""Training steps of the team."""


def main(runs: Path = Path("runs")) -> None:
    begun = monotonic()
    folder = runs / "verifier-demo"
    shutil.rmtree(folder, ignore_errors=True)
    debate, tiny = "debate_verifier", "verifiers/tiny"
    say("1  agents that each know one operation")
    warm = motet.warmup("debate_magrpo", into=folder / "warm")
    team = [
        "warmup=null",
        *(f"models.{name}={{path: {place}, embedded: null}}" for name, place in warm.items()),
    ]
    exact = [*team, "environment.score=exact", "verifier=null", "rollout.samples=[1]"]
    able = motet.warmup(
        "debate_magrpo",
        [
            "models.tiny_b=null",
            "policies.b.model=tiny_a",
            "environment.slip=0.0",
            "environment.keep=1.0",
        ],
        into=folder / "able",
    )
    start = [f"model={{path: {able['tiny_a']}, embedded: null}}"]
    say("2  what agent a answers")
    answers, balanced = folder / "answers.jsonl", folder / "balanced.jsonl"
    sampled = sample_answers(
        debate, answers, exact, temperatures=(0.7, 1.0, 1.3), games=3, agents=("a",), tasks=TASKS
    )
    say("3  as many right as wrong answers to every question")
    evened = balance_answers(
        answers, debate, balanced, exact, each=1, tries=4, writer="a", temperature=2.5
    )
    say("4  what the questions alone give away, before and after")
    before, after = (
        train_verifier(
            tiny,
            file,
            folder / f"question-only-{file.stem}",
            [*start, "epochs=3"],
            question_only=True,
        )
        for file in (answers, balanced)
    )
    say("5  the verifier")
    figures = train_verifier(tiny, balanced, folder / "verifier", start)
    say("6  a team that it rewards")
    learnt = motet.train(
        debate,
        [*team, f"verifier.folder={folder / 'verifier'}", "name=team", f"train.steps={STEPS}"],
        runs=folder,
    )
    summary = {
        "auc": figures["auc"],
        "accuracy": figures["accuracy"],
        "ece": figures["ece"],
        "question_only_auc_before": before["auc"],
        "question_only_auc_after": after["auc"],
        "reward_correlation": learnt.heldout["after"].gold_correlation,
        "gold_success_before": learnt.heldout["before"].success,
        "gold_success_after": learnt.heldout["after"].success,
        "sampled": sampled,
        "balanced": evened,
        "seconds": monotonic() - begun,
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    table = titled("verifier-demo, on questions that were held out", ["", ""])
    for name, value in summary.items():
        if isinstance(value, float):
            table.add_row(name, f"{value:.0f}" if name == "seconds" else f"{value:.3f}")
    out.print(table)


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    ends_with_one_line(main)
