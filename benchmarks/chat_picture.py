"""A picture of the games of one run, before and after training, as chats: docs/taboo.png."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from motet.core import Episode
from motet.rollout.record import read_episodes
from motet_tasks.word_games.taboo import blanked

SAYS, GUESSES, RIGHT, WRONG = "#e3edf7", "#eeeeee", "#1a7f37", "#b42318"
WIDTH = 52
"""Characters of a line."""
LINE, GAP = 0.26, 0.16
"""Height of a line, and of the space between two bubbles, in inches."""


@dataclass(frozen=True)
class Game:
    """The first game of a word: the description as the guesser reads it, and the guess."""

    said: str
    guess: str
    right: bool


def first_games(file: Path) -> dict[str, Game]:
    """Return word -> its first game."""
    return {each.task.id: _first(each) for each in read_episodes(file).episodes}


def draw_learned(before: Path, after: Path, into: Path, words: int = 3) -> list[str]:
    """Draw the first held-out words whose first game is lost before and won after training.

    Returns these words.
    """
    lost, won = first_games(before), first_games(after)
    chosen = [word for word in lost if won[word].right and not lost[word].right][:words]
    figure, columns = plt.subplots(1, 2, figsize=(10, 1.05 + 1.62 * len(chosen)))
    for place, title, games in zip(columns, ("before", "after"), (lost, won), strict=True):
        place.set_title(f"{title} training", loc="left", fontweight="bold")
        _draw(place, chosen, games)
    figure.tight_layout()
    figure.savefig(into, dpi=130)
    plt.close(figure)
    return chosen


def _first(episode: Episode) -> Game:
    assert episode.root is not None
    first = episode.root.outcomes[0]
    assert first.next is not None
    said = episode.root.samples["describer"][first.picks["describer"]].text
    last = first.next.outcomes[0]
    guess = first.next.samples["guesser"][last.picks["guesser"]].text
    return Game(blanked(said, episode.task.id), guess, bool(last.success))


def _draw(place: Axes, words: list[str], games: dict[str, Game]) -> None:
    height = 0.0
    for word in words:
        game = games[word]
        place.text(0, height, word, fontsize=11, fontweight="bold", va="top")
        height -= LINE + 0.06
        colour = RIGHT if game.right else WRONG
        for who, text, left, back in (
            ("describer", game.said, 0.0, SAYS),
            ("guesser", game.guess, 0.35, GUESSES),
        ):
            lines = list(_wrapped(f"{who}: {text}"))
            place.text(
                left, height, "\n".join(lines), fontsize=9, va="top", linespacing=1.3,
                bbox={
                    "boxstyle": "round,pad=0.35", "facecolor": back,
                    "edgecolor": colour if who == "guesser" else back,
                },
            )  # fmt: skip
            height -= LINE * 0.82 * len(lines) + GAP
        place.text(
            0.35, height + 0.02, "right" if game.right else "wrong", fontsize=9, color=colour,
            va="top",
        )  # fmt: skip
        height -= LINE + GAP
    place.set_xlim(-0.1, 5)
    place.set_ylim(height, 0.1)
    place.axis("off")


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(" ".join(text.split()), WIDTH)
