"""Compare teams: with baselines, with other messages, and with the teams of other runs."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, Unpack

from motet.algorithms import credit_function
from motet.api.evaluation import play_heldout, result_of
from motet.api.objects import Objects
from motet.api.setup import (
    ConfigLike,
    Show,
    answers_of,
    models_of,
    read_config,
    run_folder,
    run_of,
    setup_in_scratch,
    tag_of,
)
from motet.assembly import bases
from motet.assembly.models import LocalModels, assemble
from motet.assembly.task_setup import TaskSetup, team_of
from motet.config.paths import is_exported, run_of_checkpoint
from motet.config.schema import RunConfig
from motet.core import Environment, Sampler, Team
from motet.errors import ConfigError
from motet.evaluation.evaluate import Evaluation
from motet.evaluation.evaluate import evaluate as play_all
from motet.models.sampler import LocalSampler
from motet.rollout.many_samplers import ManySamplers
from motet.trainer.notices import Notices
from motet.trainer.progress import Progress
from motet.user_code.blocking import blocking
from motet.user_code.timeouts import run_loop
from motet_compare.baselines import (
    BaselineResult,
    BaselineTable,
    EvalContext,
    Lineup,
    baseline_table,
    play_baselines,
    result,
)
from motet_compare.contributions import StandIn
from motet_compare.cross_play import CrossplayResult, mixed
from motet_compare.cross_play import crossplay as play_crossplay
from motet_compare.diagnosis import Diagnosis, diagnosed, read_later
from motet_compare.fidelity import Fidelity, fidelity_of, needs_more
from motet_compare.many_runs import differing, refuse_others
from motet_compare.messages import ComparedMessages, beside_control, blanked, shuffled

TRAINED = "trained team"
MOST_TREES = 32
"""Held-out tasks on which the fidelity of credit is measured."""


# --------------------------------------------------------------------------------------- baselines


@blocking
def measure_baselines(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    samples: int | None = None,
    single: str | None = None,
    against: Sequence[str | Path] = (),
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> BaselineTable:
    """Play the held-out tasks with every protocol.

    For a run folder the trained team comes first; for a config, the team that it starts with.

    Args:
        samples: games per task, instead of `evaluation.samples`.
        single: the agent whose policy plays alone. Default: the last agent.
        against: another run on the same tasks, whose trained team plays them in its own
            environment. Can be repeated.
        objects: replace what the config names, as in `train`.

    docs/evaluation.md describes each protocol.
    """
    games = [] if samples is None else [f"evaluation.samples={samples}"]
    settings = read_config(target, [*overrides, *games], **objects)
    run = run_of(target)
    if run is not None and is_exported(run):
        raise ConfigError(
            f"{run} is an exported team, without the untrained one that it is compared with; "
            "expected the run that it was exported from"
        )
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        soloist = tuple(setup.team.agents)[-1] if single is None else single
        if soloist not in setup.team.agents:
            raise ConfigError(
                f"single names agent {soloist!r}; expected one of the agents "
                f"{', '.join(setup.team.agents)}"
            )
        trained = [] if run is None else [run_loop(_trained(TRAINED, setup, run, scratch, show))]
        trained += [_other(Path(other), setup, show) for other in against]
        budget = trained[0].tokens_per_task if run is not None else None
        untrained, left_out = run_loop(_baselines(setup, run, scratch, soloist, budget, show))
    results = (
        [*trained, *untrained] if run is not None else [*untrained[:1], *trained, *untrained[1:]]
    )
    return baseline_table(
        results,
        left_out,
        tasks=len(setup.tasks["eval"]),
        samples=settings.evaluation.samples,
        seed=settings.seed,
    )


async def _trained(
    name: str, setup: TaskSetup, run: Path, scratch: Path, show: Show
) -> BaselineResult:
    """Play the trained team in the same way as the run's own last evaluation."""
    models = await models_of(setup, run, scratch, show)
    with Progress(show) as progress:
        return result(
            name,
            await _context(setup, models, tag_of(setup, run), progress).play(name, _lineup(setup)),
        )


