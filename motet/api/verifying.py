"""The API functions for verifiers: sampling and balancing answers, training, serving."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch

from motet.api.setup import (
    ConfigLike,
    Show,
    models_of,
    read_config,
    run_of,
    setup_in_scratch,
    shortened_contexts,
)
from motet.assembly.task_setup import TaskSetup, expert_of, use_threads
from motet.config.load import dump_config, load_settings
from motet.config.parts import ModelConfig
from motet.config.schema import RunConfig
from motet.config.verifier import VerifierTraining
from motet.core import Task
from motet.errors import ConfigError
from motet.sandbox import temporary
from motet.timeouts import run_loop
from motet.trainer.plot import reliability_curve
from motet.trainer.prepare import CORPUS, make_embedded, whole_folder
from motet.trainer.progress import Progress
from motet.verifier.answers import LabelledAnswer, read_answers, some_answers, write_answers
from motet.verifier.balance import Quota
from motet.verifier.balance import balance as balanced
from motet.verifier.defaults import EACH, GAMES, TEMPERATURES, TRIES, WRITING_TEMPERATURE
from motet.verifier.limits import ScoringLimits
from motet.verifier.model import Reads, Verifier
from motet.verifier.sample import Sampling, argue, check_gradable
from motet.verifier.sample import sample as sampled
from motet.verifier.train import Course, Figures, read_all, split
from motet.verifier.train import train as trained
from motet.verifier.writing import AnswerWriter, EndpointWriter, PolicyWriter

TaskSplit = Literal["train", "eval"]


def sample_answers(
    target: ConfigLike,
    into: str | Path,
    overrides: Sequence[str] = (),
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    games: int = GAMES,
    agents: Sequence[str] = (),
    tasks: int | None = None,
    split: TaskSplit = "train",
    argued: bool = False,
    show: Show = "auto",
) -> dict[str, Any]:
    """Sample a team's answers and write them to the file `into` (JSON lines), labelled by the gold
    answer.

    After an interruption, the same call continues where it stopped.

    Args:
        temperatures: each task is played `games` times at each temperature.
        agents: whose answers are written; by default those of all agents.
        tasks: use only this number of tasks of the split.
        argued: also sample an argument for every label of a closed set, with the first agent's
            policy.

    Returns: right, wrong, repeated, unparsed, faults, causes, questions.
    """
    settings, file = read_config(target, overrides), Path(into)
    if not temperatures or not all(0.0 < one < math.inf for one in temperatures) or games < 1:
        raise ConfigError(
            f"got temperatures {list(temperatures)} and games {games}; expected both above 0"
        )
    if tasks is not None and tasks < 1:
        raise ConfigError(f"tasks is {tasks}; expected 1 or more, or all of them: leave it out")
    use_threads(settings)
    with setup_in_scratch(settings, None, train=False) as (setup, scratch):
        check_gradable(setup.environment)
        unknown = [agent for agent in agents if agent not in setup.team.agents]
        if unknown:
            raise ConfigError(
                f"there is no agent {unknown[0]!r}; agents are {', '.join(setup.team.agents)}"
            )
        chosen = _tasks(setup, split)[:tasks]
        who = tuple(agents) or tuple(setup.team.agents)
        wanted = Sampling(
            tuple(temperatures),
            games,
            frozenset(who),
            settings.seed,
            _players(settings, run_of(target)),
        )

        async def work() -> dict[str, Any]:
            models = await models_of(setup, run_of(target), scratch, show)
            with Progress(show) as progress:
                progress.stage("sample", len(chosen) * len(temperatures))
                counts = await sampled(
                    setup.environment, chosen, models.sampler, setup.team, settings.rollout,
                    wanted, file, progress=_counting(progress),
                )  # fmt: skip
                figures = asdict(counts)
                if argued:
                    progress.stage("argue", len(chosen))
                    writer = PolicyWriter(
                        models.sampler, setup.team.policy_of(who[0], 0), setup.team.decode[who[0]]
                    )
                    more = await argue(
                        setup.environment,
                        chosen,
                        writer,
                        file,
                        settings.seed,
                        progress=_counting(progress),
                    )
                    figures["argued"] = asdict(more)
            return figures

        figures = run_loop(work())
    return {
        **figures,
        "questions": len({answer.question for answer in read_answers(file)})
        if file.exists()
        else 0,
    }


def balance_answers(
    answers: str | Path,
    target: ConfigLike,
    into: str | Path,
    overrides: Sequence[str] = (),
    *,
    each: int = EACH,
    tries: int = TRIES,
    writer: str | None = None,
    temperature: float = WRITING_TEMPERATURE,
    split: TaskSplit = "train",
    show: Show = "auto",
) -> dict[str, Any]:
    """Write `each` right and `each` wrong answers to every question of `answers` into a new file.

    Missing answers are taken from the dataset, or written. A question without enough answers is
    dropped.

    Args:
        writer: who writes missing answers: an agent of the target's team (at `temperature`), or
            "expert" for the config's `expert` section. None: they are not written.

    Returns: questions, kept, short_of_right, short_of_wrong, written, rejected, answers.
    """
    settings, given = read_config(target, overrides), some_answers(answers)
    if each < 1 or tries < 1 or not 0.0 < temperature < math.inf:
        raise ConfigError(
            f"got each {each}, tries {tries} and temperature {temperature:g}; expected 1 or more, "
            f"and a temperature above 0"
        )
    if Path(into).exists():
        raise ConfigError(
            f"{into} exists; expected a file that is not there: name another, or delete it"
        )
    use_threads(settings)
    asks = ("expert",) if writer == "expert" else ()
    with setup_in_scratch(settings, None, train=False, asks=asks) as (setup, scratch):
        check_gradable(setup.environment)
        _check_writer(setup, writer)

        async def work() -> dict[str, Any]:
            found_writer = await _writer_of(
                setup, writer, temperature, run_of(target), scratch, show
            )
            with Progress(show) as progress:
                progress.stage("balance", len({answer.question for answer in given}))
                found = await balanced(
                    setup.environment,
                    _tasks(setup, split),
                    given,
                    found_writer,
                    Quota(each, tries, settings.seed),
                    progress=_counting(progress),
                )
            write_answers(Path(into), found.answers)
            figures = asdict(replace(found, answers=[]))
            return {
                **figures,
                "kept": len(found.answers) // (2 * each),
                "answers": len(found.answers),
            }

        return run_loop(work())


def train_verifier(
    config: str | Path | VerifierTraining,
    answers: str | Path,
    into: str | Path,
    overrides: Sequence[str] = (),
    *,
    question_only: bool = False,
    show: Show = "auto",
) -> dict[str, Any]:
    """Train a verifier on a file of answers.

    The new folder `into` gets the verifier, its metrics on held-out questions, and a reliability
    plot.

    Args:
        question_only: hide the answers from the verifier. Its accuracy then shows how much the
            questions alone reveal.

    Returns: the metrics (loss, auc, accuracy, ece, answers, questions, right, bins, by_ease),
    epoch, unreadable.
    """
    settings = (
        config
        if isinstance(config, VerifierTraining)
        else load_settings(VerifierTraining, config, overrides)
    )
    folder, given = Path(into), some_answers(answers)
    if folder.exists():
        raise ConfigError(
            f"{folder} exists; expected a folder that is not there: name another, or delete it"
        )
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    kept, apart = split(given, settings.held_out, settings.seed)
    with temporary.folder() as scratch, Progress(show) as progress:
        for line in shortened_contexts(
            [] if settings.model.path is None else [settings.model.path]
        ):
            progress.say(line)
        verifier = _fresh(settings, given, scratch)
        read, passed = zip(
            *(read_all(verifier, some, question_only=question_only) for some in (kept, apart)),
            strict=True,
        )
        if not all(read):
            raise ConfigError(
                f"none of {len(kept if not read[0] else apart)} answers fits the model's context "
                f"of "
                f"{verifier.context_length} tokens: use a model with a longer one"
            )
        course = Course(
            loss=settings.loss,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            token_budget=settings.token_budget,
            patience=settings.patience,
            optimizer=settings.optimizer,
            seed=settings.seed,
        )
        steps = -(-len(read[0]) // settings.batch_size)
        progress.stage("verifier", steps * settings.epochs)
        counting = _counting(progress)

        def told(epoch: int, loss: float, figures: Figures) -> None:
            known = {} if figures.auc is None else {"auc": figures.auc}
            progress.show(epoch * steps, {"loss": loss, "held out": figures.loss} | known)

        figures, epoch = run_loop(
            trained(verifier, read[0], read[1], course, on_epoch=told, on_step=counting)
        )
        said = {**asdict(figures), "epoch": epoch, "unreadable": sum(passed)}
        facts = {
            "metrics": said,
            "trained_on": len(read[0]),
            "loss": settings.loss,
            "question_only": question_only,
        }
        with whole_folder(folder) as beside:
            replace(verifier, facts=facts).save(beside)
            (beside / "metrics.json").write_text(json.dumps(said, indent=1) + "\n")
            reliability_curve(
                figures.bins,
                f"{folder.name}: expected calibration error {figures.ece:.3f}",
                beside / "reliability.png",
            )
    return said


def serve_verifier(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "auto",
    reads: Reads = "end",
    key_variable: str | None = None,
    without_key: bool = False,
    limits: ScoringLimits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the verifier in `folder` at POST /predict until SIGTERM or SIGINT.

    After the signal it answers open requests and returns. Call it in the main thread only.

    Args:
        reads: the score of an answer: the value at its end, or the mean or the minimum of the
            values after its lines.
        key_variable: the environment variable with the key that requests must send.
        without_key: also accept requests of other machines without a key. By default a server
            without a key only serves this machine.
        say: called with the address when the server listens.

    Raises: ConfigError.
    """
    from transformers.utils.logging import disable_progress_bar

    from motet import __version__
    from motet.verifier.server import serve

    disable_progress_bar()
    serve(
        folder,
        __version__,
        host=host,
        port=port,
        device=device,
        reads=reads,
        key=None if key_variable is None else _key(key_variable),
        without_key=without_key,
        limits=limits or ScoringLimits(),
        say=say,
    )


