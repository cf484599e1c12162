"""The first prompts of a run, and whether they leave room for a completion."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from motet.assembly.task_setup import TaskSetup
from motet.assembly.tasks import asking
from motet.core import Prompt, Task
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.models.chat_template import reads_date, tokenizer_with
from motet.models.content import spelt_tokens
from motet.models.prompts import encode
from motet.user_code.timeouts import at_once, guarded, within


async def first_prompts(setup: TaskSetup, task: Task) -> dict[str, Prompt]:
    """Return the first prompt of each acting agent, including its system message.

    Raises: ConfigError for every error of the environment.
    """
    config, environment, limit = (
        setup.config,
        setup.environment,
        setup.config.rollout.timeout_seconds,
    )
    said = f"{config.environment.name}, the first prompts of task {task.id}"
    with asking(said), guarded(limit, config.rollout.call_threads):
        state = await within(
            limit, "start", lambda: environment.start(task, derive(config.seed, "first prompts"))
        )
        try:
            prompts = at_once(limit, "observe", lambda: environment.observe(state))
        finally:
            await within(limit, "close", lambda: environment.close(state), even_given_up=True)
    return {agent: setup.team.with_system(agent, prompt) for agent, prompt in prompts.items()}


async def check_first_prompts(setup: TaskSetup, bases: Mapping[str, str | Path]) -> list[str]:
    """Check, before any model is loaded, that every first prompt leaves room for a completion.

    Returns warnings: completions that the context cuts off, chats without a chat template,
    templates that show a date, and texts that spell special tokens.

    Raises: ConfigError that names the agent and both lengths.
    """
    tokenizers, config = cache(tokenizer_with), setup.config
    warnings: list[str] = []
    task = setup.tasks.first
    if task is None:  # a person's questions are the tasks
        return []
    for agent, prompt in (await first_prompts(setup, task)).items():
        model = config.policies[setup.team.policy_of(agent, 0)].model
        if model not in bases:
            continue
        words, context = tokenizers(bases[model], config.models[model].template)
        length, most = len(encode(words, prompt)), config.decode_of(agent).max_new_tokens
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
        if not isinstance(prompt, str) and words.chat_template is None:
            warnings += _without_template(config.models[model].embedded is not None, model)
    return list(dict.fromkeys(warnings))


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