def _other(run: Path, setup: TaskSetup, show: Show) -> BaselineResult:
    """Play another run's trained team on the tasks of `setup`. Raises: ConfigError if its tasks are
    different."""
    if run_of(run) is None:
        raise ConfigError(
            f"{run} is not a run folder: expected a folder with a config.yaml, such as "
            "runs/quickstart"
        )
    same = setup.config.evaluation
    count = "null" if same.tasks is None else same.tasks
    settings = read_config(run, [f"evaluation.samples={same.samples}", f"evaluation.tasks={count}"])
    with setup_in_scratch(settings, train=False) as (theirs, scratch):
        ids = [[task.id for task in one.tasks["eval"]] for one in (setup, theirs)]
        if ids[0] != ids[1]:
            first = next((pair for pair in zip(*ids, strict=False) if pair[0] != pair[1]), None)
            what = (
                f"{len(ids[1])} instead of {len(ids[0])}"
                if first is None
                else f"{first[1]!r} where {first[0]!r} is"
            )
            raise ConfigError(f"{run} has other held-out tasks ({what}); expected the same tasks")
        return run_loop(_trained(f"trained team of {run.name}", theirs, run, scratch, show))


async def _baselines(
    setup: TaskSetup,
    run: Path | None,
    scratch: Path,
    soloist: str,
    budget: float | None,
    show: Show,
) -> tuple[list[BaselineResult], dict[str, str]]:
    models = await _untrained_models(setup, run, scratch, show)
    # Use the tag of the run's own first evaluation, so that the same completions are sampled.
    tag = "evaluate" if run is None else "evaluate-000000"
    with Progress(show) as progress:
        return await play_baselines(
            _context(setup, models, tag, progress), _lineup(setup), soloist, budget
        )


async def _untrained_models(
    setup: TaskSetup, run: Path | None, scratch: Path, show: Show
) -> LocalModels:
    """Return the models after the warm-up and before reinforcement learning."""
    if run is None:
        return await models_of(setup, None, scratch, show)
    kept = (run_of_checkpoint(run) or run) / "models"
    raw = await bases.raw(setup, scratch, kept)
    return assemble(setup, raw, train=False, answers=answers_of(run))


def _context(setup: TaskSetup, models: LocalModels, tag: str, progress: Progress) -> EvalContext:
    config = setup.config
    return EvalContext(
        setup.tasks["eval"],
        models.sampler,
        config.seed,
        tag,
        config.evaluation.samples,
        Notices(progress.say).watching(progress.counter),
    )


def _lineup(setup: TaskSetup) -> Lineup:
    return Lineup("the untrained team", setup.environment, setup.team, setup.config.rollout)


# --------------------------------------------------------------------------------------- diagnosis