def _players(settings: RunConfig, run: Path | None) -> str:
    """Return a hash that identifies the config and the run folder."""
    return hashlib.sha256(f"{run and run.resolve()}\n{dump_config(settings)}".encode()).hexdigest()[
        :16
    ]


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"--key-variable names {variable}, which is not set: put the server's key in it"
        )
    return key


def _check_writer(setup: TaskSetup, writer: str | None) -> None:
    if writer not in (None, "expert", *setup.team.agents):
        raise ConfigError(
            f"writer is {writer!r}; expected expert or one of the agents "
            f"{', '.join(setup.team.agents)}"
        )
    if writer == "expert" and setup.config.expert is None:
        raise ConfigError(
            "writer is expert, and the config has no expert: add a section with base_url and model"
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
        return EndpointWriter(expert_of(setup.config.expert, setup.config.seed))
    models = await models_of(setup, run, scratch, show)
    decode = setup.team.decode[writer].model_copy(update={"temperature": temperature})
    return PolicyWriter(models.sampler, setup.team.policy_of(writer, 0), decode)


def _fresh(
    settings: VerifierTraining, answers: Sequence[LabelledAnswer], scratch: Path
) -> Verifier:
    base: ModelConfig = settings.model
    source: str | Path
    if base.embedded is not None:
        corpus = [(answer.prompt, answer.text) for answer in answers[:CORPUS]]
        source = make_embedded(scratch / "model", base.embedded, corpus, settings.seed)
    else:
        assert base.path is not None
        source = base.path
    lora = settings.lora if settings.train == "lora" else None
    if lora is not None and base.embedded is not None:
        raise ConfigError(
            "an embedded model knows nothing yet, and train: lora would leave it so: use train: "
            "full"
        )
    return Verifier.new(
        source,
        lora=lora,
        seed=settings.seed,
        device=base.device,
        dtype=base.dtype,
        checkpointing=base.checkpointing,
        attention=base.attention,
    )


def _tasks(setup: TaskSetup, split: TaskSplit) -> list[Task]:
    if split not in setup.tasks:
        raise ConfigError(
            f"there are no tasks for {split}: give data.{split} a name or a path, or use another "
            f"split"
        )
    return setup.tasks[split]


def _counting(progress: Progress) -> Any:
    done = 0

    def one() -> None:
        nonlocal done
        done += 1
        progress.show(done, {})

    return one
