"""Looking at configs and runs: what one would cost, whether it works at all, how several compare, who can play with whom."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.api.opening import ConfigLike, Show, company_of, read_config, scene_in_scratch
from motet.api.training import train, warnings_of
from motet.build.scene import Scene, open_scene, steps_of, team_of, use_threads
from motet.config.load import make_config
from motet.config.parts import CriticSettings
from motet.config.schema import RunConfig
from motet.core import Team
from motet.errors import ConfigError, Interrupted, MotetError
from motet.policies import memory
from motet.policies.devices import is_cpu
from motet.policies.loading import resolve_device
from motet.policies.sampler import LocalSampler
from motet.reading import read_json
from motet.sandbox import temporary
from motet.settings import Lora
from motet.timeouts import run_loop
from motet.trainer.evaluate import Evaluation, conventions, evaluate

# ---------------------------------------------------------------------------------------------------- before a run


@dataclass(frozen=True)
class Cost:
    """What one training step plays, and what the run needs of memory (bytes, an estimate)."""

    steps: int
    rounds: int
    joint_actions: int
    completions: int
    longest_completions: int
    """Tokens, if every answer is as long as it may be."""
    memory: dict[str, int]
    """Part -> bytes; `total` is their sum."""
    warnings: list[str]
    """What is allowed, and should be known."""


STAND_IN_SCORE = 0.5
"""What `check` has every answer scored with where the run has a verifier."""


def dry_run(config: ConfigLike, overrides: Sequence[str] = ()) -> Cost:
    """Checks everything that can be checked without a model, and counts. Counts are for branches that do not end early.

    Raises: ConfigError for everything that `train` refuses before it looks at a model or a run folder.
    """
    settings = read_config(config, overrides)
    with open_scene(settings, train=True) as scene:
        plan, agents = settings.rollout, len(settings.team)
        rounds_T = plan.rounds(agents)
        tasks = settings.train.tasks_per_step
        completions_T = [count * samples for count, samples in zip(rounds_T, plan.samples, strict=True)]
        answers = sum(settings.decode_of(agent).max_new_tokens for agent in settings.team)
        return Cost(
            steps=steps_of(scene),
            rounds=tasks * sum(rounds_T),
            joint_actions=tasks * sum(n * plan.joint_actions(t, agents) for t, n in enumerate(rounds_T)),
            completions=tasks * agents * sum(completions_T),
            longest_completions=tasks * answers * sum(completions_T),
            memory=memory_of(scene),
            warnings=warnings_of(scene),
        )


def memory_of(scene: Scene) -> dict[str, int]:
    """Part -> bytes, an estimate: weights, optimisers, references, and the larger of what playing and learning hold at a time;
    and the sum of all as `total`."""
    config = scene.config
    parts: dict[str, int] = {"weights": 0, "gradients and optimizers": 0, "references": 0, "critics": 0}
    at_work = 0
    critic, valued = config.critic or CriticSettings(), _models_of_critics(config)
    for model, base in config.models.items():
        source = base.embedded or base.path
        assert source is not None
        shape = memory.shape_of(source)
        width = 4 if base.dtype == "float32" else 2
        mine = [policy for policy in config.policies.values() if policy.model == model]
        full = sum(policy.train == "full" for policy in mine)
        computes = 2 if base.dtype == "bfloat16" else memory.MASTER  # what is trained, that is
        parts["weights"] += full * memory.held(shape.parameters, computes)
        on_shared = critic.train in ("lora", "head") and model in valued
        parts["weights"] += memory.frozen(shape, width, base.quantize) if len(mine) > full or on_shared else 0
        trunk = {"full": shape.parameters, "lora": shape.adapter(critic.lora or Lora())}
        grown = trunk[critic.train] if critic.train in trunk else 0
        judged = memory.held(grown, computes) + memory.held(shape.hidden + 1, memory.MASTER)
        judged += memory.training(grown + shape.hidden + 1, config.critic_optimizer.kind)
        parts["critics"] += valued.count(model) * judged
        for name, policy in config.policies.items():
            if policy.model == model and policy.train != "frozen":
                moved = shape.parameters if policy.train == "full" else shape.adapter(policy.lora or Lora())
                own = memory.held(moved, computes) if policy.train == "lora" else 0
                parts["gradients and optimizers"] += own + memory.training(moved, config.optimizer_of(name).kind)
        if full and config.algorithm.needs_reference and len(mine) == full and not on_shared:
            parts["references"] += shape.parameters * width
        length = 2 * max(config.decode_of(agent).max_new_tokens for agent in config.team)
        playing = memory.playing(shape, _rows_played(scene, model, length), length, width)
        on_cpu = base.device == "cpu" or (base.device == "auto" and is_cpu(resolve_device("auto")))
        if on_cpu and base.quantize == "none":
            playing += memory.packing(shape, width)
        learning = memory.learning(shape, _tokens_learnt(scene, model, model in valued), width, base.checkpointing)
        at_work = max(at_work, playing, learning)
    parts["playing or learning"] = at_work
    return {**parts, "total": sum(parts.values())}


def _rows_played(scene: Scene, model: str, length: int) -> int:
    """The most answers that are drawn at once, `length` tokens each with their prompts."""
    config, plan = scene.config, scene.config.rollout
    agents = len(config.team)
    rounds_T = plan.rounds(agents)
    widest = config.train.tasks_per_step * max(n * samples for n, samples in zip(rounds_T, plan.samples, strict=True))
    evaluated = len(scene.tasks.get("eval", ())) * config.evaluation.samples
    together: Counter[str] = Counter()  # adapters on one base are drawn in one batch
    for player in config.team.values():
        mine = {name: config.policies[name] for name in player.policy if config.policies[name].model == model}
        together.update({"adapters" if policy.train == "lora" else name for name, policy in mine.items()})
    rows = max(widest, evaluated) * max(together.values(), default=0)
    return min(rows, config.train.rows_per_batch, max(1, config.train.tokens_per_batch // length))


def _tokens_learnt(scene: Scene, model: str, by_critics: bool) -> int:
    """The most tokens of one micro-batch: `train.token_budget`, or all that a policy or critic learns from, if less.

    A prompt is taken to be as long as the longest answer. Policies read it once, critics with each answer.
    """
    config, plan = scene.config, scene.config.rollout
    prompt = max(config.decode_of(agent).max_new_tokens for agent in config.team)
    learnt: dict[str, int] = {}
    for turn, (rounds, samples) in enumerate(zip(plan.rounds(len(config.team)), plan.samples, strict=True)):
        for agent, player in config.team.items():
            name = player.policy[min(turn, len(player.policy) - 1)]
            answer = config.decode_of(agent).max_new_tokens
            each = samples * (prompt + answer) if by_critics else prompt + samples * answer
            who = "critics" if by_critics else name
            if by_critics or config.policies[name].model == model:
                learnt[who] = learnt.get(who, 0) + config.train.tasks_per_step * rounds * each
    return min(config.train.token_budget, math.ceil(max(learnt.values(), default=0) / config.algorithm.minibatches))


def _models_of_critics(config: RunConfig) -> list[str]:
    """The model of every critic that the run will have."""
    first = {name: agent for agent, name in reversed(list(config.critic_of.items()))}
    said = config.critic.model if config.critic is not None else None
    return [said or config.policies[config.team[agent].policy[0]].model for agent in first.values()]


def check(config: ConfigLike, overrides: Sequence[str] = (), show: Show = "silent") -> dict[str, Any]:
    """Two steps of the run with tiny models in place of its own, in a folder that vanishes. Returns the summary, and in
    `stand_ins` what else was not the run's own.

    It finds what only shows when things move: an environment that raises, a reward nobody can reach, a prompt of no tokens.
    Raises: as `train`.
    """
    settings = read_config(config, overrides)
    plain = settings.model_dump(mode="json")
    plain["models"] = {
        name: {"embedded": {"hidden_size": 32, "layers": 1, "context": 8192}, "device": "cpu"}
        for name in plain["models"]
    }
    plain["warmup"] = None
    stand_ins: dict[str, str] = {}
    if settings.verifier is not None and settings.verifier.constant is None:
        plain["verifier"] = {"constant": STAND_IN_SCORE}
        stand_ins["verifier"] = f"a score of {STAND_IN_SCORE} for every answer: the run's own was not asked"
    for policy in plain["policies"].values():
        policy["adapter"] = None
        if policy["lora"] is not None:
            policy["lora"]["targets"] = "all-linear"  # the tiny model's modules have names of their own
    if plain["critic"] is not None and plain["critic"]["lora"] is not None:
        plain["critic"]["lora"]["targets"] = "all-linear"
    plain["train"] |= {"steps": 2, "epochs": None, "tasks_per_step": min(2, settings.train.tasks_per_step)}
    plain["evaluation"] |= {"every": 0, "tasks": 2}
    for decode in (plain["decode"], *(player["decode"] for player in plain["team"].values())):
        if decode is not None and "max_new_tokens" in decode:
            decode["max_new_tokens"] = min(16, decode["max_new_tokens"])
    plain["report"] = {"tensorboard": False, "wandb": None, "episodes": "none"}
    with temporary.folder("motet-check-") as runs:
        try:
            return {**train(make_config(plain), runs=runs, show=show), "stand_ins": stand_ins}
        except Interrupted as stop:
            raise KeyboardInterrupt from stop  # there is no run to go on with


# ---------------------------------------------------------------------------------------------------- after runs


def compare(runs: Sequence[str | Path]) -> list[dict[str, Any]]:
    """One row per run: what it was, how it went, and in `differs` the keys in which its config is not the first one's."""
    _refuse_others(runs, "compare")
    configs = [read_config(run).model_dump(mode="json") for run in runs]
    rows = []
    for run, config in zip(runs, configs, strict=True):
        summary = _summary(Path(run))
        heldout = summary["heldout"]
        changed = differing(configs[0], config)
        rows.append(
            {
                "run": str(run),
                "seed": summary["seed"],
                "steps": summary["steps"],
                "before": heldout["before"]["success"] if "before" in heldout else None,
                "after": heldout["after"]["success"] if "after" in heldout else None,
                "reward": heldout["after"]["reward"] if "after" in heldout else None,
                "wall_seconds": summary["wall_seconds"],
                "cpu_seconds": summary["cpu_seconds"],
                "differs": [line for line in changed if line.partition("=")[0] not in ("name", "seed")],
            }
        )
    return rows


