"""The published trainers: an algorithm each, and the form that their configs have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.config.yaml import read_value
from motet.experiments import critics, joins, maporl
from motet.experiments.aliases import KEYS
from motet.experiments.maporl_aliases import KEYS as MAPORL_KEYS
from motet.experiments.rows import Row
from motet.experiments.words import Placed, Words

RUNS = Path("runs")
"""Where run folders are, where no key says."""


@dataclass(frozen=True)
class Flag:
    """An option of the command line that is a key of the config."""

    name: str
    key: str
    """`*` is the trainer's section."""
    help: str
    read: Callable[[str], Any] = str
    several: bool = False


@dataclass(frozen=True)
class Form:
    """How a family of trainers is spoken to."""

    keys: tuple[Row, ...]
    placed: Callable[[Words, "Trainer"], Iterator[Placed]]
    """What words mean together; rows that go somewhere by themselves are not in it."""
    idle: Callable[[Words], Mapping[str, str]]
    """Words that go nowhere because of others -> what the person is told."""
    folder: Callable[[Words, str], Path]
    """The folder of a run whose config file has this name."""
    flags: tuple[Flag, ...]
    reloads: bool = False
    """Whether there is a flag --reload."""


@dataclass(frozen=True)
class Trainer:
    """One of the published trainers."""

    algorithm: str
    form: Form
    sections: tuple[str, ...]
    """What its own section of a config is called; none where all keys stand at the top."""
    agents: int = 2
    """How many there are where no key says so."""
    generations: int = 4
    """Answers of an agent at a Round, where no key says so."""
    view: critics.View | None = None
    """What its critics read; None where it has none."""

    @property
    def has_critic(self) -> bool:
        return self.view is not None


def _comlrl(words: Words, trainer: Trainer) -> Iterator[Placed]:
    benchmark = joins.benchmark_of(words)
    agents = joins.agent_count(words, trainer.agents)
    plan = joins.plan_of(words, joins.samples(words, trainer.generations))
    tasks = joins.tasks_of(words, plan, agents, critic=trainer.has_critic)
    yield Placed("algorithm.name", trainer.algorithm)
    yield Placed("environment.name", benchmark.environment)
    yield from (Placed(f"sandbox.{key}", value) for key, value in benchmark.sandbox.items())
    yield Placed("rollout.samples", list(plan.samples))
    yield from joins.data(words)
    yield from joins.players(words, benchmark, agents)
    yield from joins.portions(words, tasks)
    yield from joins.handoff(words)
    yield from joins.turn_weights(words, len(plan.samples))
    yield from joins.divergence(words)
    yield from joins.clipping(words)
    yield from joins.between_turns(words)
    yield from critics.spread(words, critic=trainer.has_critic, several=tasks * min(plan.samples) > 1)
    if trainer.view is not None:
        yield from critics.critics(words, trainer.view, agents)


COMLRL = Form(
    KEYS,
    _comlrl,
    lambda words: {**joins.idle(words), **critics.idle(words)},
    lambda words, name: Path(words.value("output.base_dir", RUNS)) / name,
    (
        Flag("model_name", "model_name", "model.name"),
        Flag("output_base_dir", "output.base_dir", "output.base_dir"),
        Flag("num_epochs", "*.num_train_epochs", "num_train_epochs", int),
        Flag("num_turns", "*.num_turns", "num_turns", int),
        Flag("turn_gradient_weights", "*.turn_gradient_weights", "one per turn", float, several=True),
    ),
)
MAPORL = Form(
    MAPORL_KEYS,
    lambda words, trainer: maporl.placed(words),
    maporl.idle,
    lambda words, name: maporl.folder(words, RUNS / name),
    (Flag("alpha", "alpha", "incentives, [alpha0, alpha1, beta0, beta1]", lambda text: read_value(text, "--alpha")),),
    reloads=True,
)
TRAINERS: Mapping[str, Trainer] = {
    "grpo": Trainer("grpo", COMLRL, ("grpo", "mt_grpo"), agents=1),
    "magrpo": Trainer("magrpo", COMLRL, ("magrpo", "mt_magrpo")),
    "iac": Trainer("iac", COMLRL, ("iac",), generations=1, view="own"),
    "maac": Trainer("maac", COMLRL, ("maac",), generations=1, view="joint"),
    "maporl": Trainer("maporl", MAPORL, (), view="own"),
}
