"""Answers from a team that plays, at several temperatures, labelled by the gold answer."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from motet.core import Environment, Episode, Sampler, Task, Team, walk
from motet.errors import ConfigError, RewardFault
from motet.rollout.collect import collect
from motet.seeding import derive
from motet.settings import Plan
from motet.verifier.answers import Answer, as_chat, read_answers, write_answers
from motet.verifier.writing import Writer, argument_for, leaks

AT_ONCE = 256
"""Tasks played side by side, and what is lost where sampling is cut off."""


@dataclass
class Counts:
    """What became of everything that was said."""

    right: int = 0
    wrong: int = 0
    repeated: int = 0
    """Said before to the same question."""
    unparsed: int = 0
    """Answered nothing that could be read, so they are no data."""
    faults: int = 0
    """Games that broke, and answers that could not be judged."""
    causes: dict[str, int] = field(default_factory=dict)


def counted(causes: dict[str, int], cause: str) -> None:
    """One more of this."""
    causes[cause] = causes.get(cause, 0) + 1


@dataclass(frozen=True)
class Sampling:
    """What is to be sampled: `games` games of every task at each of the temperatures, and of these the answers of `agents`."""

    temperatures: tuple[float, ...]
    games: int
    agents: frozenset[str]
    seed: int


async def sample(
    environment: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    team: Team,
    plan: Plan,
    wanted: Sampling,
    file: Path,
    *,
    progress: Callable[[], None] = lambda: None,
) -> Counts:
    """Writes every answer once into `file`; where an earlier call was cut off, goes on behind what it finished.

    What is sampled follows from the seed, cut off or not. `progress` is called once per task and temperature.
    Raises: ConfigError where the environment cannot say what is asked and what is right, or the file is of other sampling.
    """
    check_markable(environment)
    asked = {"wanted": _plain(wanted), "tasks": [task.id for task in tasks]}
    log = _Log(file, asked)
    parts = [
        (temperature, tasks[start : start + AT_ONCE])
        for temperature in wanted.temperatures
        for start in range(0, len(tasks), AT_ONCE)
    ]
    for number, (temperature, some) in enumerate(parts):
        if number < log.done:
            for _ in some:
                progress()
            continue
        warm = replace(
            team, decode={a: d.model_copy(update={"temperature": temperature}) for a, d in team.decode.items()}
        )
        turns = len(plan.samples)
        paths = plan.model_copy(
            update={
                "samples": (wanted.games, *[1] * (turns - 1)),
                "expand": "all",
                "pairing": "aligned",
                "max_nodes": 1 + wanted.games * (turns - 1),
            }
        )
        episodes = await collect(
            environment,
            some,
            sampler,
            warm,
            paths,
            run_seed=wanted.seed,
            tag=f"verifier-{temperature:g}-{number}",
            on_episode=lambda episode: progress(),
        )
        for episode in episodes:
            async for answer in _answers(environment, episode, wanted.agents, temperature, log.counts):
                log.take(answer)
        log.part_done()
    log.close()
    return log.counts


async def argue(
    environment: Any,
    tasks: Sequence[Task],
    writer: Writer,
    file: Path,
    seed: int,
    *,
    progress: Callable[[], None] = lambda: None,
) -> Counts:
    """Adds to `file` an argument for every label of every task. What it is labelled follows from what it comes to.

    Raises: ConfigError where the environment has no closed set of labels.
    """
    check_markable(environment)
    labels = getattr(environment, "labels", ())
    if not labels:
        raise ConfigError(
            f"{type(environment).__name__} has no closed set of labels to argue for: drop --argue, or use dataset anli"
        )
    answers = read_answers(file)
    seen, counts = {(answer.question, answer.text) for answer in answers}, Counts()
    ease = {answer.question: answer.ease for answer in answers}
    for start in range(0, len(tasks), AT_ONCE):
        asked = [
            (task, environment.question(task), label) for task in tasks[start : start + AT_ONCE] for label in labels
        ]
        prompts = [argument_for(question, label) for _, question, label in asked]
        texts = await writer.write(prompts, [derive(seed, "argue", task.id, label) for task, _, label in asked])
        for (task, question, _), text in zip(asked, texts, strict=True):
            if text is None or leaks(text):
                counts.faults += 1
                counted(counts.causes, "nothing" if text is None else "leak")
                continue
            mark = await environment.mark(task, text)
            if mark.answer is None:
                counts.unparsed += 1
            elif (task.id, text) in seen:
                counts.repeated += 1
            else:
                seen.add((task.id, text))
                counts.right, counts.wrong = counts.right + mark.right, counts.wrong + (not mark.right)
                own = ease[task.id] if task.id in ease else None
                answers.append(Answer(task.id, as_chat(question), text, mark.answer, mark.right, "argued", ease=own))
        for _ in tasks[start : start + AT_ONCE]:
            progress()
    write_answers(file, answers)
    return counts


def check_markable(environment: Environment[Any]) -> None:
    """Raises: ConfigError where answers cannot be labelled."""
    missing = [name for name in ("question", "mark") if not hasattr(environment, name)]
    if missing:
        raise ConfigError(
            f"{type(environment).__name__} has no {' and no '.join(missing)}; a verifier needs question(task), the prompt it "
            f"reads, and mark(task, text), whether a text is right: give it both, or use an environment such as debate"
        )


async def _answers(
    environment: Any, episode: Episode, agents: frozenset[str], temperature: float, counts: Counts
) -> AsyncIterator[Answer]:
    """Everything that `agents` said in a game, as far as it can be read."""
    if episode.root is None:
        assert episode.fault is not None
        counts.faults += 1
        counted(counts.causes, episode.fault.cause)
        return
    prompt = as_chat(environment.question(episode.task))
    for _, round_ in walk(episode.root):
        for agent, completions in round_.samples.items():
            if agent not in agents:
                continue
            for completion in completions:
                try:
                    mark = await environment.mark(episode.task, completion.text)
                except RewardFault as fault:
                    counts.faults += 1
                    counted(counts.causes, fault.cause or type(fault).__name__)
                    continue
                if mark.answer is None:
                    counts.unparsed += 1
                    continue
                yield Answer(
                    episode.task.id, prompt, completion.text, mark.answer, mark.right, "sampled", agent, temperature
                )


class _Log:
    """The answers so far, and how far the sampling has come; both are on disk after every part."""

    def __init__(self, file: Path, asked: Mapping[str, Any]) -> None:
        self._file, self._asked = file, asked
        self._note = file.with_name(f"{file.name}.sampling.json")
        self._answers: list[Answer] = []
        self.done, self.counts = 0, Counts()
        self._said: dict[str, list[int]] = {}
        """Question -> how many right answers were sampled to it, and how many in all."""
        if self._note.is_file():
            self._go_on()
        elif file.exists():
            raise ConfigError(f"{file} exists; expected a file that is not there: name another, or delete it")
        self._seen = {(answer.question, answer.text) for answer in self._answers}
        file.parent.mkdir(parents=True, exist_ok=True)

    def _go_on(self) -> None:
        note = json.loads(self._note.read_text())
        if note["asked"] != json.loads(json.dumps(self._asked)):
            raise ConfigError(
                f"{self._file} was begun with other tasks or settings; expected the same, to go on with it: name another file, "
                f"or delete it and {self._note.name}"
            )
        self.done = note["done"]
        self.counts = Counts(**note["counts"])
        self._said = note["said"]
        # The answers are written first, so there are at least as many as the note says.
        self._answers = read_answers(self._file)[: note["answers"]] if note["answers"] else []

    def take(self, answer: Answer) -> None:
        said = self._said.setdefault(answer.question, [0, 0])
        said[0] += answer.right
        said[1] += 1
        key = (answer.question, answer.text)
        if key in self._seen:
            self.counts.repeated += 1
            return
        self._seen.add(key)
        self._answers.append(answer)
        if answer.right:
            self.counts.right += 1
        else:
            self.counts.wrong += 1

    def part_done(self) -> None:
        self.done += 1
        write_answers(self._file, self._answers)
        note = {
            "asked": self._asked,
            "done": self.done,
            "answers": len(self._answers),
            "said": self._said,
            "counts": asdict(self.counts),
        }
        beside = self._note.with_name(f"{self._note.name}.part")
        beside.write_text(json.dumps(note))
        beside.replace(self._note)

    def close(self) -> None:
        """Says of every answer how easy its question is; this is known at the end."""
        ease = {question: right / said for question, (right, said) in self._said.items()}
        write_answers(self._file, [replace(answer, ease=ease[answer.question]) for answer in self._answers])


def _plain(wanted: Sampling) -> dict[str, Any]:
    return {**asdict(wanted), "agents": sorted(wanted.agents)}
