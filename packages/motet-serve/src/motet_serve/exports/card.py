"""The model card of an exported team: README.md in the format of the Hugging Face Hub."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from motet.assembly.model_card import loading_code
from motet.config.schema import RunConfig
from motet.config.sections import VLLM_RANKS
from motet.config.yaml import write_yaml
from motet.evaluation.intervals import Estimate, estimate, success_of
from motet.evaluation.playthrough import playthroughs, rewards
from motet.models.folder import PACKAGED
from motet.rollout.summary import summarise
from motet.safety.visible import visible
from motet.trainer.run_folder import RunFolder
from motet.user_code.named_parts import find_part
from motet_serve.exports.hub import UNKNOWN
from motet_serve.exports.team import policies_of
from motet_serve.exports.weights import PolicyFolder

ROWS = "data.eval.path=ROWS.jsonl"
"""The override that names rows to play."""
_TEMPLATE = Path(__file__).with_name("card.md.jinja")
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
    needs_rows: bool = False
    """Whether it plays only rows that somebody else names."""


def write_card(facts: CardFacts, folder: Path) -> None:
    """Write README.md from the template beside this module: a YAML header, and sections for
    people."""
    config = facts.config
    part = find_part("environments", config.environment.name, "environment.name")
    own = part.__doc__ or ""  # not the one of its base class
    about = inspect.cleandoc(own) or "Its author has not described it."
    kinds = {one.name: _kind(one, facts) for one in facts.folders}
    bases = dict.fromkeys(one.base for one in facts.folders if one.base is not None)
    found = (("before training", facts.before), ("this team", facts.after))
    pages = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    pages.filters |= {"fenced": _fenced, "shown": shown, "cell": _cell}
    text = pages.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        facts=facts,
        config=config,
        header=_header(facts),
        policies={
            name: kinds[name] if name in kinds else _unchanged(name, facts)
            for name in policies_of(config)
        },
        about=visible("\n\n".join(about.split("\n\n")[:2])).replace("<", "&lt;"),
        game=_game(config),
        results=[(label, one) for label, one in found if one is not None],
        data=_data(config),
        training=_training(config),
        in_folder=lambda base: _place(base, facts),
        packaged=[base.removeprefix(PACKAGED) for base in bases if base.startswith(PACKAGED)],
        loading_code=loading_code,
        on_bases={base: [one for one in facts.folders if one.base == base] for base in bases},
        lora_rank=_lora_rank,
        rows=f" {ROWS}" if facts.needs_rows else "",
        turn_ends=list(dict.fromkeys(repr(end) for one in facts.folders for end in one.turn_text)),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _place(base: str, facts: CardFacts) -> str:
    """Return what a program that loads a base model calls it."""
    if base.startswith(PACKAGED):
        return "BASE"
    return base if base in facts.hub else f"FOLDER/{base}"


def _header(facts: CardFacts) -> str:
    from huggingface_hub import ModelCardData

    config, data = facts.config, facts.config.data
    said = set(facts.licences.values()) or {UNKNOWN}
    one = said.pop() if len(said) == 1 else None
    header = ModelCardData(
        library_name="peft" if any(one.adapter for one in facts.folders) else "transformers",
        license=one or "other",
        license_name=None if one else "see-below",
        base_model=[name for name in facts.hub if not name.startswith(PACKAGED)] or None,
        datasets=[source.name for source in (data.train,) if source and source.name] or None,
        pipeline_tag="text-generation",
        tags=["motet", "multi-agent", "reinforcement-learning", config.algorithm.name],
    )
    return str(header.to_yaml()).strip()


def _kind(one: PolicyFolder, facts: CardFacts) -> str:
    base = _base(one.name, facts)
    if one.adapter:
        return f"`policies/{one.name}`: a LoRA adapter of rank {one.rank} on {base}"
    merged = ", with its LoRA adapter merged" if one.merged else ", all weights trained"
    return f"`policies/{one.name}`: {base}{merged}"


def _base(policy: str, facts: CardFacts) -> str:
    model = facts.config.policies[policy].model
    assert model is not None
    return facts.bases[model]


def _unchanged(policy: str, facts: CardFacts) -> str:
    """Return what a policy is that has no folder in the export."""
    asked = facts.config.endpoints.get(policy)
    if asked is None:
        return f"{_base(policy, facts)}, unchanged"
    return f"`{asked.model}` behind the endpoint {asked.base_url}, which is asked for each answer"


def _game(config: RunConfig) -> dict[str, Any]:
    options = config.environment.options
    system = {name: one.system for name, one in config.team.items() if one.system is not None}
    return {
        "environment": config.environment.name,
        **({"options": options} if options else {}),
        "turns": len(config.rollout.samples),
        "decode": {agent: config.decode_of(agent).model_dump(mode="json") for agent in config.team},
        **({"system": system} if system else {}),
    }


def _training(config: RunConfig) -> dict[str, Any]:
    sections = config.model_dump(mode="json", exclude_defaults=True)
    sections["algorithm"] = config.model_dump(mode="json")["algorithm"]
    return {"seed": config.seed, **{key: sections[key] for key in _TRAINING if key in sections}}


def _data(config: RunConfig) -> str:
    source = config.data.train
    if source is None:
        return "tasks that the environment makes"
    if source.name is not None:
        subset = f", {source.subset}" if source.subset else ""
        return f"{source.name}{subset}, split {source.split}"
    return "rows of a local file, which are not part of this folder"


def _fenced(settings: Mapping[str, Any]) -> str:
    """Return settings as a block of YAML in Markdown."""
    text, fence = write_yaml(_without_paths(settings)).rstrip(), "```"
    while fence in text:
        fence += "`"
    return f"{fence}yaml\n{text}\n{fence}"


def _cell(text: str) -> str:
    """Return a text as a cell of a table in Markdown."""
    return " ".join(visible(text).split()).replace("|", "\\|")


def _without_paths(value: Any) -> Any:
    """Replace absolute paths by the names of their files."""
    if isinstance(value, Mapping):
        return {key: _without_paths(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(one) for one in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def _lora_rank(adapters: Sequence[PolicyFolder]) -> int:
    """Return the `--max-lora-rank` with which vLLM serves these adapters."""
    highest = max(one.rank or 0 for one in adapters)
    return next((rank for rank in VLLM_RANKS if rank >= highest), highest)


def shown(found: Estimate | None) -> str:
    """Return a mean with its interval. One without a width says nothing, and is left out."""
    if found is None:
        return "-"
    interval = "" if found.certain else f" ({found.low:.3f} to {found.high:.3f})"
    return f"{found.mean:.3f}{interval}"
