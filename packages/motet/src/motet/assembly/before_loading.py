"""What is known of a run's models before their weights are loaded: what ends their completions,
whether the first prompts leave room for one, and the date that chat templates read."""

from collections.abc import Awaitable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.assembly.endpoints import endpoint_notes, endpoint_warnings
from motet.assembly.task_setup import TaskSetup, TeamSetup
from motet.assembly.tasks import asking
from motet.config.load import load_config
from motet.config.schema import RunConfig
from motet.config.sections import EmbeddedModel
from motet.core import Prompt, Task
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.models.adapters import ALL, check_targets
from motet.models.chat_template import check_variable, reads_date, tokenizer_with
from motet.models.completions import CompletionEnds, completion_ends, hides_texts
from motet.models.content import spelt_tokens
from motet.models.formats import Vocabulary, check_form
from motet.models.loading import class_name, stored_generation
from motet.models.loading import load_config as load_config_of
from motet.models.memory import shape_of
from motet.models.prompts import encode
from motet.models.tool_forms import form_of
from motet.settings import ChatTemplate, Decode, TinyModel
from motet.user_code.retries import again
from motet.user_code.timeouts import at_once, guarded, within


def note_models(setup: TeamSetup, bases: Mapping[str, str | Path]) -> tuple[list[str], list[str]]:
    """Return what a user should know about the models in `bases` and about endpoints, and warnings.
    The models are loaded without their weights.

    Embedded models are left out: their only end token is `<eos>`.

    Raises: ConfigError.
    """
    notes = endpoint_notes(setup.config)
    warnings = endpoint_warnings(setup.config)
    for agent in setup.config.team:
        decode = setup.config.decode_of(agent)
        if decode.format is not None:
            check_form(decode.format)
        notes += _how_it_answers(agent, decode)
    played = {setup.config.policies[name].model for name in setup.team.policies}
    for name, base in setup.config.models.items():
        if name not in played:
            continue
        calls = any(setup.config.team[agent].tools for agent in _players(setup, name))
        if isinstance(base, EmbeddedModel):
            _adapted(setup.config, name, base.embedded)
            notes += [_calls_as_text(name)] * calls
            continue
        if name not in bases:
            continue
        tokenizer, context = tokenizer_with(bases[name], base.template)
        generation = stored_generation(bases[name])
        ends = completion_ends(bases[name], generation, tokenizer, base.end_tokens)
        for agent in _players(setup, name):
            decode = setup.config.decode_of(agent)
            _check_variables(agent, base.template, decode.template, tokenizer)
            if decode.format is not None:
                words = Vocabulary.of(tokenizer, len(tokenizer), ends.ids)
                words.guide(decode.format, after_thinking=decode.thinking is not None)
        notes += _beside_texts(name, bases[name])
        notes += _adapted(setup.config, name, bases[name])
        notes.append(_what_ends(name, ends, tokenizer))
        if calls:
            notes.append(_how_it_calls(name, tokenizer))
        warnings += _open_turns(name, ends, tokenizer)
        if hides_texts(tokenizer):
            warnings.append(
                f"the chat template of model {name} does not show the text of a message, which it "
                f"gets as a string: set models.{name}.chat_template to one that shows strings"
            )
        if tokenizer.model_max_length < context:
            warnings.append(
                f"the tokenizer_config.json of model {name} says model_max_length "
                f"{int(tokenizer.model_max_length)}, but its context is {context} tokens, and that "
                "counts here: set decode.max_new_tokens if its answers shall be shorter"
            )
    return notes, warnings


def _players(setup: TeamSetup, model: str) -> list[str]:
    """Return the agents that play with a model at some turn."""
    config = setup.config
    return [
        agent
        for agent, player in config.team.items()
        if any(config.policies[policy].model == model for policy in player.policy)
    ]


def _how_it_answers(agent: str, decode: Decode) -> list[str]:
    """Return what is said of an agent that thinks, or whose answers have a form."""
    notes: list[str] = []
    if (thinking := decode.thinking) is not None:
        most = f", {thinking.max_tokens} tokens at most" if thinking.max_tokens else ""
        notes.append(
            f"agent {agent} may think between {thinking.start} and {thinking.end}{most}: where its "
            "prompt, or what it writes, begins so"
        )
    if decode.format is not None:
        (kind,) = decode.format.model_dump(exclude_none=True)
        notes.append(f"answers of agent {agent} have the form of decode.format ({kind})")
    return notes


