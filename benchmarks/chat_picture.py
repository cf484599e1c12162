"""A picture of the games of one run, before and after training, as chats: docs/taboo.png."""

import textwrap
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
LINE, GAP, HEAD, FOOT, INDENT = 0.21, 0.16, 0.32, 0.42, 0.35
"""Heights of a line, of the space between two bubbles, above and below a game; and how far a guess
is moved to the right. About inches."""


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
    figure, columns = plt.subplots(1, 2, figsize=(10, 0.5 + 1.9 * len(chosen)))
    titles = ("before training", "after training")
    for place, title, games in zip(columns, titles, (lost, won), strict=True):
        place.set_title(title, loc="left", fontweight="bold")
        height = 0.0
        for word in chosen:
            _draw(place, height, word, games[word])
            # The games of a word begin at the same height on both sides.
            height -= max(_height(lost[word]), _height(won[word]))
        place.set_xlim(-0.1, 5)
        place.set_ylim(height, 0.1)
        place.axis("off")
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


def _draw(place: Axes, height: float, word: str, game: Game) -> None:
    colour = RIGHT if game.right else WRONG
    place.text(0, height, word, fontsize=11, fontweight="bold", va="top")
    height -= HEAD
    for text, left, back, edge in (
        (_described(game), 0.0, SAYS, SAYS),
        (_guessed(game), INDENT, GUESSES, colour),
    ):
        bubble = {"boxstyle": "round,pad=0.35", "facecolor": back, "edgecolor": edge}
        place.text(
            left, height, "\n".join(text), fontsize=9, va="top", linespacing=1.3, bbox=bubble
        )
        height -= LINE * len(text) + GAP
    said = "right" if game.right else "wrong"
    place.text(INDENT, height, said, fontsize=9, color=colour, va="top")


def _height(game: Game) -> float:
    lines = len(_described(game)) + len(_guessed(game))
    return HEAD + LINE * lines + 2 * GAP + FOOT


def _described(game: Game) -> list[str]:
    return textwrap.wrap(f"describer: {' '.join(game.said.split())}", WIDTH)


def _guessed(game: Game) -> list[str]:
    lines = (" ".join(line.split()) for line in game.guess.splitlines())
    return textwrap.wrap(f"guesser: {' / '.join(filter(None, lines))}", WIDTH)