def _summary(run: Path) -> dict[str, Any]:
    path = run / "summary.json"
    if not path.is_file():
        raise ConfigError(f"{run} has no summary.json: expected the folder of a finished run")
    found: dict[str, Any] = read_json(path)
    return found


def differing(one: Any, other: Any, at: str = "") -> list[str]:
    """Dotted keys whose values differ, with the other's value."""
    if isinstance(one, dict) and isinstance(other, dict):
        found: list[str] = []
        for key in dict.fromkeys([*one, *other]):
            found += differing(one.get(key), other.get(key), f"{at}.{key}" if at else key)
        return [line for line in found if line]
    return [] if one == other else [f"{at}={other}"]


@dataclass(frozen=True)
class Crossplay:
    """`success[i][j]`: the first agent of run i with all others of run j. `conventions[i]`: what run i settled on."""

    runs: list[str]
    agents: list[str]
    success: list[list[float]]
    conventions: list[dict[str, dict[str, float]]]


def crossplay(runs: Sequence[str | Path], overrides: Sequence[str] = ()) -> Crossplay:
    """Plays every run's first agent with every run's others, on the held-out tasks of the first run.

    Raises: ConfigError where the runs' environments differ.
    """
    _refuse_others(runs, "crossplay")
    configs = [read_config(run, overrides) for run in runs]
    _refuse_strangers(runs, configs)
    use_threads(configs[0])
    with scene_in_scratch(configs[0], None, train=False) as (scene, scratch):
        teams = [team_of(config, scene.environment) for config in configs]
        policies: dict[str, Any] = {}
        for number, (run, config, team) in enumerate(zip(runs, configs, teams, strict=True)):
            own = replace(scene, config=config, team=team)
            company = run_loop(company_of(own, Path(run), scratch, "silent"))
            policies |= {f"{number}/{name}": policy for name, policy in company.policies.items()}
        sampler = LocalSampler(
            policies,
            rows_per_batch=configs[0].train.rows_per_batch,
            on_long_prompt=configs[0].rollout.on_long_prompt,
        )
        success: list[list[float]] = []
        settled: list[dict[str, dict[str, float]]] = []
        for i in range(len(runs)):
            success.append([])
            for j in range(len(runs)):
                evaluation = run_loop(
                    evaluate(
                        scene.environment,
                        scene.tasks["eval"],
                        sampler,
                        _mixed(teams, i, j),
                        configs[0].rollout,
                        seed=configs[0].seed,
                        tag=f"crossplay-{i}-{j}",
                    )
                )
                success[i].append(_success(evaluation, f"{runs[i]} with {runs[j]}"))
                if i == j and hasattr(scene.environment, "convention"):
                    settled.append(conventions(evaluation.episodes, scene.environment.convention))
    return Crossplay([str(run) for run in runs], list(scene.environment.agents), success, settled)


