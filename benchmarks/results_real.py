"""Run every experiment behind docs/real.md, and write its tables: `make results-real`.

Two runs are active at a time, with one thread each. Names as arguments run and write single tables.
The environment variable RUNS names the folder of the runs. Finished runs are not run again, and
for some tables neither are those whose figures are kept in benchmarks/results/runs:
`python benchmarks/results_real.py --so-far tasks` writes such a table without running anything.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

import real_tasks
import results
import torch
from chat_picture import draw_learned
from kept_runs import reached
from real_tasks import MODEL, THREE
from results import Part, tabled
from results_runs import ROOT, Experiment, motet

from motet.core import ScoreRequest, walk
from motet.models.backbone import Backbone
from motet.models.forward import score_requests
from motet.rollout.record import read_episodes

PAGE = ROOT / "docs" / "real.md"
MESSAGES = {
    "descriptions of another word": "messages --shuffle-turn 1",
    "empty descriptions": "messages --blank-turn 1",
}
"""Row of the table of controls -> the command that plays the trained team so."""
TABOO = Experiment("taboo", "taboo", seeds=(0, 1, 2, 3, 4), calls=tuple(MESSAGES.values()))
TELEGRAM = Experiment("telegram", "telegram", ("threads=1",), THREE, calls=tuple(MESSAGES.values()))
CONTROLS = {
    "only the guesser learns": Experiment(
        "taboo_describer_frozen",
        "taboo",
        ("policies.describer={model: smol, train: frozen, lora: null}",),
        THREE,
    ),
    "only the describer learns": Experiment(
        "taboo_guesser_frozen",
        "taboo",
        ("policies.guesser={model: smol, train: frozen, lora: null}",),
        THREE,
    ),
    "one adapter plays both": Experiment(
        "taboo_one_policy",
        "taboo",
        (
            "policies={both: {model: smol, train: lora, lora: {rank: 16, alpha: 32}}, "
            "describer: null, guesser: null}",
            "team.describer.policy=both",
            "team.guesser.policy=both",
        ),
        THREE,
    ),
}


def spoken(folder: Path) -> dict[str, float]:
    """Return how probable the descriptions of a run are for the model before training, and how long
    they are: in nats per token and in words, before and after training."""
    model = Backbone.load(MODEL, dtype="bfloat16")
    both = dict(zip(("before", "after"), _evaluations(folder), strict=True))
    return {
        **{f"nats {when}": _surprise(model, file) for when, file in both.items()},
        **{f"words {when}": _words(file) for when, file in both.items()},
    }


ENGLISH = {
    "as it is": Experiment("taboo_english", "taboo", (), (0,), measure=spoken),
    "a KL penalty of 0.05": Experiment(
        "taboo_kl",
        "taboo",
        ("algorithm.kl={kind: loss, coefficient: 0.05}",),
        (0,),
        measure=spoken,
    ),
    "three times the rate, no bound on a step": Experiment(
        "taboo_unbounded",
        "taboo",
        ("optimizer.learning_rate=9e-4", "train.max_step_kl=null"),
        (0,),
        measure=spoken,
    ),
}
"""Runs that may leave English, and one that is held near the model before training. They are of one
machine, so seed 0 has a run of its own here."""
PICTURE = ROOT / "docs" / "taboo.png"
LONG_PROMPTS = (
    "team.describer.system='You play a word game. Your partner must find a word, and reads your "
    "sentence without it. Say what kind of thing it is, what it looks like, where it is found and "
    "what people do with it. For example, for igloo: a round house of snow in the far north.'",
    "team.guesser.system='You play a word game. A word was removed from a description. Name three "
    "different common nouns that it may be, and nothing else. For example, for: a round house of "
    "snow in the far north, answer: igloo, hut, tent'",
)
"""An untrained team that is told what to do, in place of one that has learned it."""


def taboo() -> Iterator[Sequence[str]]:
    yield ("seed", "before", "after", "steps", "CPU s")
    after = []
    for seed in TABOO.seeds:
        found = reached(TABOO, seed)
        if found is None:
            yield (str(seed), "not run yet", "", "", "")
            continue
        values = [found.success[when] for when in ("before", "after")]
        after.append(values[1])
        yield (str(seed), *map(_figure, values), str(found.steps), f"{found.cpu_seconds:.0f}")
    yield ("**mean**", "", f"**{_mean(after)}**", "", "")


def controls() -> Iterator[Sequence[str]]:
    yield ("control", *(f"seed {seed}" for seed in THREE), "mean")
    for name, one in {"as trained": TABOO, **CONTROLS}.items():
        yield _means(name, [_after(one, seed) for seed in THREE])
    for name, call in MESSAGES.items():
        yield _means(name, [_after(TABOO, seed, call) for seed in THREE])


def _after(one: Experiment, seed: int, call: str | None = None) -> float | None:
    """Return the success after training, or that of a command with the trained team."""
    found = reached(one, seed)
    return found and (found.success["after"] if call is None else found.calls[call])


def baselines() -> Iterator[Sequence[str]]:
    """The trained team beside untrained ones, which may choose among several answers."""
    yield ("team", *(f"seed {seed}" for seed in THREE), "mean", "tokens")
    folders = [TABOO.folder(seed) for seed in THREE]
    tables = [motet("baselines", str(folder))["rows"] for folder in folders]
    for rows in zip(*tables, strict=True):
        name = rows[0]["protocol"]
        successes = [row["success"]["mean"] for row in rows]
        yield _means(name, successes, f"{mean(row['tokens_per_task'] for row in rows):.0f}")
    told = [
        motet("evaluate", TABOO.config, *LONG_PROMPTS, f"seed={seed}")["success"] for seed in THREE
    ]
    yield _means("untrained team, told how to play", told, "")


def _means(name: str, values: Sequence[float | None], *more: str) -> Sequence[str]:
    return (name, *map(_figure, values), _mean(values), *more)


def _figure(value: float | None) -> str:
    return "not run yet" if value is None else f"{value:.3f}"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{mean(known):.3f}" if known else ""


def telegram() -> Iterator[Sequence[str]]:
    """The second game, and what its messages are worth."""
    yield (
        "seed", "words before", "words after", "both before", "both after",
        "both, telegrams of another task", "both, empty telegrams", "CPU s",
    )  # fmt: skip
    rows = []
    for seed in THREE:
        found = reached(TELEGRAM, seed)
        if found is None:
            yield (str(seed), "not run yet", *[""] * (4 + len(MESSAGES)))
            continue
        both = [figures[when] for figures in (found.reward, found.success)
                for when in ("before", "after")]  # fmt: skip
        rows.append([*both, *(found.calls[call] for call in MESSAGES.values())])
        yield (str(seed), *map(_figure, rows[-1]), f"{found.cpu_seconds:.0f}")
    means = (f"**{_mean(column)}**" for column in zip(*rows, strict=True))
    yield ("**mean**", *means, "")


def picture() -> str:
    """Draw what seed 0 has learned, as chats."""
    before, after = _evaluations(TABOO.folder(0))
    words = draw_learned(before, after, PICTURE)
    return f"![{', '.join(words)}: described and guessed before and after training]({PICTURE.name})"


def crossplay() -> str:
    runs = [str(TABOO.folder(seed)) for seed in THREE]
    found = motet("crossplay", *runs)["success"]
    rows = [("describer of \\ guesser of", *(f"seed {seed}" for seed in THREE))]
    rows += [
        (f"seed {seed}", *(f"{value:.2f}" for value in row))
        for seed, row in zip(THREE, found, strict=True)
    ]
    return results.table(iter(rows))


def english() -> Iterator[Sequence[str]]:
    """How probable the descriptions are for the model before training, and how long they are."""
    figures = ("nats before", "nats after", "words before", "words after")
    yield ("`motet train taboo`", "seed", "success after", *figures)
    for name, one in ENGLISH.items():
        for seed in one.seeds:
            found = reached(one, seed)
            if found is None or not found.figures:
                yield (name, str(seed), "not run yet", *("" for _ in figures))
                continue
            said = (f"{found.figures[figure]:.2f}" for figure in figures)
            yield (name, str(seed), _figure(found.success["after"]), *said)


def _evaluations(folder: Path) -> tuple[Path, Path]:
    files = sorted((folder / "episodes").glob("evaluate-*.jsonl"))
    return files[0], files[-1]


def _descriptions(file: Path) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
    return [
        (round_.prompt_tokens["describer"], completion.tokens or (), completion.text)
        for episode in read_episodes(file).episodes
        if episode.root is not None
        for _, round_ in walk(episode.root)
        for completion in round_.samples.get("describer", ())
    ]


def _surprise(model: Backbone, file: Path) -> float:
    """Return the mean of −log π_base per token of the descriptions, at temperature 1."""
    said = _descriptions(file)
    with torch.no_grad():
        scored = score_requests(
            model, [ScoreRequest("base", prompt, tokens, 1.0) for prompt, tokens, _ in said]
        )
    return -sum(map(sum, scored)) / sum(map(len, scored))


def _words(file: Path) -> float:
    return mean(len(text.split()) for _, _, text in _descriptions(file))


def samples() -> str:
    """Eight held-out words of seed 0, before and after: the first description and guess."""
    lines = ["| word | before | after |", "|---|---|---|"]
    games: list[dict[str, str]] = []
    for file in _evaluations(TABOO.folder(0)):
        games.append({})
        for episode in read_episodes(file).episodes:
            assert episode.root is not None
            rounds = [round_ for _, round_ in walk(episode.root)]
            said = rounds[0].samples["describer"][0].text, rounds[1].samples["guesser"][0].text
            clue, guess = (" ".join(text.split()).replace("|", "/") for text in said)
            games[-1][episode.task.id] = f"{clue} → *{guess}*"
    lines += [f"| {word} | {games[0][word]} | {games[1][word]} |" for word in list(games[0])[:8]]
    return "\n".join(lines)


PARTS = {
    "taboo": Part(tabled(taboo), (TABOO,), keeps=True),
    "samples": Part(samples, (TABOO,)),
    "picture": Part(picture, (TABOO,)),
    "baselines": Part(tabled(baselines), (TABOO,)),
    "controls": Part(tabled(controls), (TABOO, *CONTROLS.values()), keeps=True),
    "crossplay": Part(crossplay, (TABOO,)),
    "english": Part(tabled(english), tuple(ENGLISH.values()), keeps=True),
    "telegram": Part(tabled(telegram), (TELEGRAM,), keeps=True),
    "tasks": Part(tabled(real_tasks.tasks), tuple(real_tasks.TASKS.values()), keeps=True),
    "algorithms": Part(
        tabled(real_tasks.algorithms),
        (next(iter(real_tasks.TASKS.values())), *real_tasks.ALGORITHMS.values()),
        keeps=True,
    ),
}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-real")
