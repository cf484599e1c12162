"""The model card of an exported team: README.md in the format of the Hugging Face Hub."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.assembly.model_card import loading_code
from motet.config.schema import RunConfig
from motet.config.yaml import write_yaml
from motet.environments.registry import find
from motet.evaluation.intervals import Estimate, estimate, success_of
from motet.evaluation.playthrough import playthroughs, rewards
from motet.exports.hub import UNKNOWN
from motet.exports.team import policies_of
from motet.exports.weights import PolicyFolder
from motet.rollout.summary import summarise
from motet.safety.visible import visible
from motet.trainer.run_folder import RunFolder

_TRAINING = ("algorithm", "optimizer", "schedule", "warmup", "rollout", "train", "evaluation")


@dataclass(frozen=True)
class HeldOut:
    """One evaluation. A figure is None if no task has it."""

    step: int
    tasks: int
    games: int
    """Games per task."""
    faults: int
    success: Estimate | None
    reward: Estimate | None


def held_out(run: RunFolder, step: int, seed: int) -> HeldOut | None:
    """Return the evaluation of a step. None if the run has none.

    Raises: ConfigError if its record is broken.
    """
    if not run.episodes("evaluate", step).is_file():
        return None
    episodes = list(run.recorded("evaluate", step))
    games = [playthroughs(episode) for episode in episodes]
    return HeldOut(
        step,
        len(games),
        max(map(len, games), default=0),
        summarise(episodes).faults,
        success_of(games, seed),
        estimate(rewards(games), seed),
    )


@dataclass(frozen=True)
class CardFacts:
    """What a model card says about an export."""

    config: RunConfig
    """The config of the run."""
    folders: Sequence[PolicyFolder]
    bases: Mapping[str, str]
    """Model of the config -> where it comes from: a name of the hub, or a phrase."""
    hub: Sequence[str]
    """The base models that are on the hub."""
    licences: Mapping[str, str]
    """Base model -> its licence, as its card says."""
    steps: int
    version: str
    """The version of Motet."""
    before: HeldOut | None = None
    after: HeldOut | None = None
    left_out: Sequence[str] = ()
    """What somebody else must add."""


def write_card(facts: CardFacts, folder: Path) -> None:
    """Write README.md: a YAML header, and sections for people."""
    name = facts.config.name
    sections = [
        f"---\n{_header(facts)}\n---\n\n# {name}\n",
        _team(facts),
        _protocol(facts),
        _results(facts),
        _training(facts),
        _use_team(facts),
        _use_policies(facts),
        _licence(facts),
    ]
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8")


def _header(facts: CardFacts) -> str:
    from huggingface_hub import ModelCardData

    config, data = facts.config, facts.config.data
    said = set(facts.licences.values()) or {UNKNOWN}
    one = said.pop() if len(said) == 1 else None
    header = ModelCardData(
        library_name="peft" if any(one.adapter for one in facts.folders) else "transformers",
        license=one or "other",
        license_name=None if one else "see-below",
        base_model=list(facts.hub) or None,
        datasets=[source.name for source in (data.train,) if source and source.name] or None,
        pipeline_tag="text-generation",
        tags=["motet", "multi-agent", "reinforcement-learning", config.algorithm.name],
    )
    return str(header.to_yaml()).strip()


def _team(facts: CardFacts) -> str:
    config = facts.config
    agents = "\n".join(
        f"| {agent} | {', then '.join(player.policy)} |" for agent, player in config.team.items()
    )
    kinds = {one.name: _kind(one, facts) for one in facts.folders}
    rows = "\n".join(
        f"| {name} | {kinds.get(name, f'{_base(name, facts)}, unchanged')} |"
        for name in policies_of(config)
    )
    return (
        f"A team of {len(config.team)} agents that Motet {facts.version} "
        f"trained with multi-agent reinforcement learning "
        f"({config.algorithm.name}, {facts.steps:,} steps).\n\n"
        f"| agent | policy |\n|---|---|\n{agents}\n\n"
        f"| policy | what it is |\n|---|---|\n{rows}\n"
    )


def _kind(one: PolicyFolder, facts: CardFacts) -> str:
    base = _base(one.name, facts)
    if one.adapter:
        return f"`policies/{one.name}`: a LoRA adapter of rank {one.rank} on {base}"
    merged = ", with its LoRA adapter merged" if one.merged else ", all weights trained"
    return f"`policies/{one.name}`: {base}{merged}"


def _base(policy: str, facts: CardFacts) -> str:
    return facts.bases[facts.config.policies[policy].model]


def _protocol(facts: CardFacts) -> str:
    config = facts.config
    own = find(config.environment.name).__doc__ or ""  # not the one of its base class
    about = inspect.cleandoc(own) or "Its author has not described it."
    options = config.environment.options
    turns = len(config.rollout.samples)
    said = {
        "environment": config.environment.name,
        **({"options": options} if options else {}),
        "turns": turns,
        "decode": {agent: config.decode_of(agent).model_dump(mode="json") for agent in config.team},
        **(
            {"system": system}
            if (system := {k: p.system for k, p in config.team.items() if p.system is not None})
            else {}
        ),
    }
    return (
        f"## The game\n\n{_paragraph(about)}\n\n{_fenced('yaml', write_yaml(_without_paths(said)))}"
    )


def _paragraph(text: str) -> str:
    """Return the first two paragraphs, as plain text."""
    return visible("\n\n".join(text.split("\n\n")[:2])).replace("<", "&lt;")


def _fenced(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _without_paths(value: Any) -> Any:
    """Replace absolute paths by the names of their files."""
    if isinstance(value, Mapping):
        return {key: _without_paths(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(one) for one in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def _results(facts: CardFacts) -> str:
    found = [
        (label, one)
        for label, one in (("before training", facts.before), ("this team", facts.after))
        if one is not None
    ]
    if not found:
        return "## Results\n\nThe run recorded no evaluation of these weights.\n"
    rows = "\n".join(
        f"| {label} (step {one.step}) | {shown(one.success)} | {shown(one.reward)} | {one.tasks} "
        f"| {one.games} | {one.faults} |"
        for label, one in found
    )
    table = (
        "| team | success | reward | tasks | games per task | faults |\n|---|---|---|---|---|---|\n"
        f"{rows}\n"
    )
    return (
        "## Results\n\nOn held-out tasks: means over tasks, with 95 % intervals over tasks in "
        "brackets (success: Wilson's, reward: bootstrap). They say nothing about training with "
        f"another seed.\n\n{table}\n"
        "`motet evaluate FOLDER` plays them again, with the same seeds.\n"
    )


def _training(facts: CardFacts) -> str:
    sections = facts.config.model_dump(mode="json", exclude_defaults=True)
    sections["algorithm"] = facts.config.model_dump(mode="json")["algorithm"]
    settings = {
        "seed": facts.config.seed,
        **{key: sections[key] for key in _TRAINING if key in sections},
    }
    return (
        f"## Training\n\nData: {_data(facts.config)}. Trained with `motet train CONFIG`. "
        "CONFIG had these settings; all others were the defaults:\n\n"
        f"{_fenced('yaml', write_yaml(_without_paths(settings)))}"
    )


def _data(config: RunConfig) -> str:
    source = config.data.train
    if source is None:
        return "tasks that the environment makes"
    if source.name is not None:
        subset = f", {source.subset}" if source.subset else ""
        return f"{source.name}{subset}, split {source.split}"
    return "rows of a local file, which are not part of this folder"


def _use_team(facts: CardFacts) -> str:
    missing = "".join(f"- {line}\n" for line in facts.left_out)
    add = f"\nTo add before it plays:\n\n{missing}" if missing else ""
    return (
        "## Use the team\n\nFOLDER is the path of this folder.\n\n"
        "```sh\nmotet play FOLDER\nmotet evaluate FOLDER\n```\n\n"
        '```python\nimport motet\n\nwith motet.load_team("FOLDER") as team:\n'
        "    game = team.play(task=0)\n```\n\n"
        "If there is a folder `code`, it has the Python files of the game's author. They run with "
        f"your rights: read them first.\n{add}"
    )


def _use_policies(facts: CardFacts) -> str:
    from motet.cluster.vllm_engine import RANKS  # a run without a cluster loads none of it

    text = "## Use one policy\n\n"
    for one in facts.folders:
        base = None if one.base is None else f'"{_in_folder(one.base, facts)}"'
        place = f'"FOLDER/policies/{one.name}"'
        text += f"{one.name}:\n\n{loading_code(one.adapter, place, base)}\n"
    for base in dict.fromkeys(one.base for one in facts.folders if one.base is not None):
        on_it = [one for one in facts.folders if one.base == base]
        modules = " ".join(f"{one.name}=FOLDER/policies/{one.name}" for one in on_it)
        highest = max(one.rank or 0 for one in on_it)
        rank = next((rank for rank in RANKS if rank >= highest), highest)
        text += (
            f"The adapters on {base} behind an OpenAI-compatible server of vLLM:\n\n"
            f"```sh\nvllm serve {_in_folder(base, facts)} --enable-lora "
            f"--max-lora-rank {rank} --lora-modules {modules} "
            f"--generation-config FOLDER/policies/{on_it[0].name}\n```\n"
        )
    if facts.folders:
        text += (
            "\n`generation_config.json` of each policy has the tokens that end a completion: "
            "transformers and vLLM read them there. The stop strings of an agent are in `decode` "
            "above, and go into each request.\n"
        )
    strings = dict.fromkeys(each for one in facts.folders for each in one.turn_text)
    if strings:
        said = ", ".join(map(repr, strings))
        text += f"\nA chat also ends at {said}, with which the chat template ends a turn.\n"
    return text


def _in_folder(base: str, facts: CardFacts) -> str:
    return base if base in facts.hub else f"FOLDER/{base}"


def _licence(facts: CardFacts) -> str:
    lines = "".join(f"- {base}: {licence}\n" for base, licence in facts.licences.items())
    return (
        "## Licence\n\n"
        + (f"The licences of the base models, as their cards say:\n\n{lines}\n" if lines else "")
        + "The weights here derive from the base models, so their terms apply. `unknown`: no card "
        "was found, or it names no licence.\n"
    )


def shown(found: Estimate | None) -> str:
    """Return a mean with its interval. One without a width says nothing, and is left out."""
    if found is None:
        return "-"
    interval = "" if found.certain else f" ({found.low:.3f} to {found.high:.3f})"
    return f"{found.mean:.3f}{interval}"