def _adapted(config: RunConfig, model: str, source: str | Path | TinyModel) -> list[str]:
    """Return which layers of a model get adapters, where a policy adapts all linear layers.

    Raises: ConfigError if a policy names a layer that the model does not have.
    """
    chosen = {
        name: policy.new_adapter
        for name, policy in config.policies.items()
        if policy.model == model and policy.new_adapter is not None
    }
    if not chosen:
        return []
    shape = shape_of(source)
    for name, lora in chosen.items():
        check_targets(lora, shape.modules, f"policies.{name}")
    everywhere = next((lora for lora in chosen.values() if lora.targets == ALL), None)
    if everywhere is None:
        return []
    layers = ", ".join(sorted(shape.adapted(everywhere)))
    return [f"adapters of model {model} are on all linear layers: {layers}"]


def _beside_texts(name: str, source: str | Path) -> list[str]:
    """Return what becomes of the parts of a model that read pictures or sound."""
    config = load_config_of(source)
    if config.get_text_config() is config:
        return []
    stored, loaded = (config.architectures or [""])[0], class_name(config)
    if stored in ("", loaded):
        said = f"{loaded} also reads more than texts: these parts are kept and not trained"
    else:
        said = f"{stored} is loaded as {loaded}, which reads texts alone; policies are saved so"
    return [f"model {name}: {said}"]


def _how_it_calls(name: str, tokenizer: PreTrainedTokenizerBase) -> str:
    form = form_of(tokenizer)
    if form.native:
        return f"model {name} calls tools in the form of its chat template ({form.name})"
    return _calls_as_text(name)


def _calls_as_text(name: str) -> str:
    return (
        f"model {name} has no chat template whose calls of tools can be read: the system message "
        "tells it of them, and it calls them with <tool_call>"
    )


def _what_ends(name: str, ends: CompletionEnds, tokenizer: PreTrainedTokenizerBase) -> str:
    own = dict.fromkeys(ends.eos, "")
    given = dict.fromkeys(ends.added, " (end_tokens)")
    said = {**dict.fromkeys(ends.turn, " (the end of a turn in its chat template)"), **given, **own}
    words = [
        f"{word}{why}"
        for word, why in zip(
            tokenizer.convert_ids_to_tokens(list(said)), said.values(), strict=True
        )
    ]
    texts = [
        f"the string {text!r} (the end of a turn in its chat template)" for text in ends.turn_text
    ]
    if not words and not texts:
        return f"nothing ends a completion of model {name} but its limit"
    return f"a completion of model {name} ends at {', '.join([*words, *texts])}, or at its limit"


