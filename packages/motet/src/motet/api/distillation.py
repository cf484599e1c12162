"""distill: one policy that plays all agents of a trained team, as the team does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motet.api.loaded import LoadedRun, load_run
from motet.api.setup import Show
from motet.api.summary import RunSummary
from motet.api.training import train
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.user_code.blocking import blocking

STUDENT = "student"
QUIET = ("max_kl", "max_frac_return_zero_std", "max_duplicates", "min_entropy")
"""Alarms that mean nothing here: a student begins far from its teachers, learns where all rewards
are equal, and need not explore."""


@blocking
def distill(
    run: str | Path,
    overrides: Sequence[str] = (),
    *,
    model: str | None = None,
    name: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    runs: str | Path = "runs",
    show: Show = "auto",
    traceback: bool = False,
) -> RunSummary:
    """Train one policy that plays every trained agent of a run as the run's own policy does, and
    return the summary of the new run.

    The student plays the game and learns from the reverse KL divergence to each agent's policy
    after the same prompts (on-policy distillation, docs/algorithms.md). Rewards teach nothing.

    Args:
        run: the folder of a finished run, the team of which teaches.
        model: the student's model, in place of that of the first trained policy of the run. It must
            have the same tokenizer.
        name: the name of the new run. By default that of the run, with -student behind it.
        resume: resume the run in `runs/NAME` from its last checkpoint.
        overwrite: delete the run in `runs/NAME` and start again.
        runs: the folder that contains the run folders.
        traceback: show the whole traceback of an error in your own code, not one line.

    Raises: ConfigError before anything is changed, and what `train` raises.
    """
    config = distilled_config(run, overrides, model=model, name=name)
    return train(
        config, resume=resume, overwrite=overwrite, runs=runs, show=show, traceback=traceback
    )


def distilled_config(
    run: str | Path,
    overrides: Sequence[str] = (),
    *,
    model: str | None = None,
    name: str | None = None,
) -> RunConfig:
    """Return the config of `distill`. The arguments are the same.

    Raises: ConfigError if the run is not finished, has no trained policy, or has one whose name is
    that of the student.
    """
    loaded = load_run(run)
    config = loaded.config
    trained = [name for name in config.policies if name not in config.frozen]
    if not trained:
        raise ConfigError(
            f"{run} has no trained policy, so nothing can be learned from it; expected the folder "
            "of a run of motet train"
        )
    if STUDENT in {*config.policies, *config.models}:
        raise ConfigError(
            f"{run} has a policy or a model with the name {STUDENT}, which the new one gets; "
            "expected another name: train the run under other names"
        )
    plain: dict[str, Any] = config.model_dump(mode="json")
    models, policies = _models(loaded), dict(plain["policies"])
    first = config.policies[trained[0]]
    assert first.model is not None
    # Adapters of the student and its teachers share one copy of the model.
    own = first.model if first.train == "lora" and model is None else STUDENT
    models[own] = dict(models[first.model])
    if model is not None:
        models[own]["path"] = model
    for key, policy in config.policies.items():
        if policy.snapshots is not None:
            # As in evaluations, it plays with the weights at the start.
            source = config.policies[policy.snapshots.of]
            adapter = {} if source.adapter is None else {"adapter": str(source.adapter)}
            policies[key] = {"model": source.model, "train": "frozen", **adapter}
    for each in trained:
        folder = loaded.sources(each)[0]
        if config.policies[each].train == "lora":
            policies[each] = {
                "model": config.policies[each].model, "train": "frozen", "adapter": str(folder)
            }  # fmt: skip
        else:
            base = config.policies[each].model
            assert base is not None
            models[f"{base}-{each}"] = {**models[base], "path": str(folder)}
            policies[each] = {"model": f"{base}-{each}", "train": "frozen"}
    policies[STUDENT] = {"model": own, "train": first.train}
    if first.train == "lora" and first.lora is not None:
        policies[STUDENT]["lora"] = first.lora.model_dump(mode="json")
    team = {
        agent: player
        if config.frozen.issuperset(config.team[agent].policy)
        else {**player, "teacher": player["policy"], "policy": [STUDENT]}
        for agent, player in plain["team"].items()
    }
    used = {policy["model"] for policy in policies.values() if "model" in policy}
    plain |= {
        "name": name or f"{config.name}-student",
        "models": {key: value for key, value in models.items() if key in used},
        "policies": policies,
        "team": team,
        "algorithm": {"name": "distillation"},
        **dict.fromkeys(("warmup", "critic", "reward_model", "comparator", "cluster")),
    }
    plain.pop("schedule")  # there is one policy
    plain["rollout"] = {**plain["rollout"], "refill": 0}
    plain["alarms"] = {**plain["alarms"], **dict.fromkeys(QUIET)}
    return make_config(plain, overrides)


def _models(loaded: LoadedRun) -> dict[str, dict[str, Any]]:
    """Return the settings of each model of a run, from where it was kept if the run made or warmed
    it up."""
    found: dict[str, dict[str, Any]] = {}
    for name, settings in loaded.config.models.items():
        said = settings.model_dump(mode="json", exclude_none=True)
        said.pop("embedded", None)
        kept = loaded.path / "models" / name
        found[name] = {**said, "path": str(kept if kept.is_dir() else settings.path)}
    return found