def _success(evaluation: Evaluation, pair: str) -> float:
    summary = evaluation.summary
    if summary.success is None:
        raise MotetError(
            f"{pair}: none of {summary.episodes} episodes ended with the term success ({summary.faults} faults), and that is "
            f"what cross-play compares"
        )
    return summary.success


def _refuse_others(runs: Sequence[str | Path], command: str) -> None:
    """Raises: ConfigError for too few runs, and for what is no run folder."""
    if len(runs) < 2:
        raise ConfigError(f"{command} needs at least two run folders, got {len(runs)}")
    for run in runs:
        if not (Path(run) / "config.yaml").is_file():
            raise ConfigError(f"{run} is no run folder: expected a folder with a config.yaml, such as runs/quickstart")


def _refuse_strangers(runs: Sequence[str | Path], configs: Sequence[RunConfig]) -> None:
    """Raises: ConfigError where the runs play different games."""
    one, turns = configs[0].environment.model_dump(mode="json"), len(configs[0].rollout.samples)
    for run, config in zip(runs, configs, strict=True):
        other = {"environment": config.environment.model_dump(mode="json"), "turns": len(config.rollout.samples)}
        found = differing({"environment": one, "turns": turns}, other)
        if found:
            raise ConfigError(
                f"{run} plays another game than {runs[0]} ({', '.join(found)}): cross-play needs one game"
            )


def _mixed(teams: Sequence[Team], first: int, others: int) -> Team:
    """The first agent as run `first` plays it, everyone else as run `others` does."""
    run_of = {agent: others if place else first for place, agent in enumerate(teams[0].agents)}
    return Team(
        agents={agent: tuple(f"{run}/{name}" for name in teams[run].agents[agent]) for agent, run in run_of.items()},
        decode={agent: teams[run].decode[agent] for agent, run in run_of.items()},
        system={agent: teams[run].system[agent] for agent, run in run_of.items() if agent in teams[run].system},
    )
