"""Sample answers from a team that plays, at several temperatures.

The label of an answer follows from the gold answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from motet.core import Environment, Episode, Fault, Grades, Sampler, Task, Team, class_name, walk
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.rollout.collect import collect
from motet.rollout.faults import attempt
from motet.settings import Plan
from motet_verifier.answer_log import AnswerLog, Counts
from motet_verifier.answers import LabelledAnswer, as_chat
from motet_verifier.candidates import grades_of
from motet_verifier.writing import AnswerWriter, argument_for, leaks

AT_ONCE = 256
"""Number of tasks played concurrently. This is also the work lost if sampling is interrupted."""


@dataclass(frozen=True)
class Sampling:
    """What to sample: `games` games per task and temperature, and the answers of `agents`."""

    temperatures: tuple[float, ...]
    games: int
    agents: frozenset[str]
    seed: int
    of: str = ""
    """Short description of the players. Sampling does not resume with other players."""


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
    """Write every distinct answer once to `file`. If an earlier call was interrupted, resume it.

    The result follows from the seed, interrupted or not. `progress` is called once per task and
    temperature.
    Raises: ConfigError if the environment cannot return questions or grade answers, or if the file
    belongs to another sampling.
    """
    grades = grades_of(environment)
    log = AnswerLog.of_samples(
        file, {"wanted": _plain(wanted), "tasks": [task.id for task in tasks]}
    )
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
        episodes = await collect(
            environment,
            some,
            sampler,
            _at_temperature(team, temperature),
            _separate_games(plan, wanted.games),
            run_seed=wanted.seed,
            tag=f"verifier-{temperature:g}-{number}",
            on_episode=lambda episode: progress(),
        )
        for episode in episodes:
            await _listen(grades, episode, wanted.agents, temperature, log)
        log.part_done()
    log.close()
    return log.counts


def _at_temperature(team: Team, temperature: float) -> Team:
    decode = {a: d.model_copy(update={"temperature": temperature}) for a, d in team.decode.items()}
    return replace(team, decode=decode)


def _separate_games(plan: Plan, games: int) -> Plan:
    """Return the plan of `games` games per task.

    They share the first Round. From then on, each has one sample per agent and turn.
    """
    turns = len(plan.samples)
    return plan.model_copy(
        update={
            "samples": (games, *[1] * (turns - 1)),
            "expand": "all",
            "pairing": "aligned",
            "max_nodes": 1 + games * (turns - 1),
        }
    )


def labels_of(environment: Environment[Any]) -> Sequence[str]:
    """Return the labels that can be argued for. Raises: ConfigError if there is no fixed set."""
    if not environment.labels:
        raise ConfigError(
            f"{class_name(environment)} has no fixed set of labels; expected one with --argue: "
            "drop --argue, or use dataset anli"
        )
    return environment.labels


async def argue(
    environment: Environment[Any],
    tasks: Sequence[Task],
    writer: AnswerWriter,
    file: Path,
    seed: int,
    *,
    progress: Callable[[], None] = lambda: None,
) -> Counts:
    """Append to `file` an argument for every label of every task.

    The label of a text follows from its final answer. An interrupted call resumes as in `sample`.
    Raises: ConfigError if the environment has no closed set of labels.
    """
    grades, labels = grades_of(environment), labels_of(environment)
    log = AnswerLog.of_arguments(
        file, {"seed": seed, "labels": list(labels), "tasks": [task.id for task in tasks]}
    )
    for number, start in enumerate(range(0, len(tasks), AT_ONCE)):
        some = tasks[start : start + AT_ONCE]
        if number >= log.done:
            await _argue_some(grades, some, labels, writer, seed, log)
            log.part_done()
        for _ in some:
            progress()
    log.close()
    return log.counts


async def _argue_some(
    grades: Grades,
    tasks: Sequence[Task],
    labels: Sequence[str],
    writer: AnswerWriter,
    seed: int,
    log: AnswerLog,
) -> None:
    asked = [(task, grades.question(task), label) for task in tasks for label in labels]
    prompts = [argument_for(question, label) for _, question, label in asked]
    texts = await writer.write(
        prompts, [derive(seed, "argue", task.id, label) for task, _, label in asked]
    )
    for (task, question, _), text in zip(asked, texts, strict=True):
        if isinstance(text, Fault) or leaks(text):
            log.fault(text.cause if isinstance(text, Fault) else "leak")
            continue
        grade = await attempt(grades.grade(task, text))
        if isinstance(grade, Fault):
            log.fault(grade.cause)
        elif grade.answer is None:
            log.counts.unparsed += 1
        else:
            log.take(
                LabelledAnswer(
                    task.id, as_chat(question), text, grade.answer, grade.right, "argued"
                )
            )


async def _listen(
    grades: Grades,
    episode: Episode,
    agents: frozenset[str],
    temperature: float,
    log: AnswerLog,
) -> None:
    """Log every answer of `agents` in an episode, as far as it can be parsed."""
    if episode.root is None:
        assert episode.fault is not None
        log.fault(episode.fault.cause)
        return
    prompt = as_chat(grades.question(episode.task))
    for _, round_ in walk(episode.root):
        for outcome in round_.outcomes:
            if outcome.fault is not None:
                log.fault(outcome.fault.cause)
        for agent, completions in round_.samples.items():
            for text in (completion.text for completion in completions if agent in agents):
                grade = await attempt(grades.grade(episode.task, text))
                if isinstance(grade, Fault):
                    log.fault(grade.cause)
                elif grade.answer is None:
                    log.counts.unparsed += 1
                else:
                    own = LabelledAnswer(episode.task.id, prompt, text, grade.answer, grade.right)
                    log.take(replace(own, agent=agent, temperature=temperature))


def _plain(wanted: Sampling) -> dict[str, Any]:
    return {**asdict(wanted), "agents": sorted(wanted.agents)}
