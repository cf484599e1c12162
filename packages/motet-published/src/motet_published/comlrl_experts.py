"""Translate the keys of CoMLRL's expert, which gives feedback between turns."""

import os

from motet_published.translation import Translation

MODE, MODEL = "external.mode", "external.expert_model"
EXPERT_MODEL = "deepseek-coder"
FIRST_EXPERT_MODEL = "claude-3-5-sonnet-20241022"
"""The default of the first trainers of several turns."""
EXPERT_APIS = {
    "deepseek": ("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "qwen": ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "claude": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
}
"""Start of an expert's name -> (address of its API, environment variable with the API key)."""


def set_expert(config: Translation, *, is_default: bool) -> None:
    """Set the expert.

    With `is_default`, an expert is asked if the config names no other feedback, as in the first
    trainers. Then the run goes without it if there is no API key.
    """
    if config.get(MODE) == "expert_edits":
        _ask(config, config.get(MODEL, EXPERT_MODEL))
        return
    if not is_default or MODE in config:
        config.ignore("{key} needs external.mode: expert_edits", MODEL)
        return
    model: str = config.get(MODEL, FIRST_EXPERT_MODEL)
    missing = _missing_key(model)
    if missing is None or any("expert" in layer.data for layer in config.overrides):
        config.set("environment.feedback.mode", "expert_edits", MODEL)
        _ask(config, model)
        return
    config.tell(
        f"as published, the expert {model} reads the best joint sample of a turn and proposes "
        f"edits. {missing}, so agents read level_feedback on that sample instead. To ask an "
        "expert, set its API key, or motet.expert.base_url and motet.expert.model"
    )


def _ask(config: Translation, model: str) -> None:
    source = MODEL if MODEL in config else MODE
    config.set("expert.model", model, source)
    for start, (address, variable) in EXPERT_APIS.items():
        if model.startswith(start):
            config.set("expert.base_url", address, source)
            config.set("expert.key_variable", variable, source)


def _missing_key(model: str) -> str | None:
    """Return what is missing to ask an expert, as text; None if nothing is."""
    variable = next((key for start, (_, key) in EXPERT_APIS.items() if model.startswith(start)), "")
    if not variable:
        return "Its address is not known"
    return None if os.environ.get(variable, "").strip() else f"{variable} is not set"