@blocking
def diagnose(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    beside: str | Path | None = None,
    tasks: int | None = None,
    samples: int | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> Diagnosis:
    """Find out which agent contributes what, which messages matter, and who rides free.

    The team of a run, or the one that a config starts with, plays the held-out tasks: as it is,
    with each set of its agents as they were before reinforcement learning and mute, and with other
    messages.

    Args:
        beside: another run of the same game, whose agents stand in for those of the team, too: how
            much of what an agent contributes do others bring who never met its partners?
        tasks: number of held-out tasks. Default: `evaluation.tasks`.
        samples: games per task, instead of `evaluation.samples`.
        objects: replace what the config names, as in `train`.

    Raises: ConfigError if `beside` plays another game.

    docs/credit.md explains the figures.
    """
    counts = {"evaluation.tasks": tasks, "evaluation.samples": samples}
    given = [f"{key}={count}" for key, count in counts.items() if count is not None]
    settings = read_config(target, [*overrides, *given], **objects)
    run = run_of(target)
    theirs = None if beside is None else _same_game(str(target), settings, beside)
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        teams = [setup.team]
        models = [run_loop(models_of(setup, run, scratch, show))]
        stand_ins: list[StandIn] = []
        if run is not None and not is_exported(run):
            stand_ins.append("start")
            teams.append(setup.team)
            models.append(run_loop(_untrained_models(setup, run, scratch, show)))
        if theirs is not None and beside is not None:
            stand_ins.append("other")
            teams.append(team_of(theirs, setup.environment))
            other = replace(setup, config=theirs, team=teams[-1])
            models.append(run_loop(models_of(other, Path(beside), scratch, "silent")))
        return run_loop(_diagnosed(setup, run, teams, models, stand_ins, show))


def _same_game(target: str, settings: RunConfig, beside: str | Path) -> RunConfig:
    """Return the config of a run of the same game. Raises: ConfigError if it is no such run."""
    run_folder(beside)
    found = read_config(beside)
    _refuse_strangers([target, str(beside)], [settings, found])
    return found


async def _diagnosed(
    setup: TaskSetup,
    run: Path | None,
    teams: Sequence[Team],
    models: Sequence[LocalModels],
    others: Sequence[StandIn],
    show: Show,
) -> Diagnosis:
    """`teams`, `models`: of the team, and then of each kind of stand-in that is not mute."""
    config, team = setup.config, setup.team
    local, sampler = _of_all(models, config)

    def seated(number: int) -> Callable[[frozenset[str]], Team]:
        return lambda kept: mixed(
            teams, {agent: 0 if agent in kept else number for agent in team.agents}
        )

    def comparable(one: str, other: str) -> bool:
        names = [config.policies[name.partition("/")[2]].model for name in (one, other)]
        return names[0] is not None and names[0] == names[1]

    stand_ins: dict[StandIn, Callable[[frozenset[str]], Team]] = {
        kind: seated(number) for number, kind in enumerate(others, start=1)
    }
    stand_ins["silent"] = seated(0)
    with Progress(show) as progress:
        counter = Notices(progress.say).watching(progress.counter)

        async def play(
            environment: Environment[Any],
            who: Team,
            name: str,
            *,
            tag: str = "",
            samples: int | None = None,
        ) -> Evaluation:
            tasks = setup.tasks["eval"]
            return await play_all(
                environment,
                tasks,
                sampler,
                who,
                config.rollout,
                seed=config.seed,
                tag=f"{tag_of(setup, run)}{tag}",
                samples=config.evaluation.samples if samples is None else samples,
                on_episode=counter(name, len(tasks)),
            )

        name = config.algorithm.own_credit
        own = None if name is None else credit_function(name)

        async def fidelity(who: Team) -> Fidelity:
            turns = len(config.rollout.samples)
            measured = progress.counter("effects of single answers", turns)
            return await fidelity_of(
                setup.environment,
                setup.tasks["eval"][:MOST_TREES],
                sampler,
                who,
                config.rollout,
                config.algorithm,
                own,
                config.seed,
                on_turn=measured,
            )

        learned = "a learned reward" if config.reward_model is not None else ""
        whole = stand_ins["silent"](frozenset(team.agents))
        return await diagnosed(
            setup.environment,
            whole,
            play,
            stand_ins,
            local.logprobs,
            comparable,
            fidelity,
            learned or needs_more(config.algorithm),
            config.seed,
        )


# --------------------------------------------------------------------------------------- messages


@blocking
def compare_messages(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    shuffle_turn: int | None = None,
    blank_turn: int | None = None,
    greedy: bool = False,
    samples: int | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> ComparedMessages:
    """Play the held-out tasks as they are, and with other messages after a turn.

    Args:
        shuffle_turn: after this turn, agents get the replies of another task.
        blank_turn: after this turn, agents get empty messages of the others.
        greedy: take the most likely token at each step instead of sampling.
        samples: games per task, instead of `evaluation.samples`. With `greedy` 1, because all games
            of a task are equal.
        objects: replace what the config names, as in `train`.

    Raises: ConfigError unless one of the turns is given, and a later turn reads its messages; for
    several greedy games.

    docs/evaluation.md explains the figures.
    """
    if greedy and samples is not None and samples != 1:
        raise ConfigError(
            f"samples is {samples}; expected 1, because all greedy games of a task are equal: drop "
            "greedy or samples"
        )
    games = 1 if greedy else samples
    several = [] if games is None else [f"evaluation.samples={games}"]
    settings = read_config(target, [*overrides, *several], **objects)
    are, turn = _replaced(shuffle_turn, blank_turn, len(settings.rollout.samples))
    run = run_of(target)
    with setup_in_scratch(settings, train=False) as (setup, scratch):
        models = run_loop(models_of(setup, run, scratch, show))
        real = run_loop(play_heldout(setup, models, run, show, greedy=greedy))
        played = any(episode.root is not None for episode in real.episodes)
        if played and turn - 1 not in {sent for _, sent in read_later(real.episodes)}:
            raise ConfigError(
                f"no agent acts after another one has spoken at turn {turn}, so nobody reads its "
                "messages; expected a turn whose messages another agent may read"
            )
        replaced = (
            blanked(setup.environment, turn - 1)
            if are == "blank"
            else shuffled(setup.environment, real.episodes, turn - 1)
        )
        control = run_loop(
            play_heldout(setup, models, run, show, environment=replaced, greedy=greedy)
        )
        figures = result_of(setup, run, control)
    return ComparedMessages(
        **{one.name: getattr(figures, one.name) for one in fields(figures)},
        messages=beside_control(are, turn, real, control, settings.seed),
    )


def _replaced(
    shuffle_turn: int | None, blank_turn: int | None, turns: int
) -> tuple[Literal["shuffled", "blank"], int]:
    """Return how messages are replaced, and after which turn (from 1). Raises: ConfigError."""
    turn_of = {"shuffle_turn": shuffle_turn, "blank_turn": blank_turn}
    given = {name: turn for name, turn in turn_of.items() if turn is not None}
    if len(given) != 1:
        raise ConfigError(
            f"got {' and '.join(given) or 'no turn'}; expected one of {' and '.join(turn_of)} "
            "(--shuffle-turn and --blank-turn), such as --shuffle-turn 1"
        )
    ((name, turn),) = given.items()
    if turns == 1:
        raise ConfigError(
            f"{name} is {turn}, but the game has one turn; expected a game with a later turn that "
            "reads the messages"
        )
    if not 1 <= turn < turns:
        raise ConfigError(
            f"{name} is {turn}; expected 1 to {turns - 1}, because a later turn must read the "
            "messages"
        )
    return "shuffled" if name == "shuffle_turn" else "blank", turn


# -------------------------------------------------------------------------------------- crossplay


@blocking
def crossplay(
    runs: Sequence[str | Path],
    overrides: Sequence[str] = (),
    *,
    tasks: int | None = None,
    **objects: Unpack[Objects],
) -> CrossplayResult:
    """Play the first agent of every run with the other agents of every run, on the held-out tasks
    of the first run. A run may also be a checkpoint, such as RUN/checkpoints/step-000050.

    Args:
        tasks: number of held-out tasks. Default: `evaluation.tasks`.
        objects: replace what the configs name, as in `train`.

    Raises: ConfigError if the runs' environments differ, or have one agent.
    """
    refuse_others(runs, "crossplay")
    counts = [] if tasks is None else [f"evaluation.tasks={tasks}"]
    configs = [read_config(run, [*overrides, *counts], **objects) for run in runs]
    _refuse_strangers(runs, configs)
    with setup_in_scratch(configs[0], train=False) as (setup, scratch):
        if len(setup.team.agents) == 1:
            raise ConfigError(
                f"the game has one agent, {setup.environment.agents[0]}, who plays with nobody; "
                "expected a team. motet evaluate measures each run"
            )
        teams = [team_of(config, setup.environment) for config in configs]
        models = []
        for number, (run, config, team) in enumerate(zip(runs, configs, teams, strict=True)):
            own = scratch / f"team-{number}"  # policies of checkpoints are written there
            own.mkdir()
            theirs = replace(setup, config=config, team=team)
            models.append(run_loop(models_of(theirs, Path(run), own, "silent")))
        sampler = _of_all(models, configs[0])[1]
        return run_loop(
            play_crossplay(
                setup.environment,
                setup.tasks["eval"],
                sampler,
                [(str(run), team) for run, team in zip(runs, teams, strict=True)],
                configs[0].rollout,
                seed=configs[0].seed,
            )
        )


def _of_all(models: Sequence[LocalModels], config: RunConfig) -> tuple[LocalSampler, Sampler]:
    """Return a sampler with the policies of several teams, which has policy NAME of team i as
    `i/NAME`, also as its own reference; and with those behind endpoints."""
    policies, endpoints = (
        {
            f"{number}/{name}": one
            for number, each in enumerate(models)
            for name, one in getattr(each, kind).items()
        }
        for kind in ("policies", "endpoints")
    )
    local = LocalSampler(
        policies,
        references=policies,
        rows_per_batch=config.train.rows_per_batch,
        tokens_per_batch=config.train.tokens_per_batch,
        score_tokens=config.train.token_budget,
    )
    return local, ManySamplers(local, endpoints) if endpoints else local


def _refuse_strangers(runs: Sequence[str | Path], configs: Sequence[RunConfig]) -> None:
    """Raise ConfigError if the runs have different environments or numbers of turns."""
    one, turns = configs[0].environment.model_dump(mode="json"), len(configs[0].rollout.samples)
    for run, config in zip(runs, configs, strict=True):
        other = {
            "environment": config.environment.model_dump(mode="json"),
            "turns": len(config.rollout.samples),
        }
        found = differing({"environment": one, "turns": turns}, other)
        if found:
            raise ConfigError(
                f"{run} plays another game than {runs[0]} ({', '.join(found)}); expected runs of "
                "the same game"
            )
