"""How many bits an answer shares with an earlier message of another agent.

    I = Σ p(m, a) · log2( p(m, a) / (p(m) · p(a)) ) − (K_ma − K_m − K_a + 1) / (2 n ln 2)

over the messages m and answers a of n games. The p are shares of the games (plug-in), and the K are
the numbers of different pairs, messages and answers: the second part is the bias of the first, to
the first order in 1/n (Miller 1955; Roulston 1999, Physica D 125). The result is near 0 for what
has nothing to do with each other, and may be a little below.

Messages are then moved between tasks at random, which leaves nothing of what they say: `by_chance`
is the interval of I after that (a permutation test, Good 2005).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from motet.core.seeding import derive
from motet.evaluation.intervals import CONFIDENCE
from motet.evaluation.playthrough import Games, Playthrough, valid_games

PERMUTATIONS = 1000


@dataclass(frozen=True)
class SharedBits:
    """What the answer of an agent and an earlier message of another one have in common."""

    sender: str
    turn: int
    """The turn of the message, from 1."""
    reader: str
    answered: int
    """The turn of the answer: the first one after the message in which the reader acts."""
    games: int
    messages: int
    answers: int
    """How many different ones there are."""
    bits: float
    by_chance: tuple[float, float]
    """Where the bits of messages of other tasks lie, in 95 of 100 cases."""
    unread: float | None = None
    """The bits if the reader reads a message of another task: what both have from the task. None
    if that was not played."""


def shared_bits(games: Games, sender: str, turn: int, seed: int) -> list[SharedBits]:
    """Return the bits that a message of `sender` at `turn` (from 0) shares with the next answer of
    each other agent.

    Games of one task are moved together, because they depend on each other. Left out are readers
    with fewer games than pairs of a message and an answer that could be, and single tasks.
    """
    found: dict[tuple[str, int], list[list[tuple[str, str]]]] = {}
    for played in games:
        of_task: dict[tuple[str, int], list[tuple[str, str]]] = {}
        for game in valid_games(played):
            for reader, answered, message, answer in _exchanges(game, sender, turn):
                of_task.setdefault((reader, answered), []).append((message, answer))
        for key, pairs in of_task.items():
            found.setdefault(key, []).append(pairs)
    return [
        one
        for (reader, answered), tasks in sorted(found.items())
        if (one := _bits_of(tasks, sender, turn, reader, answered, seed)) is not None
    ]


def mutual_information(messages: np.ndarray, answers: np.ndarray) -> float:
    """Return I in bits, from the number of the message and of the answer of each game."""
    count, wide = len(messages), int(answers.max()) + 1
    pairs = np.bincount(messages * wide + answers)
    there = pairs.nonzero()[0]
    by_message, by_answer = np.bincount(messages), np.bincount(answers)
    alone = by_message[there // wide] * by_answer[there % wide] / count
    plug_in = float((pairs[there] * np.log2(pairs[there] / alone)).sum()) / count
    seen = np.count_nonzero(by_message) + np.count_nonzero(by_answer)
    return plug_in - (len(there) - seen + 1) / (2 * count * log(2.0))


def _exchanges(game: Playthrough, sender: str, turn: int) -> Iterator[tuple[str, int, str, str]]:
    """Yield each reader of a message with the turn of its answer (from 1), the message and the
    answer."""
    said = [
        {agent: round_.samples[agent][pick].text.strip() for agent, pick in outcome.picks.items()}
        for round_, outcome in game.turns
    ]
    if len(said) <= turn or sender not in said[turn]:
        return
    readers: set[str] = set()
    for later, texts in enumerate(said[turn + 1 :], start=turn + 1):
        for reader, answer in texts.items():
            if reader != sender and reader not in readers:
                readers.add(reader)
                yield reader, later + 1, said[turn][sender], answer


def _bits_of(
    tasks: Sequence[Sequence[tuple[str, str]]],
    sender: str,
    turn: int,
    reader: str,
    answered: int,
    seed: int,
) -> SharedBits | None:
    pairs = [pair for own in tasks for pair in own]
    messages, answers = (list(dict.fromkeys(texts)) for texts in zip(*pairs, strict=True))
    if len(tasks) < 2 or len(messages) * len(answers) > len(pairs):
        return None
    message_of, answer_of = (
        np.array([known.index(pair[place]) for pair in pairs])
        for place, known in enumerate((messages, answers))
    )
    sizes = np.array([len(own) for own in tasks])
    firsts = np.cumsum(sizes) - sizes
    task_of = np.repeat(np.arange(len(tasks)), sizes)
    place_in = np.arange(len(pairs)) - firsts[task_of]
    draw = np.random.default_rng(derive(seed, "permuted messages", sender, turn, reader))
    permuted = []
    for _ in range(PERMUTATIONS):
        donor_of = draw.permutation(len(tasks))[task_of]
        moved = message_of[firsts[donor_of] + place_in % sizes[donor_of]]
        permuted.append(mutual_information(moved, answer_of))
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(permuted, [tail, 1.0 - tail])
    return SharedBits(
        sender,
        turn + 1,
        reader,
        answered,
        len(pairs),
        len(messages),
        len(answers),
        mutual_information(message_of, answer_of),
        (float(low), float(high)),
    )
