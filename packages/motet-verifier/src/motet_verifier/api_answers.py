"""The API functions for the answers that a verifier learns from: sampling and balancing them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from motet.api.setup import (
    ConfigLike,
    Show,
    models_of,
    read_config,
    run_of,
    setup_in_scratch,
)
from motet.assembly.models import LocalModels
from motet.assembly.services import endpoint_of
from motet.assembly.task_setup import TaskSetup
from motet.config.load import dump_config
from motet.config.schema import RunConfig
from motet.core import Task
from motet.errors import ConfigError
from motet.settings import COLDEST, HOTTEST
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop
from motet_verifier.answer_log import check_free
from motet_verifier.answers import WrittenAnswers, read_answers, some_answers, write_answers
from motet_verifier.balance import Quota
from motet_verifier.balance import balance as balanced
from motet_verifier.candidates import grades_of
from motet_verifier.sample import Sampling, labels_of
from motet_verifier.sample import argue as argue_labels
from motet_verifier.sample import sample as sampled
from motet_verifier.writing import AnswerWriter, EndpointWriter, PolicyWriter


@blocking
def sample_answers(
    target: ConfigLike,
    into: str | Path = "answers.jsonl",
    overrides: Sequence[str] = (),
    *,
    temperatures: Sequence[float] = (0.7, 1.0, 1.3),
    games: int = 4,
    agents: Sequence[str] = (),
    tasks: int | None = None,
    split: Literal["train", "eval"] = "train",
    argue: bool = False,
    show: Show = "auto",
) -> dict[str, Any]:
    """Sample a team's answers and write them to the file `into` (JSON lines), labelled by the gold
    answer.

    After an interruption, the same call continues where it stopped.

    Args:
        into: the file of answers to write (JSON lines).
        temperatures: sampling temperatures. High ones give more kinds of errors.
        games: games per task and temperature.
        agents: agents whose answers are written. Default: all agents.
        tasks: number of tasks. Default: all tasks.
        split: use the training tasks or the held-out tasks.
        argue: also sample an argument for each label (for few labels, as in anli), with the first
            agent's policy.

    Returns: right, wrong, repeated, unparsed, faults, causes, questions.
    """
    settings, file = read_config(target, overrides), Path(into)
    _check_amounts(temperatures, games, tasks)
    check_free(file)
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        grades_of(setup.environment)
        if argue:
            labels_of(setup.environment)
        _check_agents(setup, agents)
        chosen = _tasks(setup, split)[:tasks]
        who = tuple(agents) or tuple(setup.team.agents)
        of = _players(settings, run_of(target))
        wanted = Sampling(tuple(temperatures), games, frozenset(who), settings.seed, of)

        async def work() -> dict[str, Any]:
            models = await models_of(setup, run_of(target), scratch, show)
            with Progress(show) as progress:
                progress.stage("sample", len(chosen) * len(temperatures))
                counts = await sampled(
                    setup.environment, chosen, models.sampler, setup.team, settings.rollout,
                    wanted, file, progress=counting(progress),
                )  # fmt: skip
                figures = asdict(counts)
                if argue:
                    progress.stage("argue", len(chosen))
                    more = await argue_labels(
                        setup.environment, chosen, _player(setup, models, who[0]), file,
                        settings.seed, progress=counting(progress),
                    )  # fmt: skip
                    figures["argued"] = asdict(more)
            return figures

        figures = run_loop(work())
    answers = read_answers(file) if file.exists() else []
    return {**figures, "questions": len({answer.question for answer in answers})}


@blocking
def balance_answers(
    answers: str | Path,
    target: ConfigLike,
    into: str | Path = "balanced.jsonl",
    overrides: Sequence[str] = (),
    *,
    each: int = 10,
    tries: int = 4,
    writer: str | None = None,
    temperature: float = 1.0,
    split: Literal["train", "eval"] = "train",
    show: Show = "auto",
) -> dict[str, Any]:
    """Write `each` right and `each` wrong answers to every question of `answers` into a new file.

    Missing answers are taken from the dataset, or written. A question without enough answers is
    dropped. If the call is interrupted, what was written for it is in INTO.written, and the same
    call uses it.

    Args:
        answers: a file of answers (JSON lines).
        into: the file to write. It must not exist.
        each: number of right answers per question, and of wrong answers.
        tries: how often the writer is asked for each missing answer.
        writer: who writes missing answers: an agent of the team, or expert, as the section `expert`
            of the config describes it. Default: nobody.
        temperature: sampling temperature of an agent that writes. An expert uses its own.
        split: the split of the tasks of these answers.

    Returns: questions, kept, short_of_right, short_of_wrong, written, rejected, answers.
    """
    settings, given = read_config(target, overrides), some_answers(answers)
    _check_quota(each, tries, temperature)
    if Path(into).exists():
        raise ConfigError(
            f"{into} exists; expected a file that does not exist: choose another name, or delete it"
        )
    written = WrittenAnswers(Path(into))
    earlier = written.read()
    asks = ("expert",) if writer == "expert" else ()
    with setup_in_scratch(settings, train=False, asks=asks) as (setup, scratch):
        grades_of(setup.environment)
        _check_writer(setup, writer)

        async def work() -> dict[str, Any]:
            found_writer = await _writer_of(
                setup, writer, temperature, run_of(target), scratch, show
            )
            with Progress(show) as progress:
                if earlier:
                    progress.say(f"{len(earlier)} answers are those of {written.path}")
                progress.stage("balance", len({answer.question for answer in given}))
                found = await balanced(
                    setup.environment,
                    _tasks(setup, split),
                    [*given, *earlier],
                    found_writer,
                    Quota(each, tries, settings.seed),
                    progress=counting(progress),
                    on_written=written.add,
                )
            write_answers(Path(into), found.answers)
            written.remove()
            figures = asdict(replace(found, answers=[]))
            return {
                **figures,
                "kept": len(found.answers) // (2 * each),
                "answers": len(found.answers),
            }

        return run_loop(work())


def _player(setup: TaskSetup, models: LocalModels, agent: str) -> PolicyWriter:
    """Return a writer that writes as this agent plays."""
    return PolicyWriter(models.sampler, setup.team.policy_of(agent, 0), setup.team.decode[agent])


def _check_amounts(temperatures: Sequence[float], games: int, tasks: int | None) -> None:
    if not temperatures or not all(map(_is_temperature, temperatures)) or games < 1:
        raise ConfigError(
            f"got temperatures {list(temperatures)} and games {games}; expected finite numbers "
            f"above 0, and temperatures from {COLDEST:g} to {HOTTEST:g}"
        )
    if tasks is not None and tasks < 1:
        raise ConfigError(f"tasks is {tasks}; expected 1 or more: omit it for all tasks")


def _check_quota(each: int, tries: int, temperature: float) -> None:
    if each < 1 or tries < 1 or not _is_temperature(temperature):
        raise ConfigError(
            f"got each {each}, tries {tries} and temperature {temperature:g}; expected 1 or more, "
            f"and a temperature above 0, from {COLDEST:g} to {HOTTEST:g}"
        )


def _is_temperature(number: float) -> bool:
    return COLDEST <= number <= HOTTEST


def _check_agents(setup: TaskSetup, agents: Sequence[str]) -> None:
    unknown = [agent for agent in agents if agent not in setup.team.agents]
    if unknown:
        raise ConfigError(
            f"got agent {unknown[0]!r}; expected one of {', '.join(setup.team.agents)}"
        )


def _players(settings: RunConfig, run: Path | None) -> str:
    """Return a hash that identifies the config and the run folder."""
    return hashlib.sha256(f"{run and run.resolve()}\n{dump_config(settings)}".encode()).hexdigest()[
        :16
    ]


def _check_writer(setup: TaskSetup, writer: str | None) -> None:
    if writer not in (None, "expert", *setup.team.agents):
        raise ConfigError(
            f"writer is {writer!r}; expected expert or one of the agents "
            f"{', '.join(setup.team.agents)}"
        )
    if writer == "expert" and setup.config.expert is None:
        raise ConfigError(
            "writer is expert, but the config has no expert: add a section with base_url and model"
        )


async def _writer_of(
    setup: TaskSetup,
    writer: str | None,
    temperature: float,
    run: Path | None,
    scratch: Path,
    show: Show,
) -> AnswerWriter | None:
    if writer is None:
        return None
    if writer == "expert":
        assert setup.config.expert is not None
        return EndpointWriter(endpoint_of("expert", setup.config.expert, setup.config.seed))
    models = await models_of(setup, run, scratch, show)
    decode = setup.team.decode[writer].model_copy(update={"temperature": temperature})
    return PolicyWriter(models.sampler, setup.team.policy_of(writer, 0), decode)


def _tasks(setup: TaskSetup, split: Literal["train", "eval"]) -> list[Task]:
    if split not in setup.tasks:
        raise ConfigError(
            f"got no tasks for {split}; expected some: set data.{split} to a name or a path, or "
            "use another split"
        )
    return setup.tasks[split]


def counting(progress: Progress) -> Callable[[], None]:
    """Return a function that shows how often it was called."""
    done = 0

    def one() -> None:
        nonlocal done
        done += 1
        progress.show(done, {})

    return one