def _open_turns(name: str, ends: CompletionEnds, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return a warning if chats may go on after the end of a turn."""
    mend = f"models.{name}.end_tokens adds tokens, and decode.stop strings"
    if not ends.ids and not ends.turn_text:
        return [
            f"model {name} has no end-of-sequence token, so every completion has "
            f"decode.max_new_tokens tokens: {mend}"
        ]
    if tokenizer.chat_template is None or ends.turn or ends.turn_text:
        return []
    return [
        f"the chat template of model {name} shows no end of a turn, so a model that writes turns "
        f"like it may go on with the next one: {mend}"
    ]


# --------------------------------------------------------------------------------- first prompts


async def first_prompts(setup: TaskSetup, task: Task) -> dict[str, Prompt]:
    """Return the first prompt of each acting agent, including its system message.

    Raises: as `shown_first`.
    """
    prompts = await shown_first(setup, task, derive(setup.config.seed, "first prompts"))
    return {agent: setup.team.with_system(agent, prompt) for agent, prompt in prompts.items()}


async def shown_first(setup: TaskSetup, task: Task, seed: int) -> dict[str, Prompt]:
    """Return what the environment shows each acting agent after `start(task, seed)`.

    The calls have the timeout, the retries and the threads of a game, and the state is closed.

    Raises: ConfigError for an exception of the environment, with its line; EnvironmentFault and the
    other faults that it raises, also for a timeout.
    """
    environment, plan = setup.environment, setup.config.rollout
    limit = plan.timeout_seconds

    def start() -> Awaitable[Any]:
        return within(limit, "start", lambda: environment.start(task, seed))

    said = f"{setup.config.environment.name}, the first prompts of task {task.id}"
    with asking(said), guarded(limit, plan.call_threads):
        state = await again(plan.retries, start)
        try:
            return at_once(limit, "observe", lambda: dict(environment.observe(state)))
        finally:
            await within(limit, "close", lambda: environment.close(state), even_given_up=True)


async def check_first_prompts(setup: TaskSetup, bases: Mapping[str, str | Path]) -> list[str]:
    """Check, before any model is loaded, that every first prompt leaves room for a completion.

    Returns warnings: completions that the context cuts off, chats without a chat template and
    strings to a model that has one, templates that show a date, and texts that spell special
    tokens.

    Raises: ConfigError that names the agent and both lengths.
    """
    tokenizers, config = cache(tokenizer_with), setup.config
    warnings: list[str] = []
    task = setup.tasks.first
    if task is None:  # a person's questions are the tasks
        return []
    for agent, prompt in (await first_prompts(setup, task)).items():
        model = config.policies[setup.team.policy_of(agent, 0)].model
        if model is None or model not in bases:
            continue
        words, context = tokenizers(bases[model], config.models[model].template)
        decode = config.decode_of(agent)
        length, most = len(encode(words, prompt, decode.template)), decode.max_new_tokens
        if length >= context:
            raise ConfigError(
                f"the first prompt of agent {agent} has {length} tokens, but model {model} has a "
                f"context of {context} tokens; expected room for an answer: shorten the prompt, "
                "or use a model with a longer context"
            )
        if length + most > context:
            warnings.append(
                f"answers of agent {agent} end after {context - length} tokens, not after "
                f"decode.max_new_tokens {most}: its first prompt has {length} tokens, and model "
                f"{model} has a context of {context}. Set decode.max_new_tokens={context - length}"
                " or lower, shorten the prompt, or use a model with a longer context"
            )
        date = config.models[model].template_date
        if date is not None and reads_date(words):
            warnings.append(
                f"the chat template of model {model} shows the date: the run keeps {date}, also "
                f"when it is resumed, replayed or evaluated (models.{model}.template_date)"
            )
        texts = [prompt] if isinstance(prompt, str) else [one.content for one in prompt]
        if spelt := spelt_tokens(words, texts):
            warnings.append(
                f"the first prompt of agent {agent} spells {', '.join(spelt[:3])}: no text becomes "
                "a special token, so the model reads ordinary characters. Only a chat template "
                f"writes special tokens: use messages, and models.{model}.chat_template=FILE.jinja "
                "for another form"
            )
        if isinstance(prompt, str) and words.chat_template is not None:
            warnings.append(
                f"agent {agent} is asked by a plain string: model {model} has a chat template, and "
                "goes on with a string as with any text, without it. For an answer ask by messages:"
                ' [motet.Message("user", TEXT)]'
            )
        if not isinstance(prompt, str) and words.chat_template is None:
            warnings += _without_template(config.models[model].path is None, model)
    return list(dict.fromkeys(warnings))


def _check_variables(
    agent: str, template: ChatTemplate, own: Mapping[str, Any], words: PreTrainedTokenizerBase
) -> None:
    """Check the variables that an agent gives the chat template. Raises: ConfigError."""
    for name in own:
        if name in template.options:
            raise ConfigError(
                f"team.{agent}.decode.template and template_options of its model both set {name}; "
                "expected one of them: drop the other"
            )
        check_variable(f"decode.template of agent {agent}", name, words)


def _without_template(embedded: bool, model: str) -> list[str]:
    """Return the warning about a model without a chat template. Embedded models never have one."""
    return (
        []
        if embedded
        else [
            f"model {model} has no chat template: chats are written as lines `role: content` and a "
            f"last line `assistant:`. models.{model}.chat_template=FILE.jinja sets a template"
        ]
    )


# ----------------------------------------------------------------------------------- template dates


def kept_dates(config: RunConfig, recorded: Path | None, now: datetime) -> RunConfig:
    """Return the config with a date for every model whose chat template reads one.

    Args:
        recorded: the config of the run that goes on, which has its dates. None: a new run.
        now: the start of a new run.

    Raises: ConfigError.
    """
    if recorded is not None:
        before = load_config(recorded).models
        dates = {name: base.template_date for name, base in before.items()}
    else:
        dates = _dates(config, now)
    return _dated(config, dates)


def _dates(config: RunConfig, now: datetime) -> dict[str, str | None]:
    return {
        name: now.isoformat(" ", "seconds")
        for name, base in config.models.items()
        if base.path is not None and reads_date(tokenizer_with(base.path, base.template)[0])
    }


def _dated(config: RunConfig, dates: Mapping[str, str | None]) -> RunConfig:
    models = {
        name: base.model_copy(update={"template_date": dates[name]})
        if base.template_date is None and dates.get(name) is not None
        else base
        for name, base in config.models.items()
    }
    return config if models == config.models else config.model_copy(update={"models": models})
